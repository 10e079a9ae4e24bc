"""Documents and ready-made studies for a cluster."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from unit.studies import CONFIG, base_config

from sharebench.model.config.load import load

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "cluster" / "troubleshooting.md"


def named() -> set[str]:
    """Names in the table: test files, tests, and patterns of their names."""
    section = PAGE.read_text().split("## Known problems with GPU sharing")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ")[-1] for line in section.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def known() -> set[str]:
    files = list(TESTS.rglob("test_*.py"))
    functions = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    return {file.stem for file in files} | functions


def test_every_test_named_by_troubleshooting_exists() -> None:
    names = named()
    assert len(names) > 10
    missing = []
    for name in names:
        pattern = re.escape(name).replace("…", ".*")
        if not any(re.fullmatch(pattern, each) for each in known()):
            missing.append(name)
    assert missing == []


TENANT = CONFIG.parent / "scripts" / "tenant" / "workloads"
# Packages in PyTorch's images.
IN_THE_IMAGE = {"torch", "torchvision"}


def frameworks(module: str) -> set[str]:
    """The FRAMEWORKS literal of a workload's module, read without importing it."""
    for each in ast.parse((TENANT / f"{module}.py").read_text()).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "FRAMEWORKS":
            return set(ast.literal_eval(each.value).get("cuda", ()))
    return set()


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_dra"])
def test_the_default_image_runs_the_workloads_of_the_ready_made_config(name: str) -> None:
    config = load(base_config() | yaml.safe_load((CONFIG / f"{name}.yaml").read_text()))
    entries = [config["workload_catalogue"][each] for each in config["workloads"]]
    assert len(entries) == 3
    assert all(frameworks(str(entry.module)) <= IN_THE_IMAGE for entry in entries)
