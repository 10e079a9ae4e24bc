# Two finished data sets against each other.
#
# Inputs:  the records of both data sets (params: they are never made, whatever the study at hand is)
# Outputs: compare/{before}-{after}/compare.{csv,md,svg,pdf,png}
# Steps:   compare checks that both measured the same, and tables and draws the ratio of every cell that both have.


rule compare:
    input:
        # The run ends here, before anything has started, where there is nothing to compare.
        lambda wildcards: (
            [] if STUDY.config["datasets"] else sys.exit(dataset.NOTHING_TO_COMPARE)
        ),
    output:
        expand(
            "<results>/compare/{names}/compare.{suffix}",
            names=dataset.combined_name(STUDY.config["datasets"]),
            suffix=["csv", "md", "svg", "pdf", "png"],
        ),
    log:
        "<results>/logs/compare.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        out=RESULTS / "compare" / dataset.combined_name(STUDY.config["datasets"]),
        folders=STUDY.config["datasets"],
        contents=dataset.content_digests(STUDY.config["datasets"]),
        code=lambda _: code.stage_fingerprint("compare"),
    message:
        "Comparing two data sets"
    shell:
        "{params.python:q} {params.script:q} compare --before {params.folders[0]:q} --after {params.folders[1]:q}"
        " --out {params.out:q} 2> {log:q}"
