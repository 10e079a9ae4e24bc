"""Run a workload alone on the exclusive device: its capacity, its output, its work per iteration."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs


def main(results: Path, workload: str, spec: str, code: str, device: Path, out: Path) -> None:
    with jobs.of_run(results) as run:
        jobs.calibrate(run, workload, spec, code, device, out)


if __name__ == "__main__":
    console.script(main)
