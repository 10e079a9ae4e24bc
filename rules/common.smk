# From the config to the cells, and what the rules need to know about them. No rules here.
import sys

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from sharebench.config import load as configuration
from sharebench.core import fingerprint as code
from sharebench.datasets import dataset
from sharebench.figures.catalogue import names_for
from sharebench.core.files import SCRIPTS
from sharebench.study.open_study import open_study
from sharebench.study.cells import canonical_json, cell_from_path
from sharebench.core.spec import SPEC_KEYS, describe_part
from sharebench.core.study_config import has_jobs, has_streams, uses_several_devices
from sharebench.core.prometheus_options import has_prometheus

if not {"{", "}"}.isdisjoint(workflow.basedir):
    sys.exit(
        f"this checkout is in {workflow.basedir}, and Snakemake takes a brace for a wildcard; move it elsewhere"
    )
# The rules' `conda:` names the packages that a job needs, which the linter asks for. Snakemake itself imports them to
# read these files, so a job has them from the interpreter that runs it.
if is_deployment_asked_for():
    sys.exit(
        "--software-deployment-method: jobs run with the interpreter that runs snakemake; leave it out, and make that "
        "one's environment with `make install`, or with conda: conda env create --file envs/sharebench.yaml"
    )

try:
    configuration.check_files(config_files())
    STUDY = open_study(config)
    ASKED, FROM = STUDY.config, STUDY.config["from"]
    if FROM:
        dataset.refuse_ignored(config_of_command())
        STUDY = dataset.open_for_rebuild(Path(FROM))
        dataset.check_complete(STUDY)
    # What the command line and its config files say, with the defaults too.
    QUESTION = dataset.resolve_question(
        ASKED, config_given(), config_of_command(), STUDY
    )
    STUDY = dataset.apply_question(STUDY, QUESTION)
    NOT_SHOWN = dataset.excluded_cells_note(STUDY)
except (configuration.ConfigError, dataset.DataSetError) as error:
    sys.exit(str(error))

config = STUDY.config
# Params of every rule. A Path is not tracked as one: another interpreter invalidates nothing by its name.
JOB = {"python": Path(sys.executable), "script": SCRIPTS / "job.py"}
RESULTS = dataset.results_root(STUDY.config)
DATA = dataset.verified_folder(Path(FROM)) if FROM else RESULTS
FIGURES = names_for(
    STUDY.config, STUDY.node_kind, DATA / "tables" / "summary.csv" if FROM else None
)


pathvars:
    results=str(RESULTS),
    data=str(DATA),
    cell="<results>/cells/{strategy}/{workload}/n{replicas}/r{repeat}",


wildcard_constraints:
    strategy="[a-z][a-z0-9-]*",
    workload=r"[a-z][a-z0-9_.-]*(\+[a-z][a-z0-9_.-]*)?",
    replicas=r"\d+",
    repeat=r"\d+",


def the_cell(wildcards):
    """The cell that a job's wildcards name."""
    return cell_from_path(
        f"cells/{wildcards.strategy}/{wildcards.workload}/n{wildcards.replicas}/r{wildcards.repeat}/"
    )


def cell_spec(wildcards):
    return STUDY.spec(the_cell(wildcards))


def calibration_spec(wildcards):
    return STUDY.calibration_spec(wildcards.workload)


def parts(spec):
    """Params of a spec, one for each part: a job is stale when one changes, and that one is the reason shown.

    The whole spec, for the command line, must not be a reason too: Snakemake forgets what a function makes of `input`.
    """
    return {
        name: lambda wildcards, name=name: describe_part(spec(wildcards), name)
        for name in SPEC_KEYS
    }


def cell_code(wildcards):
    return STUDY.code(wildcards.workload)


def cell_calibrations(wildcards):
    """What a cell refers to: the calibration of each workload that its tenants run, if it has one."""
    return [
        f"<results>/calibration/{name}.json"
        for name in STUDY.calibrated_workloads(the_cell(wildcards))
    ]


def cell_rank(wildcards):
    return STUDY.rank(the_cell(wildcards))


def strategy_rank(wildcards):
    if uses_several_devices(STUDY.config, STUDY.node_kind) and STUDY.order == "blocks":
        # Before all cells, so that no device waits for another to set a strategy up.
        return len(STUDY.cells) + 2
    return STUDY.strategy_rank(wildcards.strategy)


def raw_files(strategy=None, workload=None):
    """The records of all cells, or of one strategy and workload."""
    wanted = {(strategy, workload)} if strategy else set(STUDY.strategy_workload_pairs())
    return [
        DATA / cell.raw
        for cell in STUDY.cells
        if (cell.strategy, cell.workload) in wanted
    ]


def exports():
    """The histograms of all valid cells."""
    return [
        DATA / f"cells/{strategy}/{workload}/histograms.csv"
        for strategy, workload in STUDY.strategy_workload_pairs()
    ]


def deliverables():
    """Every file that a run is for, each record included, so that a deleted one is noticed."""
    cells = [] if FROM else [*raw_files(), *exports()]
    tables = [*rules.aggregate.output, *rules.decide.output]
    return [*cells, *tables, *rules.figures.output, RESULTS / "report.html"]


def presentation():
    """What tables, figures and report show, besides the records: text for their params."""
    return canonical_json(
        {
            "cells": len(STUDY.cells),
            "not_shown": NOT_SHOWN,
            "catalogue": list(STUDY.strategies),
        }
    )


def refuse_link(*parts):
    """No input; ends the run where the folder of these parts is a symbolic link."""
    if (folder := Path(*parts)).is_symlink():
        sys.exit(
            f"{folder} is a symbolic link; remove it, or publish under another name"
        )
    return []
