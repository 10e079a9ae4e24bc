"""Studies for tests: the default config with a few keys changed."""

import copy
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from snakemake.utils import update_config

from sharebench.model import workload_modules
from sharebench.model.config.load import ConfigError, load
from sharebench.model.question import MARGIN_PERCENT, Question, Slo
from sharebench.study.cells import WholePlot
from sharebench.study.open_study import open_study
from sharebench.study.study import Study

CONFIG = Path(__file__).parents[2] / "config"
S = "strategy_catalogue"
W = "workload_catalogue"
SIMULATED = {"node": "simulated"}
NO_SLO: Slo = {"latency_ms": None, "ttft_ms": None, "itl_ms": None, "tpot_ms": None, "workloads": {}}
QUESTION: Question = {
    "slo": NO_SLO,
    "tenants": None,
    "isolation": "none",
    "price_per_hour": None,
    "margin_percent": MARGIN_PERCENT,
    "deploy": "auto",
    "one_process": False,
}
"""A question with every default."""
MIXED: dict[str, Any] = {
    f"{W}.both.tenants": ["matmul", "detector", "detector"],
    "strategies": ["mps", "mig"],
    "repeats": 2,
}


@cache
def base_config() -> dict[str, Any]:
    """The three config files that the Snakefile loads, merged."""
    merged: dict[str, Any] = {}
    for name in ("strategies", "workloads", "config"):
        update_config(merged, yaml.safe_load((CONFIG / f"{name}.yaml").read_text()))
    return merged


def config_with(changes: dict[str, Any]) -> dict[str, Any]:
    """The default config on the CPU stand-in, with other values at these dotted keys."""
    config = copy.deepcopy(base_config()) | {"node": "cpu"}
    for key, value in changes.items():
        *outer, last = key.split(".")
        section = config
        for part in outer:
            section = section.setdefault(part, {})
        section[last] = value
    return config


def study_with(changes: dict[str, Any]) -> Study:
    """The study of the default config with these changes."""
    return Study(load(config_with(changes)))


def simulated(dotted: dict[str, Any] | None = None, **keys: Any) -> Study:
    """The default study on the simulated node with these keys changed, without A/A control by default."""
    return study_with(SIMULATED | {"null_cells": False} | (dotted or {}) | keys)


def whole_plots(of_study: Study) -> list[WholePlot]:
    """The whole plots in order, one for each run of cells that share it."""
    return [plot for plot, _ in groupby(of_study.cells, key=of_study.plot)]


def refusal_line(changes: dict[str, Any]) -> str:
    """The error line of the default config with these changes, where only onnxruntime is installed."""

    def installed(name: str) -> object | None:
        return object() if name == "onnxruntime" else None

    with mock.patch.object(workload_modules, "find_spec", installed), pytest.raises(ConfigError) as caught:
        open_study(config_with(changes))
    return str(caught.value)
