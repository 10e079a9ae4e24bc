# Finds workloads of a cluster or this host that leave their GPU empty, and writes a study of those that may share one.
#
# Inputs:  none; a Prometheus that scrapes dcgm-exporter (survey.url), or the GPUs of this host
# Outputs: undeclared: survey/{workloads.csv,groups.csv,survey.md,survey.svg,survey.pdf,survey.png,study.yaml}
#          are rewritten at every call. They name workloads, so no data set or archive contains them.


rule survey:
    log:
        "<results>/logs/survey.log",
    localrule: True
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB_PARAMS,
        out=RESULTS / "survey",
        # Snakemake formats a plain string, but takes a function's text as it is, with braces.
        options=lambda _: canonical_json(STUDY.config["survey"]),
    message:
        "Looking at what uses the GPUs"
    shell:
        "{params.python:q} {params.script:q} survey --out {params.out:q} --options {params.options:q} 2> {log:q}"
