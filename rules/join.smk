# Parts of a study that were measured in folders of their own, put together.
#
# Inputs:  the records of the parts (params: they are never made here)
# Outputs: none of its own; cells/, nodes/ and calibration/ of the results root, as if they had been measured there
# Steps:   join takes every cell of the study from the part that has it. What Snakemake finds then is a measured study, of
#          which the tables are missing.
rule join:
    input:
        # The run ends here, before anything has started, where there is nothing to join.
        lambda wildcards: (
            [] if STUDY.config["parts"] else sys.exit(dataset.NOTHING_TO_JOIN)
        ),
    log:
        "<results>/logs/join.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        # A function's text is taken as it is, braces too.
        config=lambda _: canonical_json(STUDY.config),
        results=RESULTS,
    message:
        "Putting the parts together"
    shell:
        "{params.python:q} {params.script:q} join --config {params.config:q} --results {params.results:q} 2> {log:q}"
