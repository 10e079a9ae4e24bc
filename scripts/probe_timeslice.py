"""Watch who is on the GPU when: the length of a time slice, and what a switch costs."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs
from sharebench.run.timeslice import probe


def main(results: Path, device: Path, tenants: int, seconds: float, out: Path, table: Path) -> None:
    with jobs.of_run(results) as run:
        probe.measure(run, device, tenants, seconds, out, table)


if __name__ == "__main__":
    console.script(main)
