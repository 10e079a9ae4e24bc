"""Export the latency histograms of one strategy and workload as histograms.csv."""

import sys
from pathlib import Path

from sharebench.analysis.tables.histograms import export_histograms
from sharebench.core import console
from sharebench.records.record import RecordError


def main(raw: list[Path], out: Path, source: str = "tenants") -> None:
    try:
        export_histograms(raw, out, source)
    except RecordError as error:
        damaged = str(error).partition(": ")[0]
        sys.exit(f"{error}; re-measure it: snakemake --forcerun {damaged} (with the options of this run)")


if __name__ == "__main__":
    console.script(main)
