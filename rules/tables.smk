# Tables: the numbers of all records.
#
# Inputs:  cells/{strategy}/{workload}/n{replicas}/r{repeat}/raw.json, calibration/{workload}.json, nodes/device.json
# Outputs: cells/{strategy}/{workload}/histograms.csv, tables/{table}.csv, for each table that the study has
#          (sharebench/read/tables/registry.py), tables/summary.md, manifest.json, with promises tables/conformance.xml
# Steps:   export_histograms lists the buckets of one strategy and workload. aggregate checks that every record is
#          complete, matches the config, and comes from one device and one set of frameworks; then it writes the tables.

from sharebench.model.study_config import has_streams
from sharebench.read.tables.registry import TABLES, has_table


rule export_histograms:
    input:
        lambda wildcards: (
            [] if SOURCES else record_files(wildcards.strategy, wildcards.workload)
        ),
    output:
        "<results>/cells/{strategy}/{workload}/histograms.csv",
    log:
        "<results>/logs/export/{strategy}/{workload}.log",
    resources:
        # The only job that could run while cells are measured, which would feel it.
        **EVERY_DEVICE,
    params:
        **JOB_PARAMS,
        code=lambda _: code.stage_fingerprint("export"),
    message:
        "Exporting histograms of {wildcards.strategy}, {wildcards.workload}"
    shell:
        "{params.python:q} {params.script:q} export_histograms --out {output:q} --raw {input:q} > {log:q} 2>&1"


rule aggregate:
    input:
        raw=record_files(),
        calibrations=[
            DATA / f"calibration/{workload}.json"
            for workload in STUDY.calibrated_workloads()
        ],
        device="<data>/nodes/device.json",
        promises=(
            [Path(workflow.basedir) / "config" / "promises.yaml"]
            if has_table("conformance", STUDY.config)
            else []
        ),
    output:
        report(
            "<results>/tables/cells.csv",
            caption="captions/table.rst",
            category="Tables",
            labels={"table": "cells", "holds": "one row per cell and tenant"},
        ),
        report(
            "<results>/tables/summary.csv",
            caption="captions/table.rst",
            category="Tables",
            labels={"table": "summary", "holds": "one row per combination"},
        ),
        "<results>/tables/summary.md",
        "<results>/manifest.json",
        table_files(set(TABLES) - {"cells", "summary"}),
        (
            ["<results>/tables/conformance.xml"]
            if has_table("conformance", STUDY.config)
            else []
        ),
        # The digest of the tables names the file, so it is missing when they are stale. Snakemake's metadata show that
        # too, but results can be copied without them.
        tabled=RESULTS / f".sharebench/tabled/{TABLES_DIGEST}",
    log:
        "<results>/logs/tables.log",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
        shows=shown_contents(),
        # Goodput and the price of a token depend on these.
        asks=canonical_json(
            [
                STUDY.config["slo"],
                STUDY.config["price_per_hour"] if has_streams(STUDY.config) else None,
            ]
        ),
        code=lambda _: code.stage_fingerprint("tables"),
    message:
        "Writing the tables"
    shell:
        "{params.python:q} {params.script:q} aggregate --data {params.data:q} --results {params.results:q}"
        " --tabled {output.tabled:q} > {log:q} 2>&1"
