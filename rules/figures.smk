# Figures: one module and one job each.
#
# Inputs:  tables/*.csv, cells/{strategy}/{workload}/histograms.csv (and records, for timelines)
# Outputs: figures/{figure}.{svg,pdf,png}


rule figure:
    input:
        tables=[
            "<results>/tables/cells.csv",
            "<results>/tables/summary.csv",
            "<results>/manifest.json",
        ],
        exports=exports(),
    output:
        "<results>/figures/{figure}.svg",
        "<results>/figures/{figure}.pdf",
        "<results>/figures/{figure}.png",
    log:
        "<results>/logs/figures/{figure}.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        python=PYTHON,
        script=SCRIPTS / "plot_figure.py",
        data=DATA,
        results=RESULTS,
        shows=presentation(),
        code=lambda wildcards: code.of_stage("figures", wildcards.figure),
    message:
        "Drawing {wildcards.figure}"
    shell:
        "{params.python:q} {params.script:q} --data {params.data:q} --results {params.results:q}"
        " --figure {wildcards.figure:q} > {log:q} 2>&1"
