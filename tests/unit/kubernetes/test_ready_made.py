"""The ready-made studies of a cluster."""

from __future__ import annotations

import ast

import pytest
import yaml
from unit.studies import CONFIG, files

from sharebench.config.load import load

TENANT = CONFIG.parent / "scripts" / "tenant" / "workloads"
# What PyTorch's images have.
IN_THE_IMAGE = {"torch", "torchvision"}


def frameworks(module: str) -> set[str]:
    """The literal of a workload's module, without importing what it names."""
    for each in ast.parse((TENANT / f"{module}.py").read_text()).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "FRAMEWORKS":
            return set(ast.literal_eval(each.value).get("cuda", ()))
    return set()


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_dra"])
def test_the_default_image_runs_workloads_that_tell_strategies_apart(name: str) -> None:
    config = load(files() | yaml.safe_load((CONFIG / f"{name}.yaml").read_text()))
    entries = [config["workload_catalogue"][each] for each in config["workloads"]]
    assert len(entries) == 3
    assert all(frameworks(entry["module"]) <= IN_THE_IMAGE for entry in entries)
    assert {entry["class"] for entry in entries} == {"inference-heavy", "small-batch", "gpu-intensive"}
