# The length of a time slice: which tenant is on the GPU when, as seen by tenants that only watch its clock. And the map
# of wrong answers: which results are wrong under which share of the SMs.
#
# Inputs:  nodes/device.json
# Outputs: nodes/{timeslice,answers}.json, tables/{timeslice,answers}.csv, figures/{timeslice,answers}.{svg,pdf,png}
# Steps:   measure_timeslice watches a few tenants under time-slicing, MPS and streams, where the study has these.
#          probe_timeslice draws who ran when. measure_answers checks results under each share, and probe_answers
#          draws the map. They run only when named as targets.
from importlib import import_module

# Imported late, since it needs NVML and is rarely used.
timeslice = lambda: import_module("sharebench.measure.run.timeslice.probe")
answers = lambda: import_module("sharebench.measure.run.answers")


rule measure_timeslice:
    input:
        device=lambda wildcards: facts_of_gpu(timeslice()),
    output:
        found="<results>/nodes/timeslice.json",
        table="<results>/tables/timeslice.csv",
    log:
        "<results>/logs/nodes/timeslice.log",
    localrule: True
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **JOB_PARAMS,
        results=RESULTS,
        tenants=STUDY.config["timeslice_tenants"],
        seconds=2,
        strategies=lambda _: [
            STUDY.strategy_spec(each.name).text
            for each in timeslice().probed_strategies(STUDY)
        ],
        code=lambda _: [STUDY.node_code(), code.stage_fingerprint("timeslice")],
    message:
        "Watching who is on the device"
    shell:
        "{params.python:q} {params.script:q} measure_timeslice --results {params.results:q} --device {input.device:q}"
        " --tenants {params.tenants} --seconds {params.seconds} --out {output.found:q} --table {output.table:q}"
        " 2> {log:q}"


rule probe_timeslice:
    input:
        "<results>/nodes/timeslice.json",
        "<results>/tables/timeslice.csv",
    output:
        expand("<results>/figures/timeslice.{suffix}", suffix=["svg", "pdf", "png"]),
    log:
        "<results>/logs/timeslice.log",
    params:
        **JOB_PARAMS,
        results=RESULTS,
        catalogue=list(STUDY.strategies),
        code=lambda _: code.stage_fingerprint("figures"),
    message:
        "Drawing who was on the device"
    shell:
        "{params.python:q} {params.script:q} draw_timeslice --results {params.results:q} --catalogue {params.catalogue:q}"
        " > {log:q} 2>&1"


rule measure_answers:
    input:
        device=lambda wildcards: facts_of_gpu(answers()),
    output:
        found="<results>/nodes/answers.json",
        table="<results>/tables/answers.csv",
    log:
        "<results>/logs/nodes/answers.log",
    localrule: True
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **JOB_PARAMS,
        results=RESULTS,
        code=lambda _: [STUDY.node_code(), code.stage_fingerprint("answers")],
    message:
        "Checking answers under each share of the SMs"
    shell:
        "{params.python:q} {params.script:q} measure_answers --results {params.results:q} --device {input.device:q}"
        " --out {output.found:q} --table {output.table:q} 2> {log:q}"


rule probe_answers:
    input:
        "<results>/nodes/answers.json",
        # Only measure_answers makes it, and nodes/answers.json alone could also be a strategy's state.
        "<results>/tables/answers.csv",
    output:
        expand("<results>/figures/answers.{suffix}", suffix=["svg", "pdf", "png"]),
    log:
        "<results>/logs/answers.log",
    params:
        **JOB_PARAMS,
        results=RESULTS,
        code=lambda _: code.stage_fingerprint("figures"),
    message:
        "Drawing the map of wrong answers"
    shell:
        "{params.python:q} {params.script:q} draw_answers --results {params.results:q} > {log:q} 2>&1"
