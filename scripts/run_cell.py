"""Measure one cell."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--spec", required=True, help="canonical text of what the cell depends on")
    parser.add_argument("--code", required=True, help="fingerprint of the measuring code")
    parser.add_argument(
        "--calibrations", type=Path, nargs="+", required=True, help="calibration/{workload}.json of all tenants"
    )
    parser.add_argument("--raw", type=Path, required=True, help="raw.json")
    parser.add_argument("--telemetry", type=Path, required=True, help="telemetry.csv")
    a = parser.parse_args()
    return jobs.guarded(a.results, jobs.measure_cell(a.results, a.spec, a.code, a.calibrations, a.raw, a.telemetry))


if __name__ == "__main__":
    sys.exit(main())
