"""Measure one cell."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs


def main(results: Path, spec: str, code: str, calibrations: list[Path], raw: Path, telemetry: Path) -> None:
    with jobs.of_run(results) as run:
        jobs.measure_cell(run, spec, code, calibrations, raw, telemetry)


if __name__ == "__main__":
    console.script(main)
