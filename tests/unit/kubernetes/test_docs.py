"""docs/cluster/troubleshooting.md names the tests that hold its promises; they exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "cluster" / "troubleshooting.md"


def named() -> set[str]:
    """What the table names: test files, tests, and the ends or beginnings of their names."""
    section = PAGE.read_text().split("## Known problems with GPU sharing")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ")[-1] for line in section.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def known() -> set[str]:
    files = list(TESTS.rglob("test_*.py"))
    functions = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    return {file.stem for file in files} | functions


def test_every_test_that_the_page_names_exists() -> None:
    names = named()
    assert len(names) > 20
    missing = []
    for name in names:
        pattern = re.escape(name).replace("…", ".*")
        if not any(re.fullmatch(pattern, each) for each in known()):
            missing.append(name)
    assert missing == []
