# Turns the config into cells, and provides what the rules need to know about them. There are no rules here.
import sys

from sharebench.model.config import load as configuration
from sharebench.study import fingerprint as code
from sharebench.datasets import dataset
from sharebench.read.figures.catalogue import names_for
from sharebench.core.files import SCRIPTS
from sharebench.study.open_study import open_study
from sharebench.study.cells import cell_from_path
from sharebench.model.spec import (
    SPEC_KEYS,
    canonical_json,
    describe_node,
    describe_part,
)
from sharebench.model.study_config import (
    has_conformance,
    has_jobs,
    has_streams,
    to_json,
    uses_several_devices,
)
from sharebench.model.prometheus_options import has_prometheus

if not {"{", "}"}.isdisjoint(workflow.basedir):
    sys.exit(
        f"this checkout is in {workflow.basedir}, and Snakemake takes a brace for a wildcard; move it elsewhere"
    )
# The rules' `conda:` names the packages that a job needs, which the linter asks for. Snakemake itself imports them to
# read these files, so a job has them from the interpreter that runs it.
if has_deployment_method():
    sys.exit(
        "--software-deployment-method: jobs run with the interpreter that runs snakemake; leave it out, and make that "
        "one's environment with `make install`, or with conda: conda env create --file envs/sharebench.yaml; "
        "in that: pip install --no-deps --no-build-isolation --editable ."
    )

try:
    configuration.check_files(config_files())
    STUDY = open_study(config)
    GIVEN_CONFIG, SOURCE_DATA_SET = STUDY.config, STUDY.config["from"]
    if SOURCE_DATA_SET:
        dataset.refuse_ignored(command_line_config())
        STUDY = dataset.open_for_rebuild(Path(SOURCE_DATA_SET))
        dataset.check_complete(STUDY)
    # The question comes from the command line, its config files, and the defaults.
    ADVICE_QUESTION = dataset.resolve_question(
        GIVEN_CONFIG, given_config(), command_line_config(), STUDY
    )
    STUDY = dataset.apply_question(STUDY, ADVICE_QUESTION)
    EXCLUDED_NOTE = dataset.excluded_cells_note(STUDY)
except (configuration.ConfigError, dataset.DataSetError) as error:
    sys.exit(str(error))

config = STUDY.config
# Params of every rule. Snakemake does not track a Path among them, so another interpreter invalidates nothing.
JOB_PARAMS = {"python": Path(sys.executable), "script": SCRIPTS / "job.py"}
RESULTS = dataset.results_root(STUDY.config)
DATA = dataset.verified_folder(Path(SOURCE_DATA_SET)) if SOURCE_DATA_SET else RESULTS
TABLES_DIGEST = dataset.tables_digest(STUDY)
QUESTION_DIGEST = dataset.question_digest(ADVICE_QUESTION, STUDY)
FIGURES = names_for(
    STUDY.config,
    STUDY.node_kind,
    DATA / "tables" / "summary.csv" if SOURCE_DATA_SET else None,
)


pathvars:
    results=str(RESULTS),
    data=str(DATA),


wildcard_constraints:
    strategy="[a-z][a-z0-9-]*",
    workload=r"[a-z][a-z0-9_.-]*(\+[a-z][a-z0-9_.-]*)?",
    replicas=r"\d+",
    repeat=r"\d+",


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
    """One param for each part of a spec: a job is stale when a part changes, and Snakemake names that part.

    The whole spec, for the command line, must not be a reason too, so its function takes `input`: Snakemake does not
    track such params.
    """
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


def deliverables():
    """Every file that a run should produce, with each record, so that a deleted one is noticed."""
    cells = [] if SOURCE_DATA_SET else [*record_files(), *histogram_files()]
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
    """End the run where the folder is a symbolic link; otherwise an empty input."""
    if (folder := Path(*parts)).is_symlink():
        sys.exit(
            f"{folder} is a symbolic link; remove it, or publish under another name"
        )
    return []
