"""Watch who is on the GPU when: the length of a time slice, and what a switch costs."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs
from sharebench.run.timeslice import probe


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--device", type=Path, required=True, help="nodes/device.json")
    parser.add_argument("--tenants", type=int, required=True, help="how many watch at the same time")
    parser.add_argument("--seconds", type=float, required=True, help="how long")
    parser.add_argument("--out", type=Path, required=True, help="nodes/timeslice.json")
    parser.add_argument("--table", type=Path, required=True, help="tables/timeslice.csv")
    given = parser.parse_args()
    job = probe.job(given.results, given.device, given.tenants, given.seconds, given.out, given.table)
    return jobs.guarded(given.results, job)


if __name__ == "__main__":
    sys.exit(main())
