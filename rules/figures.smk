# Figures: one module each, drawn by one job, because loading the plotting libraries takes longer than drawing.
#
# Inputs:  tables/*.csv, cells/{strategy}/{workload}/histograms.csv (and records, for timelines)
# Outputs: figures/{latency,throughput,distribution,timeline,interference,startup,isolation}.{svg,pdf,png}, interference
#          only of pairs, isolation only of faults


rule figures:
    input:
        tables=[
            "<results>/tables/cells.csv",
            "<results>/tables/summary.csv",
            "<results>/manifest.json",
        ],
        exports=exports(),
    output:
        expand("<results>/figures/{figure}.svg", figure=FIGURES),
        expand("<results>/figures/{figure}.pdf", figure=FIGURES),
        expand("<results>/figures/{figure}.png", figure=FIGURES),
    log:
        "<results>/logs/figures.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        python=PYTHON,
        script=SCRIPTS / "plot_figures.py",
        data=DATA,
        results=RESULTS,
        figures=FIGURES,
        shows=presentation(),
        code=code.of_stage("figures"),
    message:
        "Drawing the figures"
    shell:
        "{params.python:q} {params.script:q} --data {params.data:q} --results {params.results:q}"
        " --figures {params.figures:q} > {log:q} 2>&1"
