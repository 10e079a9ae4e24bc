# What Prometheus saw, in a study that it watches, and what coarse buckets hide, of any study.
#
# Inputs:  cells/{strategy}/{workload}/n{replicas}/r{repeat}/raw.json, cells/{strategy}/{workload}/histograms.csv
# Outputs: cells/{strategy}/{workload}/prometheus.csv, figures/buckets.{svg,pdf,png}
# Steps:   export_prometheus lists the buckets that Prometheus saw; they are apart from the tenants' own, so that nothing
#          is counted twice. coarse_buckets draws what the study's own latencies look like in coarse buckets; without
#          Prometheus it runs only when it is asked for by name. tables/prometheus.csv is made with the other tables.


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
        python=PYTHON,
        script=SCRIPTS / "job.py",
        code=lambda _: code.of_stage("export"),
    message:
        "Exporting what Prometheus saw of {wildcards.strategy}, {wildcards.workload}"
    shell:
        "{params.python:q} {params.script:q} export_histograms --source prometheus --out {output:q} --raw {input:q}"
        " > {log:q} 2>&1"


rule coarse_buckets:
    input:
        tables=["<results>/tables/summary.csv", "<results>/manifest.json"],
        exports=exports(),
    output:
        expand("<results>/figures/buckets.{suffix}", suffix=["svg", "pdf", "png"]),
    log:
        "<results>/logs/buckets.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        python=PYTHON,
        script=SCRIPTS / "job.py",
        data=DATA,
        results=RESULTS,
        shows=presentation(),
        code=lambda _: code.of_stage("figures"),
    message:
        "Drawing what coarse buckets hide"
    shell:
        "{params.python:q} {params.script:q} figures --data {params.data:q} --results {params.results:q} --figures buckets"
        " > {log:q} 2>&1"


# What a run is for besides, where Prometheus watches.
watched = lambda: (
    [
        *(
            DATA / f"cells/{strategy}/{workload}/prometheus.csv"
            for strategy, workload in STUDY.pairs()
            if not FROM
        ),
        *rules.coarse_buckets.output,
    ]
    if is_on(STUDY.config)
    else []
)
