# Compares two finished data sets.
#
# Inputs:  the records of both data sets (as params, since no rule of this study makes them)
# Outputs: compare/{before}-{after}/compare.{csv,md,svg,pdf,png}
# Steps:   compare checks that both measured the same, and writes and draws the ratio of every cell that both have.


rule compare:
    input:
        # Where there is nothing to compare, the run ends here, before any job starts.
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
        **JOB_PARAMS,
        out=RESULTS / "compare" / dataset.combined_name(STUDY.config["datasets"]),
        folders=STUDY.config["datasets"],
        contents=dataset.content_digests(STUDY.config["datasets"]),
        code=lambda _: code.stage_fingerprint("compare"),
    message:
        "Comparing two data sets"
    shell:
        "{params.python:q} {params.script:q} compare --before {params.folders[0]:q} --after {params.folders[1]:q}"
        " --out {params.out:q} 2> {log:q}"
