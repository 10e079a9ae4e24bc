# The length of a time slice: which tenant is on the GPU when, as seen by tenants that only watch its clock.
#
# Inputs:  nodes/device.json
# Outputs: nodes/timeslice.json, tables/timeslice.csv, figures/timeslice.{svg,pdf,png}
# Steps:   measure_timeslice watches a few tenants under time-slicing, MPS and streams, where the study has these.
#          probe_timeslice draws who ran when, and runs only when named as a target.
from importlib import import_module

# Imported late, since it needs NVML and is rarely used.
timeslice = lambda: import_module("sharebench.measure.run.timeslice.probe")


rule measure_timeslice:
    input:
        # Where there is no GPU, the run ends here, before any job starts.
        device=lambda wildcards: (
            str(RESULTS / "nodes/device.json")
            if STUDY.node_kind == "nvidia"
            else sys.exit(timeslice().needs_gpu_text(STUDY))
        ),
    output:
        found="<results>/nodes/timeslice.json",
        table="<results>/tables/timeslice.csv",
    log:
        "<results>/logs/nodes/timeslice.log",
    localrule: True
    conda:
        "../envs/sharebench.yaml"
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **JOB_PARAMS,
        results=RESULTS,
        tenants=STUDY.config["timeslice_tenants"],
        seconds=2,
        strategies=lambda _: [
            STUDY.strategy_spec(each.name)
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
    conda:
        "../envs/sharebench.yaml"
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
