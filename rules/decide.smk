# Decisions: cost, capacity and advice, computed from the tables.
#
# Inputs:  tables/{summary.csv,cells.csv}, with faults tables/isolation.csv, with jobs tables/jobs.csv, manifest.json,
#          nodes/device.json; of further studies (`from`) and the others of a publication FACT_FILES
# Outputs: tables/{cost.csv,capacity.csv,advice.csv,advice.md,advice.json}
# Steps:   decide answers the question of the config (model/question.py), on which no other job
#          depends. `sharebench advise` answers others on the terminal.


rule decide:
    input:
        tables=table_files({"summary", "cells", "isolation", "jobs"}),
        manifest="<results>/manifest.json",
        device="<data>/nodes/device.json",
        known=dataset.fact_files(OTHER_STUDIES),
    output:
        "<results>/tables/cost.csv",
        "<results>/tables/capacity.csv",
        "<results>/tables/advice.csv",
        "<results>/tables/advice.md",
        "<results>/tables/advice.json",
        # The question names the file, so that results copied without Snakemake's metadata show another question.
        decided=RESULTS / f".sharebench/decided/{QUESTION_DIGEST}",
    log:
        "<results>/logs/decide.log",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
        question=canonical_json(ADVICE_QUESTION),
        others=OTHER_STUDIES,
        code=lambda _: code.stage_fingerprint("decisions"),
    message:
        "Deciding"
    shell:
        "{params.python:q} {params.script:q} decide --data {params.data:q} --results {params.results:q}"
        " --question {params.question:q} --decided {output.decided:q} --others {params.others:q} > {log:q} 2>&1"
