"""The numbers of README, which-strategy, findings and edition two follow from the raw records without this code."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import recompute
from benchmarks.recomputed import edition, records

from sharebench.read.statistics.intervals import Place, log_interval

pytestmark = pytest.mark.thorough

BLOCKS = ("README.md", "docs/which-strategy.md", "published/h200/README.md")
DOCUMENTS = (*BLOCKS, "docs/findings.md", "published/h100/README.md", "published/h200-two/README.md")


def test_every_number_follows_from_the_raw_records() -> None:
    count, deviations = recompute.find_deviations()
    assert deviations == [] and count > 800


@pytest.mark.parametrize(
    ("document", "printed", "changed", "named"),
    [
        (
            "docs/findings.md",
            "(1.31 to 1.34) the energy",
            "(1.31 to 1.35) the energy",
            "docs/findings.md, , **With seven tenants an inference",
        ),
        (
            "published/h100/README.md",
            "within 5 % of 2.93 |",
            "within 5 % of 2.94 |",
            "published/h100/README.md, primary-outcomes, 1, claim",
        ),
        ("published/h100/README.md", "| core | ", "| core | 1", "published/h100/README.md, facts, core, cells"),
        ("published/h200-two/README.md", "| 2 to 3 |", "| 2 |", "published/h200-two/README.md, facts, core, repeats"),
        (
            "published/h200-two/README.md",
            "1.26 (1.19 to 1.34)",
            "1.26 (1.19 to 1.35)",
            "published/h200-two/README.md, primary-outcomes, 4, now",
        ),
        (
            "published/h200-two/README.md",
            "| not tested: the limit is of this product |",
            "| holds so far |",
            "published/h200-two/README.md, primary-outcomes, 1, verdict",
        ),
        (
            "published/h200-two/README.md",
            "1 of 32 are larger",
            "2 of 32 are larger",
            "published/h200-two/README.md, editions",
        ),
        (
            "published/h200-two/README.md",
            "`not-measured` 6",
            "`not-measured` 5",
            "published/h200-two/README.md, exclusions, conformance, no measurement",
        ),
    ],
)
def test_a_changed_number_is_named(tmp_path: Path, document: str, printed: str, changed: str, named: str) -> None:
    copy_documents(tmp_path)
    text = (tmp_path / document).read_text(encoding="utf-8")
    assert printed in text
    (tmp_path / document).write_text(text.replace(printed, changed, 1), encoding="utf-8")
    _, deviations = recompute.find_deviations(tmp_path)
    assert [line.partition(":")[0] for line in deviations] == [named]


def test_a_row_too_many_is_named(tmp_path: Path) -> None:
    copy_documents(tmp_path)
    document = tmp_path / "published/h100/README.md"
    text = document.read_text(encoding="utf-8")
    document.write_text(text.replace("| sentinel |", "| another | 1 | | | | | | |\n| sentinel |", 1), encoding="utf-8")
    _, deviations = recompute.find_deviations(tmp_path)
    assert len(deviations) == 1 and "facts: rows ['another', " in deviations[0]


def copy_documents(root: Path) -> None:
    for name in DOCUMENTS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((recompute.ROOT / name).read_bytes())


@pytest.mark.parametrize("devices", [(2, 2, 2), (3, 1), (1, 1, 1), (2,)])
def test_units_are_those_of_the_tables(devices: tuple[int, ...]) -> None:
    machines = [str(machine) for machine, count in enumerate(devices) for _ in range(count)]
    for seed in range(20):
        values = np.random.default_rng(seed).lognormal(0, 0.01, len(machines)).tolist()
        places = [Place(str(device), machine) for device, machine in enumerate(machines)]
        cells = [{"device": place.device, "host": {"machine": place.machine}} for place in places]
        of_cell = dict(zip((place.device for place in places), values, strict=True))
        found = records.interval(cells, lambda cell, of_cell=of_cell: of_cell[cell["device"]])
        expected = log_interval(values, places)
        assert found == pytest.approx((expected.value, expected.low, expected.high))


@pytest.mark.parametrize("document", BLOCKS)
def test_a_changed_digit_and_an_unknown_number_are_named(tmp_path: Path, document: str) -> None:
    copy_documents(tmp_path)
    text = (tmp_path / document).read_text(encoding="utf-8")
    found = next(each for each in recompute.BLOCK.finditer(text) if (document, each[1]) in _blocks())
    last = re.findall(r"\d+(?:\.\d+)?", recompute.LABELS.sub("", found[2]))[-1]
    changed = found[2].replace(last, f"{float(last) * 1.5:g}") + "- another 42\n"
    text = text[: found.start(2)] + changed + text[found.end(2) :]
    (tmp_path / document).write_text(text, encoding="utf-8")
    _, deviations = recompute.find_deviations(tmp_path)
    assert all(line.startswith(document) for line in deviations)
    assert any("printed" in line for line in deviations)
    assert any("nothing recomputes ['42']" in line for line in deviations)


def _blocks() -> set[tuple[str, str]]:
    return {(document, block) for document, block, _ in recompute.expected_numbers()}


def test_the_recomputation_shares_no_code_with_this_project() -> None:
    imported: set[str] = set()
    for path in (Path(recompute.__file__), *Path(records.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {name for name in imported if name.startswith("benchmarks.recomputed")}
    assert {name.split(".")[0] for name in imported - own} <= {*sys.stdlib_module_names, "numpy", "scipy", "yaml"}


@pytest.mark.parametrize(("machines", "ends"), [(1, 0), (2, 2), (5, 2)])
def test_an_outcome_has_an_interval_where_something_tells_the_variance(
    monkeypatch: pytest.MonkeyPatch, machines: int, ends: int
) -> None:
    """The third visit brings one machine, whose rows say nothing about how far machines differ."""
    tenant = {"workload": "large", "sum_seconds": 1.0}
    cells = [
        {"strategy": strategy, "workload": "large", "replicas": 3, "block": 1, "valid": True, "device": "a"}
        | {"host": {"machine": str(machine)}, "tenants": [{**tenant, "count": rate + machine % 3}]}
        for machine in range(machines)
        for strategy, rate in (("time-slicing", 100), ("mps", 200), ("mps-limited", 150))
    ]
    monkeypatch.setattr(edition, "read_cells", lambda _: cells)
    sides = {
        side: {"strategy": strategy, "workload": "large", "replicas": 3}
        for side, strategy in (("over", "time-slicing"), ("under", "mps"))
    }
    entry = {"outcome": 4, "study": "llm", "unit": "machine", "claim": "above", "limit": 1.1, **sides}
    test = edition.test_outcome(entry, "h100/llm")
    assert test and test.units == machines and len(test.value) == 1 + ends
    assert test.value[0] == pytest.approx(2, rel=0.02) and (test.p is None) == (not ends)
    assert edition.verdict(entry, test, 0.01, 1.0, is_final=True) == ("holds" if ends else "no interval")


@pytest.mark.parametrize(
    ("claim", "ratio", "p", "adjusted", "contrary", "expected"),
    [
        ("above", 2, 0.01, 0.04, 0.04, "holds"),
        ("above", 2, 0.01, 0.06, 0.04, "not shown, holds without the correction"),
        ("above", 0.5, 0.01, 0.04, 0.06, "not shown"),
        ("above", 0.5, 0.01, 0.04, 0.04, "refuted"),
        ("not above", 2, 0.01, 0.04, 0.04, "refuted"),
        ("not above", 0.5, 0.2, 0.9, 0.9, "not refuted"),
        ("within", 1, 0.8, 1, 0.4, "not shown"),
        ("within", 2, 0.999, 1, 0.01, "refuted"),
    ],
)
def test_only_what_a_test_shows_is_refuted(
    claim: str, ratio: float, p: float, adjusted: float, contrary: float, expected: str
) -> None:
    test = edition.Test((ratio, ratio, ratio), 1.0, p, 3, is_median=False, is_tested=True)
    verdicts = [edition.verdict({"claim": claim}, test, adjusted, contrary, is_final) for is_final in (True, False)]
    assert verdicts == [expected, f"{expected} so far"]


def test_what_is_not_tested_leaves_the_correction_of_the_others_alone() -> None:
    untested = edition.Test((1.0, 1.0, 1.0), 1.0, None, 3, is_median=False, is_tested=False)
    assert [edition.contrary_p({"claim": "within"}, test) for test in (None, untested)] == [1, 1]
    assert "not tested" in edition.verdict({"claim": "within"}, untested, 1.0, 1.0, is_final=False)
