"""Run a workload alone on the exclusive device: its capacity, its output, its work per iteration."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--workload", required=True, help="key of the workload catalogue")
    parser.add_argument("--spec", required=True, help="canonical text of what the calibration depends on")
    parser.add_argument("--code", required=True, help="fingerprint of the measuring code")
    parser.add_argument("--device", type=Path, required=True, help="nodes/device.json")
    parser.add_argument("--out", type=Path, required=True, help="calibration/{workload}.json")
    arguments = parser.parse_args()
    job = jobs.calibrate(
        arguments.results, arguments.workload, arguments.spec, arguments.code, arguments.device, arguments.out
    )
    return jobs.guarded(arguments.results, job)


if __name__ == "__main__":
    sys.exit(main())
