# Which workloads of a cluster or of this host leave their GPU empty, and a study of which to put together.
#
# Inputs:  none; a Prometheus that scrapes dcgm-exporter (survey.url), or the GPUs of this host
# Outputs: none that a rule needs: survey/{workloads.csv,groups.csv,survey.md,survey.svg,survey.pdf,survey.png,study.yaml}
#          are written whenever they are asked for. They name workloads, and no data set or archive has them.


rule survey:
    log:
        "<results>/logs/survey.log",
    handover: True
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        out=RESULTS / "survey",
        # A function's text is taken as it is, braces too.
        options=lambda _: canonical_json(STUDY.config["survey"]),
    message:
        "Looking at what uses the GPUs"
    shell:
        "{params.python:q} {params.script:q} survey --out {params.out:q} --options {params.options:q} 2> {log:q}"
