"""The lengths of a time-slice that visits to a GPU probed, one probe for each number of tenants."""

from dataclasses import dataclass
from pathlib import Path

from publication.numbers import Number
from sharebench.read.columns import read_table

FILE = Path("visits") / "probes.csv"


@dataclass(frozen=True)
class Slice:
    """Medians of the runs on the device and of the switches between them, with their 5th and 95th percentiles."""

    device: str
    tenants: int
    runs: int
    slice_ms: Number
    switch_us: Number


def read_slices(publication: Path) -> list[Slice]:
    """The probes under time-slicing, by device and number of tenants; none without a file."""
    path = publication / FILE
    if not path.is_file():
        return []
    table = read_table(path)
    found = []
    for row in table[(table["strategy"] == "time-slicing") & table["run_count"].notna()].to_dict("records"):
        run, switch = ([float(row[f"{kind}_{end}_us"]) for end in ("p50", "p5", "p95")] for kind in ("run", "switch"))
        tenants, count = int(row["tenants"]), int(row["run_count"])
        found.append(Slice(str(row["device"]), tenants, count, Number(*run).scaled(1e-3), Number(*switch)))
    return found
