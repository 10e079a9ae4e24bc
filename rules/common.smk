# What the rules need to know about the study's cells. There are no rules here.
from sharebench.model.spec import SPEC_KEYS, canonical_json, describe_part
from sharebench.model.study_config import uses_several_devices
from sharebench.read.tables.registry import table_names
from sharebench.study import fingerprint as code
from sharebench.study.cells import cell_from_path


def cell_files(name, loads):
    """The files of this name of the cells that one job measures, each with one of these workloads."""
    return [
        f"<results>/cells/{{strategy}}/{load}/n{{replicas}}/r{{repeat}}/{name}"
        for load in loads
    ]


def cells_of(loads):
    """A function that returns the cells of a job with these workloads, from its wildcards, in their order."""

    def cells(wildcards):
        paths = (
            path.format(**dict(wildcards.items())) for path in cell_files("", loads)
        )
        return STUDY.in_order(map(cell_from_path, paths))

    return cells


def calibration_spec(wildcards):
    return STUDY.calibration_spec(wildcards.workload)


def spec_params(spec):
    """One param for each part of a spec: a job is stale when a part changes, and Snakemake names that part."""
    described = {}

    def part(wildcards, name):
        job = tuple(wildcards)
        if job not in described:
            whole = spec(wildcards)
            described[job] = {key: describe_part(whole, key) for key in SPEC_KEYS}
        return described[job][name]

    return {
        name: lambda wildcards, name=name: part(wildcards, name) for name in SPEC_KEYS
    }


def start_constraints(starts, swept):
    """The wildcards of a rule for these starts; without any, of the rule for all other workloads than those swept."""
    if not starts:
        return {"workload": f"(?!({swept})/)[a-z][^/]*"} if swept else {}
    places = (
        f"{each.strategy}(?=/[^/]+/n{each.replicas}/r{each.repeat}/)" for each in starts
    )
    return {"strategy": "|".join(places)}


def calibration_files(cells):
    """Calibration files of the workloads that these cells' tenants run, where they have one."""
    names = (name for cell in cells for name in STUDY.calibrated_workloads(cell))
    return [f"<results>/calibration/{name}.json" for name in dict.fromkeys(names)]


def strategy_rank(wildcards):
    if uses_several_devices(STUDY.config, STUDY.node_kind) and STUDY.order == "blocks":
        # Set-ups come before all cells, so that no device waits for another one's.
        return len(STUDY.cells) + 2
    return STUDY.strategy_rank(wildcards.strategy)


def record_files(strategy=None, workload=None):
    """Record files of all cells, or of one strategy and workload."""
    wanted = (
        {(strategy, workload)} if strategy else set(STUDY.strategy_workload_pairs())
    )
    return [
        DATA / cell.raw
        for cell in STUDY.cells
        if (cell.strategy, cell.workload) in wanted
    ]


def histogram_files():
    """Histogram files of all strategies and workloads."""
    return [
        DATA / f"cells/{strategy}/{workload}/histograms.csv"
        for strategy, workload in STUDY.strategy_workload_pairs()
    ]


def table_files(names):
    """The tables of these names that the study has, in the order of their registry."""
    return [
        f"<results>/tables/{name}.csv"
        for name in table_names(STUDY.config)
        if name in names
    ]


def deliverables():
    """Every file that a run should produce, with each record, so that a deleted one is noticed."""
    cells = [] if SOURCES else [*record_files(), *histogram_files()]
    tables = [*rules.aggregate.output, *rules.decide.output]
    return [*cells, *tables, *rules.figures.output, RESULTS / "report.html"]


def shown_contents():
    """Inputs of tables, figures and report besides the records, as text for their params."""
    return canonical_json(
        {
            "cells": len(STUDY.cells),
            "not_shown": EXCLUDED_NOTE,
            "catalogue": list(STUDY.strategies),
        }
    )


def refuse_link(*parts):
    """Refuse a folder that is a symbolic link; otherwise an empty input."""
    if (folder := Path(*parts)).is_symlink():
        raise Refused(
            f"{folder} is a symbolic link; remove it, or publish under another name"
        )
    return []


def facts_of_gpu(probe):
    """The input of a probe, which is refused before any job starts where there is no GPU."""
    if STUDY.node_kind != "nvidia":
        raise Refused(probe.needs_gpu_text(STUDY))
    return str(RESULTS / "nodes/device.json")
