# The report: one file, which opens offline.
#
# Inputs:  the tables that it shows, figures/*.svg, manifest.json, nodes/device.json
# Outputs: report.html


from sharebench.read.tables.registry import TABLES, UNREPORTED

PUBLISHED = Path(workflow.basedir) / "published"


report: "captions/study.rst"


rule report:
    input:
        tables=table_files(TABLES.keys() - UNREPORTED),
        manifest="<results>/manifest.json",
        decisions=rules.decide.output,
        figures=rules.figures.output,
        device="<data>/nodes/device.json",
    output:
        report(
            "<results>/report.html",
            caption="captions/report.rst",
            category="Report",
            labels={"page": "the whole study"},
        ),
    log:
        "<results>/logs/report.log",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
        code=lambda _: code.stage_fingerprint("report"),
    message:
        "Writing the report"
    shell:
        "{params.python:q} {params.script:q} report --data {params.data:q} --results {params.results:q} > {log:q} 2>&1"
