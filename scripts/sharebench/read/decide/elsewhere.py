"""What a study and further ones of the same kind of GPU have measured, which counts for the advice on the study."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sharebench.core.files import DamagedFile, Refusal, read_json
from sharebench.model.promises import BROKEN
from sharebench.model.strategies import all_strategies, node_strategies
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import StudyConfig, from_json
from sharebench.read.columns import read_table
from sharebench.read.decide.documented import MEASURED, Isolation
from sharebench.read.decide.rows import SummaryRow, summary_rows, tenants_in_memory
from sharebench.read.grouping import group_by

DEVICE_FAULTS = frozenset({"illegal-address", "assert"})
"""Faults of a kernel, which MPS reports to all clients of the server (NVIDIA MPS documentation, error containment)."""
COLUMNS = {
    "isolation": ["strategy", "fault", "n", "failed"],
    "conformance": ["strategy", "replicas", "promise", "measured", "verdict"],
}
"""What is read of these tables."""
NUMBERS = {"n": float, "failed": float, "replicas": int, "measured": float}
"""Those of them that are numbers."""


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
    named = dict(zip(_names(others), ((other, _config(other)) for other in others), strict=True))
    faults, promises = (dict(_tables(kind, root, named, config)) for kind in COLUMNS)
    return Known(measured_faults(faults), _wrong_answers(promises), _memory(named, config, rows))


def _names(folders: Sequence[Path]) -> list[str]:
    """The last two parts of each path, or as many as tell the folders apart."""
    parts = [folder.resolve().parts for folder in folders]
    count = 2
    while len({each[-count:] for each in parts}) < len(parts):
        count += 1
    return ["/".join(each[-count:]) for each in parts]


def _config(folder: Path) -> StudyConfig:
    path = folder / "manifest.json"
    try:
        config = from_json(read_json(path, "config")["config"])
        # Keys of the config that are asked for later.
        node_strategies(config, config["node"])
    except (OSError, DamagedFile, AttributeError, KeyError, TypeError, ValueError):
        raise Refusal(f"{path}: missing or damaged; get that study again, or leave it out") from None
    return config


def _tables(
    kind: str, root: Path, others: Mapping[str, tuple[Path, StudyConfig]], config: StudyConfig
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table of each study that has one, by its name, with the strategies that do the same there as here."""
    ours = node_strategies(config, config["node"])
    for name, (folder, there) in {"": (root, config), **others}.items():
        if (found := table(folder, kind)) is not None:
            same = _same_strategies(node_strategies(there, there["node"]), ours)
            yield name, found[found["strategy"].isin(same)] if name else found


def _same_strategies(theirs: Mapping[str, Strategy], ours: Mapping[str, Strategy]) -> set[str]:
    """Names of the strategies that set the same limits, whatever the access to the GPU."""

    def limits(strategy: Strategy) -> Strategy:
        return strategy.changed(replicas=None, description="", access=None)

    return {name for name, each in theirs.items() if name in ours and limits(each) == limits(ours[name])}


def table(folder: Path, name: str) -> pd.DataFrame | None:
    """A study's table; None where it has none."""
    path = folder / "tables" / f"{name}.csv"
    try:
        if not path.is_file():
            return None
        found = read_table(path, COLUMNS.get(name))
        return found.astype({column: kind for column, kind in NUMBERS.items() if column in COLUMNS.get(name, ())})
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
    others: Mapping[str, tuple[Path, StudyConfig]], config: StudyConfig, rows: Sequence[SummaryRow]
) -> dict[tuple[str, str], tuple[int, str]]:
    by_workload = group_by(rows, lambda row: row.workload)
    unknown = {name for name, own in by_workload.items() if tenants_in_memory(own) is None}
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for name, (folder, there) in others.items() if unknown else ():
        try:
            for key, own in _rows_with_memory(folder, unknown, there, config).items():
                tenants = tenants_in_memory(own) or 0
                if key not in found or tenants < found[key][0]:
                    found[key] = tenants, _measured_in([name])
        except (KeyError, TypeError, ValueError) as error:
            raise Refusal(f"{folder}/tables/summary.csv: damaged ({error}); get that study again") from None
    return found


def _rows_with_memory(
    folder: Path, workloads: set[str], there: StudyConfig, config: StudyConfig
) -> dict[tuple[str, str], list[SummaryRow]]:
    """By strategy and workload, of those that have the same entries there: an MPS tenant takes most without limits."""
    if (summary := table(folder, "summary")) is None:
        return {}
    entries, ours = there["workload_catalogue"], config["workload_catalogue"]
    same = {name for name in workloads & entries.keys() if entries[name] == ours.get(name)}
    same_entries = _same_strategies(all_strategies(there), all_strategies(config))
    summary = summary[summary["workload"].isin(same) & summary["strategy"].isin(same_entries)]
    known_rows = [row for row in summary_rows(summary) if row.tenants_that_fit]
    return group_by(known_rows, lambda row: (row.strategy, row.workload))
