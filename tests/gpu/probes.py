"""Time-slice probes in visits to a GPU: one for each number of tenants, archived and joined with the cells."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.core.files import read_json
from sharebench.model.records.references import device_identity

TENANTS = (2, 3, 7)
SECONDS = 120
"""Approximate duration of all probes: three strategies each, with processes to start."""
FILES = ("nodes/timeslice.json", "tables/timeslice.csv")
"""Files in a results folder that `snakemake measure_timeslice` wrote."""


def folder(now: Path, tenants: int) -> Path:
    """The folder of a visit's probe with that number of tenants."""
    return now / f"probe-{tenants}"


def missing(now: Path) -> list[int]:
    """The numbers of tenants that this visit has not probed yet."""
    return [tenants for tenants in TENANTS if not all((folder(now, tenants) / name).is_file() for name in FILES)]


def keep(results: Path, now: Path, tenants: int) -> None:
    """Move a probe out of the results folder, to make room for the next one."""
    for name in FILES:
        target = folder(now, tenants) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (results / name).rename(target)


def files(now: Path) -> Iterator[tuple[str, Path]]:
    """The files of a visit's probes, with their names in the archive."""
    for tenants in sorted(set(TENANTS) - set(missing(now))):
        for name in FILES:
            path = folder(now, tenants) / name
            yield path.relative_to(now).as_posix(), path


def table(visits: Iterable[Path]) -> pd.DataFrame:
    """The results of some visits' probes, a row for each strategy; lengths are blank where no run ended."""
    found = []
    for visit in visits:
        for path in sorted(visit.glob(f"probe-*/{FILES[0]}")):
            probe = read_json(path)
            found += [
                {"device": device_identity(probe["node"]), "tenants": probe["tenants"], "strategy": name} | _row(seen)
                for name, seen in probe["strategies"].items()
                if not seen["infeasible"]
            ]
    return pd.DataFrame(found).sort_values(["device", "strategy", "tenants"]) if found else pd.DataFrame()


def _row(seen: Mapping[str, Any]) -> dict[str, float | None]:
    row: dict[str, float | None] = {key: seen[key] for key in ("tenants_on_device_mean", "idle_ratio", "overlap_ratio")}
    for kind in ("run", "switch"):
        row |= {f"{kind}_{key}": (seen[kind] or {}).get(key) for key in ("count", "p5_us", "p50_us", "p95_us")}
    return row
