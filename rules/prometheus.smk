# What Prometheus saw, in a study that it watches.
#
# Inputs:  cells/{strategy}/{workload}/n{replicas}/r{repeat}/raw.json
# Outputs: cells/{strategy}/{workload}/prometheus.csv
# Steps:   export_prometheus lists the buckets that Prometheus saw; they are apart from the tenants' own, so that nothing
#          is counted twice. tables/prometheus.csv is made with the other tables.


rule export_prometheus:
    input:
        lambda wildcards: (
            [] if FROM else raw_files(wildcards.strategy, wildcards.workload)
        ),
    output:
        "<results>/cells/{strategy}/{workload}/prometheus.csv",
    log:
        "<results>/logs/export/{strategy}/{workload}-prometheus.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        code=lambda _: code.of_stage("export"),
    message:
        "Exporting what Prometheus saw of {wildcards.strategy}, {wildcards.workload}"
    shell:
        "{params.python:q} {params.script:q} export_histograms --source prometheus --out {output:q} --raw {input:q}"
        " > {log:q} 2>&1"


# What a run is for besides, where Prometheus watches.
watched = lambda: (
    [
        *(
            DATA / f"cells/{strategy}/{workload}/prometheus.csv"
            for strategy, workload in STUDY.pairs()
            if not FROM
        ),
    ]
    if is_on(STUDY.config)
    else []
)
