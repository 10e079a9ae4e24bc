# A cluster: what it has, what it lacks, and whether we may do what we need to.
#
# Inputs:  nothing but the config and the cluster.
# Outputs: none; preflight prints, and changes nothing.


rule preflight:
    log:
        "<results>/logs/preflight.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        # A function's text is taken as it is, braces too.
        config=lambda _: canonical_json(STUDY.config),
    message:
        "Looking at the cluster"
    shell:
        "{params.python:q} {params.script:q} preflight --config {params.config:q} 2> {log:q}"
