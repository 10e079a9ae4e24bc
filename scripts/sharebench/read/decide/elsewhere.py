"""What a study and further ones of the same kind of GPU have measured, which counts for the advice on the study."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sharebench.core.files import Refusal, read_json
from sharebench.model.promises import BROKEN
from sharebench.model.study_config import StudyConfig, from_json
from sharebench.read.cells.rows import group_by
from sharebench.read.columns import read_table
from sharebench.read.decide.documented import MEASURED, Isolation
from sharebench.read.decide.rows import SummaryRow, summary_rows, tenants_in_memory

DEVICE_FAULTS = frozenset({"illegal-address", "assert"})
"""Faults of a kernel, which MPS reports to all clients of the server (NVIDIA MPS documentation, error containment)."""
COLUMNS = {
    "isolation": ["strategy", "fault", "n", "failed"],
    "conformance": ["strategy", "replicas", "promise", "measured", "verdict"],
}
"""What is read of these tables."""


@dataclass(frozen=True)
class Known:
    faults: Mapping[str, Isolation]
    """Measured fault isolation by strategy."""
    wrong_answers: Mapping[tuple[str, int], str]
    """What was wrong, by strategy and number of tenants."""
    memory: Mapping[tuple[str, str], tuple[int, str]]
    """Tenants that the memory holds by strategy and workload, and which study found it; only of workloads of which the
    study itself does not know."""


def known(root: Path, others: Sequence[Path], config: StudyConfig, rows: Sequence[SummaryRow]) -> Known:
    """What the study at `root` and `others` know. Raises Refusal for a table that is none."""
    studies = {"": root, **{f"{other.resolve().parent.name}/{other.resolve().name}": other for other in others}}
    faults, promises = (
        {name: found for name, folder in studies.items() if (found := table(folder, kind)) is not None}
        for kind in COLUMNS
    )
    return Known(measured_faults(faults), _wrong_answers(promises), _memory(studies, config, rows))


def table(folder: Path, name: str) -> pd.DataFrame | None:
    """A study's table; None where it has none."""
    path = folder / "tables" / f"{name}.csv"
    try:
        return read_table(path, COLUMNS.get(name)) if path.is_file() else None
    except ValueError as error:
        raise Refusal(f"{path}: not a table ({error}); get that study again, or remove its folder") from None


def _measured_in(studies: Iterable[str]) -> str:
    """The basis of a fact; the study itself has no name."""
    named = ", ".join(filter(None, dict.fromkeys(studies)))
    return f"{MEASURED} in {named}" if named else MEASURED


def measured_faults(tables: Mapping[str, pd.DataFrame]) -> dict[str, Isolation]:
    """Measured fault isolation by strategy, from tables/isolation.csv of studies by name: whether neighbours survived.

    Survival proves isolation only if one of DEVICE_FAULTS was tried: a process that runs out of memory or is killed
    harms no other context. Without one there is no entry, unless a neighbour failed.
    """
    if not tables:
        return {}
    all_rows = pd.concat([each.assign(study=name) for name, each in tables.items()], ignore_index=True)
    claims: dict[str, Isolation] = {}
    for strategy, rows in all_rows[all_rows["n"] > 0].groupby("strategy", sort=False):
        fatal = rows["failed"] > 0
        if not fatal.any() and DEVICE_FAULTS.isdisjoint(rows["fault"]):
            continue
        telling = rows[fatal] if fatal.any() else rows
        tried = ", ".join(dict.fromkeys(telling["fault"]))
        counted = f"{telling['failed'].sum():.0f} of {telling['n'].sum():.0f} neighbours died after {tried}"
        claims[str(strategy)] = Isolation(not fatal.any(), _measured_in(telling["study"]), counted)
    return claims


def _wrong_answers(tables: Mapping[str, pd.DataFrame]) -> dict[tuple[str, int], str]:
    """From tables/conformance.csv of studies by name."""
    found = [
        ((str(row["strategy"]), int(row["replicas"])), name, float(row["measured"]))
        for name, each in tables.items()
        for row in each[(each["promise"] == "answers") & (each["verdict"] == BROKEN)].to_dict("records")
    ]
    return {
        key: f"of {key[1]} tenants {sum(count for *_, count in those):g} answers were wrong, "
        f"{_measured_in(name for _, name, _ in those)}"
        for key, those in group_by(found, lambda each: each[0]).items()
    }


def _memory(
    studies: Mapping[str, Path], config: StudyConfig, rows: Sequence[SummaryRow]
) -> dict[tuple[str, str], tuple[int, str]]:
    by_workload = group_by(rows, lambda row: row.workload)
    unknown = {name for name, own in by_workload.items() if tenants_in_memory(own) is None}
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for name, folder in studies.items() if unknown else ():
        for key, tenants in _memory_of(folder, unknown, config) if name else ():
            if key not in found or tenants < found[key][0]:
                found[key] = tenants, _measured_in([name])
    return found


def _memory_of(folder: Path, workloads: set[str], config: StudyConfig) -> Iterator[tuple[tuple[str, str], int]]:
    """By strategy and workload, of the workloads that are the same there."""
    summary, path = table(folder, "summary"), folder / "manifest.json"
    if summary is None or not path.is_file():
        return
    there = from_json(read_json(path, "config")["config"])["workload_catalogue"]
    same = {name for name in workloads & there.keys() if there[name] == config["workload_catalogue"].get(name)}
    known_rows = [row for row in summary_rows(summary[summary["workload"].isin(same)]) if row.tenants_that_fit]
    for key, own in group_by(known_rows, lambda row: (row.strategy, row.workload)).items():
        yield key, min(row.tenants_that_fit or 0 for row in own)
