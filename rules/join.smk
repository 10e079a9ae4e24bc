# Joins the parts of a study that were measured in several folders.
#
# Inputs:  the records of the parts (as params, since no rule here makes them)
# Outputs: none that a rule declares; cells/, nodes/ and calibration/ of the results root, as if measured there
# Steps:   join copies every cell of the study from the part that has it. After that, only the tables are missing.
rule join:
    input:
        # Where there is nothing to join, the run ends here, before any job starts.
        lambda wildcards: (
            [] if STUDY.config["parts"] else sys.exit(dataset.NOTHING_TO_JOIN)
        ),
    log:
        "<results>/logs/join.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB_PARAMS,
        # Snakemake formats a plain string, but takes a function's text as it is, with braces.
        config=lambda _: canonical_json(to_json(STUDY.config)),
        results=RESULTS,
    message:
        "Putting the parts together"
    shell:
        "{params.python:q} {params.script:q} join --config {params.config:q} --results {params.results:q} 2> {log:q}"
