"""Remove what the project's commands made: environment, caches, and results; other people's files stay."""

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = (".venv", ".venv-gpu", ".snakemake", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
ROOMS = ("scripts", "tests", "benchmarks")
RESULTS = (
    *(".sharebench", "calibration", "cells", "compare", "figures", "from", "logs", "nodes", "paper", "paper-print"),
    *("partial", "tables", "archive.zip", "manifest.json", "report.html", "report-of-snakemake.html"),
)


def made(root: Path) -> list[Path]:
    """What is the project's own: a folder under results/ counts when a run has left its state in it."""
    paths = [root / name for name in MADE]
    paths += [cache for room in ROOMS for cache in (root / room).rglob("__pycache__")]
    studies = [folder for folder in (root / "results").glob("*") if (folder / ".sharebench").is_dir()]
    return [path for path in [*paths, *studies, *(root / "results" / name for name in RESULTS)] if path.exists()]


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in made(ROOT):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
