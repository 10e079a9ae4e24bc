# Decisions: what the tables say beyond what was measured, and what follows for a user.
#
# Inputs:  tables/{cells.csv,summary.csv}, of a study with faults tables/isolation.csv, manifest.json,
#          nodes/device.json, with an SLO the records
# Outputs: tables/{cost.csv,capacity.csv,advice.csv,advice.md}
# Steps:   decide answers what the config asks (slo, tenants, isolation, price_per_hour), which no other job depends
#          on. advise answers on the terminal, from finished results, and never measures: of results at hand it has no
#          inputs, so that nothing is rebuilt.

DECIDED_FROM = [
    "<results>/tables/cells.csv",
    "<results>/tables/summary.csv",
    "<results>/manifest.json",
    *(["<results>/tables/isolation.csv"] if STUDY.config["faults"] else []),
]


rule decide:
    input:
        tables=DECIDED_FROM,
        device="<data>/nodes/device.json",
    output:
        "<results>/tables/cost.csv",
        "<results>/tables/capacity.csv",
        "<results>/tables/advice.csv",
        "<results>/tables/advice.md",
        # Named by the question, so that it is missing after `advise` was asked another one.
        decided=RESULTS
        / f".sharebench/decided/{dataset.question_digest(QUESTION, STUDY)}",
    log:
        "<results>/logs/decide.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        data=DATA,
        results=RESULTS,
        question=canonical_json(QUESTION),
        code=lambda _: code.stage_fingerprint("decisions"),
    message:
        "Deciding"
    shell:
        "{params.python:q} {params.script:q} decide --data {params.data:q} --results {params.results:q}"
        " --question {params.question:q} --decided {output.decided:q} > {log:q} 2>&1"


rule advise:
    input:
        rules.aggregate.output if FROM else [],
    log:
        "<results>/logs/advise.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        data=DATA,
        results=RESULTS,
        question=canonical_json(QUESTION),
        decided=RESULTS
        / f".sharebench/decided/{dataset.question_digest(QUESTION, STUDY)}",
    message:
        "Advising"
    shell:
        "{params.python:q} {params.script:q} decide --data {params.data:q} --results {params.results:q}"
        " --question {params.question:q} --decided {params.decided:q} 2> {log:q}"
