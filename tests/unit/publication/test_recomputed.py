"""The numbers of README and which-strategy follow from the raw records without this project's code."""

import ast
import re
import sys
from pathlib import Path

import pytest
from benchmarks import recompute

pytestmark = pytest.mark.thorough

DOCUMENTS = ("README.md", "docs/which-strategy.md", "published/h200/README.md")


def test_every_number_follows_from_the_raw_records() -> None:
    count, deviations = recompute.find_deviations()
    assert deviations == [] and count > 90


@pytest.mark.parametrize("document", DOCUMENTS)
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
