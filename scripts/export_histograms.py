"""Export the latency histograms of one strategy and workload as histograms.csv."""

import argparse
import sys
from pathlib import Path

from sharebench.analysis.tables.histograms import SOURCES, export_histograms
from sharebench.core import console
from sharebench.records.record import RecordError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="histograms.csv to write")
    parser.add_argument("--source", choices=SOURCES, default="tenants", help="whose histograms")
    parser.add_argument("raw", type=Path, nargs="+", help="raw.json of each cell")
    arguments = parser.parse_args()
    try:
        export_histograms(arguments.raw, arguments.out, arguments.source)
    except RecordError as error:
        damaged = str(error).partition(": ")[0]
        sys.exit(f"{error}; measure it again: snakemake --forcerun {damaged} (with the options of this run)")


if __name__ == "__main__":
    console.script(main)
