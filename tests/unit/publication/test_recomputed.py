"""The numbers of README and which-strategy follow from the raw records without this project's code."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import recompute

from sharebench.read.statistics.intervals import Place, log_interval

pytestmark = pytest.mark.thorough

DOCUMENTS = ("README.md", "docs/which-strategy.md", "published/h200/README.md", "docs/findings.md")


def test_every_number_follows_from_the_raw_records() -> None:
    count, deviations = recompute.find_deviations()
    assert deviations == [] and count > 130


def test_a_changed_interval_of_a_finding_is_named(tmp_path: Path) -> None:
    for name in DOCUMENTS:
        text = (recompute.ROOT / name).read_text(encoding="utf-8")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("(1.31 to 1.34) the energy", "(1.31 to 1.35) the energy"))
    _, deviations = recompute.find_deviations(tmp_path)
    assert [line.partition(":")[0] for line in deviations] == ["docs/findings.md, , **With seven tenants an inference"]


@pytest.mark.parametrize("devices", [(2, 2, 2), (3, 1), (1, 1, 1), (2,)])
def test_units_are_those_of_the_tables(devices: tuple[int, ...]) -> None:
    machines = [str(machine) for machine, count in enumerate(devices) for _ in range(count)]
    for seed in range(20):
        values = np.random.default_rng(seed).lognormal(0, 0.01, len(machines)).tolist()
        places = [Place(str(device), machine) for device, machine in enumerate(machines)]
        cells = [{"device": place.device, "host": {"machine": place.machine}} for place in places]
        of_cell = dict(zip((place.device for place in places), values, strict=True))
        found = recompute.interval(cells, lambda cell, of_cell=of_cell: of_cell[cell["device"]])
        expected = log_interval(values, places)
        assert found == pytest.approx((expected.value, expected.low, expected.high))


@pytest.mark.parametrize("document", DOCUMENTS[:-1])
def test_a_changed_digit_and_an_unknown_number_are_named(tmp_path: Path, document: str) -> None:
    for name in DOCUMENTS:
        text = (recompute.ROOT / name).read_text(encoding="utf-8")
        if name == document:
            (found, block) = next(
                (each, each[2]) for each in recompute.BLOCK.finditer(text) if (name, each[1]) in _blocks()
            )
            last = re.findall(r"\d+(?:\.\d+)?", recompute.LABELS.sub("", block))[-1]
            changed = block.replace(last, f"{float(last) * 1.5:g}") + "- another 42\n"
            text = text[: found.start(2)] + changed + text[found.end(2) :]
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    _, deviations = recompute.find_deviations(tmp_path)
    assert all(line.startswith(document) for line in deviations)
    assert any("printed" in line for line in deviations)
    assert any("nothing recomputes ['42']" in line for line in deviations)


def _blocks() -> set[tuple[str, str]]:
    return {(document, block) for document, block, _ in recompute.expected_numbers()}


def test_the_recomputation_shares_no_code_with_this_project() -> None:
    tree = ast.parse(Path(recompute.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= {*sys.stdlib_module_names, "numpy", "scipy", "yaml"}
