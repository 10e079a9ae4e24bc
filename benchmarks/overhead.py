"""Time that a cell takes beyond its warm-up and window, in parts, and time that a switch of the node takes.

    python benchmarks/overhead.py [RESULTS]

Reads the tables of a finished study, for example of a cluster; without one, runs a small study on the CPU stand-in. A
cell in a cluster should take no more than 6 s beyond warm-up and window.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
PARTS = ["all_ready_seconds", "steady_seconds", "window_wait_seconds", "removal_seconds", "overhead_seconds"]
BUDGET_SECONDS = 6.0


def small_study(folder: Path) -> Path:
    """Measure the quick study in this folder; returns its results."""
    command = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    command += ["--profile", str(ROOT / "profiles" / "default"), "--configfile", str(ROOT / "config" / "quick.yaml")]
    subprocess.run([*command, "--config", "node=cpu"], cwd=folder, check=True, capture_output=True)
    return folder / "results" / "quick"


def show(results: Path) -> None:
    """Print both tables."""
    table = pd.read_csv(results / "tables" / "startup.csv")
    keys = ["strategy", "workload", "replicas"]
    print("per cell, in seconds; all_ready has the warm-up in it:")
    print(table[[*keys, *PARTS]].round(2).to_string(index=False))
    worst = table["overhead_seconds"].max()
    print(f"largest overhead: {worst:.2f} s (meant to be at most {BUDGET_SECONDS:g} s in a cluster)")
    print("switches:")
    columns = ["strategy", "switch_in_seconds", "switch_in_n", "switch_out_seconds"]
    print(table[columns].drop_duplicates("strategy").round(2).to_string(index=False))


def main() -> None:
    if len(sys.argv) > 1:
        show(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        show(small_study(Path(folder)))


if __name__ == "__main__":
    main()
