"""Remove what the project's commands made: environment, caches, and results; other people's files stay."""

import argparse
import contextlib
import shutil
import sys
from pathlib import Path

from sharebench.core import run_record
from sharebench.run import ownership

ROOT = Path(__file__).resolve().parents[1]
MADE = (".venv", ".venv-gpu", ".snakemake", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
ROOMS = ("scripts", "tests", "benchmarks")
RESULTS = (
    *(".sharebench", "calibration", "cells", "compare", "figures", "from", "logs", "nodes", "paper"),
    *("partial", "survey", "tables", "archive.zip", "manifest.json", "report.html", "report-of-snakemake.html"),
)


def made(root: Path) -> list[Path]:
    """What is the project's own: a folder under results/ counts when a run has left its state in it."""
    paths = [root / name for name in MADE]
    paths += [cache for room in ROOMS for cache in (root / room).rglob("__pycache__")]
    studies = [folder for folder in (root / "results").glob("*") if (folder / ".sharebench").is_dir()]
    return [path for path in [*paths, *studies, *(root / "results" / name for name in RESULTS)] if path.exists()]


def claim(root: Path, held: contextlib.ExitStack) -> None:
    """Hold the locks of all folders of results. Raises OwnershipError where a run has one."""
    for path in sorted((root / "results").rglob(f"{run_record.STATE_FOLDER}/lock")):
        lock = ownership.take(path)
        if lock is None:
            folder = path.parents[1].relative_to(root)
            raise ownership.OwnershipError(
                f"{folder} is in use by {ownership.holder(path)}; wait for it to end, or stop it"
            )
        held.callback(lock.close)


def clean(root: Path) -> None:
    """Remove what is the project's own. Raises OwnershipError, and removes nothing, while a run uses some of it."""
    with contextlib.ExitStack() as held:
        claim(root, held)
        for path in made(root):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        clean(ROOT)
    except ownership.OwnershipError as error:
        print(f"nothing removed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
