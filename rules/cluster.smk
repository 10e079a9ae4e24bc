# Checks of a cluster: what it has, what it lacks, and whether our account has the permissions that a run needs.
#
# Inputs:  the config and the cluster
# Outputs: none; preflight prints, and changes nothing


rule preflight:
    log:
        "<results>/logs/preflight.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB_PARAMS,
        # Snakemake formats a plain string, but takes a function's text as it is, with braces.
        config=lambda _: canonical_json(to_json(STUDY.config)),
    message:
        "Looking at the cluster"
    shell:
        "{params.python:q} {params.script:q} preflight --config {params.config:q} 2> {log:q}"
