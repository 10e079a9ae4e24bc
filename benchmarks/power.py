"""Smallest ratio that a design can detect: `python benchmarks/power.py`, a second, from the tables in published/h200.

A new study must expect the scatter that the slowdowns of a point had over the repeats of earlier studies. In edition
one, the repeats of a point were either all on one device or each on another. So the scatter within a device and that of
devices and repeats together come from different studies.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from scipy import optimize, stats

PUBLISHED = Path(__file__).resolve().parents[1] / "published" / "h200"
ALONE = ("exclusive", "exclusive-again")
POINT = ["study", "strategy", "workload", "tenant_workload", "replicas"]
PLACE = ["study", "tenant_workload", "device", "block"]
CONTRAST_STRATEGY = "time-slicing"
FIVE_ON_THREE = (2, 2, 1)
POWER, ALPHA = 0.8, 0.05
TESTS = 9
"""Number of primary outcomes in published/edition-two/DESIGN.md, to which Holm's method is applied together."""


@dataclass(frozen=True)
class Scatter:
    """Standard deviation of logs over the repeats of a point, pooled over points, with its degrees of freedom."""

    deviation: float
    degrees: int

    def __str__(self) -> str:
        return f"{100 * self.deviation:.2f} % ({self.degrees})" if self.degrees else ""


def log_latencies(published: Path) -> pd.DataFrame:
    """Log of the mean latency in the valid cells of all studies, one row per cell and workload of its tenants."""
    tables = {path.parents[1].name: pd.read_csv(path) for path in sorted(published.glob("*/tables/cells.csv"))}
    cells = pd.concat([table.assign(study=name) for name, table in tables.items()])
    cells = cells[cells["valid"] & (cells["count"] > 0)].dropna(subset=["latency_mean_seconds"])
    cells["seconds"] = cells["latency_mean_seconds"] * cells["count"]
    sums = cells.groupby([*POINT, "device", "block"])[["seconds", "count"]].sum()
    return (sums["seconds"] / sums["count"]).map(math.log).rename("log").reset_index()


def log_ratios(logs: pd.DataFrame) -> pd.DataFrame:
    """Per shared cell, the log of its `slowdown`, and of its `contrast`: latency under time-slicing over its own."""
    alone = logs[logs["strategy"].isin(ALONE) & (logs["replicas"] == 1)].groupby(PLACE)["log"].mean().rename("alone")
    shared = logs[~logs["strategy"].isin(ALONE)].join(alone, on=PLACE)
    same = [*(key for key in POINT if key != "strategy"), "device", "block"]
    sliced = logs[logs["strategy"] == CONTRAST_STRATEGY].set_index(same)["log"].rename("sliced")
    shared = shared.join(sliced, on=same)
    contrast = (shared["sliced"] - shared["log"]).where(shared["strategy"] != CONTRAST_STRATEGY)
    return shared.assign(slowdown=shared["log"] - shared["alone"], contrast=contrast)


def scatter(rows: pd.DataFrame, column: str, is_one_device: bool) -> Scatter:
    """Scatter of the points that were measured on one device, or on several."""
    points = (
        rows.dropna(subset=[column])
        .groupby(POINT)
        .agg(devices=("device", "nunique"), count=(column, "size"), variance=(column, "var"))
    )
    points = points[((points["devices"] == 1) == is_one_device) & (points["count"] > 1)]
    weights = points["count"] - 1
    degrees = int(weights.sum())
    return Scatter(math.sqrt((points["variance"] * weights).sum() / degrees) if degrees else math.nan, degrees)


def detectable(deviation: float, count: int, alpha: float = ALPHA) -> float:
    """The ratio above 1 that Student's test of `count` logs with this deviation detects with a power of POWER."""
    critical = stats.t.ppf(1 - alpha / 2, count - 1)
    shift = optimize.brentq(lambda each: stats.nct.sf(critical, count - 1, each) - POWER, 0, 50 * critical)
    return math.exp(shift * deviation / math.sqrt(count))


def detectable_on_devices(deviation: float, repeats: Sequence[int], device_share: float) -> float:
    """`detectable` by a t test over the means of devices with these numbers of repeats.

    `deviation` is that of repeats on a device each; `device_share` (0 to 1) of its variance is between devices.
    """
    inverse = sum(1 / count for count in repeats) / len(repeats)
    return detectable(deviation * math.sqrt(device_share + (1 - device_share) * inverse), len(repeats))


def table(rows: pd.DataFrame) -> list[str]:
    """A Markdown table, a line per workload and outcome."""
    lines = [
        "| workload | outcome | SD on one device (df) | on several (df) | 5 on 5 devices | the same, Holm | 5 on 3 |",
        f"|{'---|' * 7}",
    ]
    for workload, group in rows.groupby("tenant_workload"):
        for outcome in ("slowdown", "contrast"):
            one, several = (scatter(group, outcome, is_one) for is_one in (True, False))
            if not (scatters := [each for each in (one, several) if each.degrees]):
                continue
            expected = max(each.deviation for each in scatters)
            ends = (detectable_on_devices(expected, FIVE_ON_THREE, share) for share in (0, 1))
            cells = [
                f"`{workload}`",
                outcome,
                str(one),
                str(several),
                f"{detectable(expected, 5):.3f}",
                f"{detectable(expected, 5, ALPHA / TESTS):.3f}",
                " to ".join(f"{end:.3f}" for end in ends),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print("\n".join(table(log_ratios(log_latencies(PUBLISHED)))))


if __name__ == "__main__":
    main()
