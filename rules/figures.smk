# Figures. One job draws all of them, because loading the plotting libraries takes longer than drawing.
#
# Inputs:  the tables that they are drawn from, manifest.json, nodes/device.json
# Outputs: figures/{figure}.{svg,pdf,png}, for each figure that the study has (sharebench/read/figures/catalogue.py)
from sharebench.read.figures.catalogue import ENTRIES, names_for

FIGURES = names_for(
    STUDY.config,
    STUDY.node_kind,
    DATA / "tables" / "summary.csv" if SOURCES else None,
)


rule figures:
    input:
        tables=table_files({ENTRIES[figure].table for figure in FIGURES}),
        manifest="<results>/manifest.json",
        device="<data>/nodes/device.json",
    output:
        [
            report(
                f"<results>/figures/{figure}.svg",
                caption="captions/figure.rst",
                category="Figures",
                labels={"figure": ENTRIES[figure].title},
            )
            for figure in FIGURES
        ],
        expand("<results>/figures/{figure}.pdf", figure=FIGURES),
        expand("<results>/figures/{figure}.png", figure=FIGURES),
    log:
        "<results>/logs/figures.log",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
        figures=FIGURES,
        shows=shown_contents(),
        code=lambda _: code.stage_fingerprint("figures"),
    message:
        "Drawing the figures"
    shell:
        "{params.python:q} {params.script:q} figures --data {params.data:q} --results {params.results:q}"
        " --figures {params.figures:q} > {log:q} 2>&1"
