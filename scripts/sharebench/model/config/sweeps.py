"""Sweeps: a workload entry with a list in its `load` stands for one workload per value."""

from collections.abc import Iterator
from typing import get_args

from sharebench.model.study_config import StudyConfig
from sharebench.model.traffic import SweptKey
from sharebench.model.words import quoted
from sharebench.model.workload import SweepEntry, Workload

KEYS: tuple[SweptKey, ...] = get_args(SweptKey)


def problems(config: StudyConfig) -> Iterator[tuple[str, str]]:
    """Problems of entries with lists, each with the entry: two lists in one, and names that are taken."""
    for name, entry in config["workload_catalogue"].items():
        key, lists = "workload_catalogue", [key for key in KEYS if isinstance(getattr(entry.load, key), list)]
        if len(lists) > 1:
            yield name, f"{key}.{name}.load: {' and '.join(lists)} are both lists; sweep one, keep one number"
        for workload in _expand_entry(name, entry):
            if workload != name and workload in config["workload_catalogue"]:
                yield name, f"{key}.{workload}: the sweep {name!r} makes a workload of this name; choose another"


def expand(config: StudyConfig) -> StudyConfig:
    """The config with a workload for each value of a list; an entry's name in `workloads` stands for all of them."""
    catalogue: dict[str, Workload] = {}
    for name, entry in config["workload_catalogue"].items():
        catalogue |= _expand_entry(name, entry)

    def named(name: str) -> list[str]:
        return [name] if name in catalogue else sweep_workloads(catalogue, name) or [name]

    workloads = list(dict.fromkeys(each for name in config["workloads"] for each in named(name)))
    expanded: StudyConfig = {**config, "workload_catalogue": catalogue, "workloads": workloads}
    # A faulty SLO was left out.
    if own := config.get("slo", {}).get("workloads"):
        limits = {each: own.get(each, its) for name, its in own.items() for each in named(name)}
        expanded["slo"] = {**config["slo"], "workloads": limits}
    return expanded


def sweep_workloads(catalogue: dict[str, Workload], name: str) -> list[str]:
    """The workloads of the sweep of this name, sorted by value, since Snakemake sorts a mapping's keys as text."""
    values = {
        workload: entry.sweep.value for workload, entry in catalogue.items() if entry.sweep and entry.sweep.of == name
    }
    return sorted(values, key=values.__getitem__)


def sweep_hint(catalogue: dict[str, Workload], name: str) -> str | None:
    """The problem and remedy where a sweep is named in place of one workload; None if it is not a sweep."""
    workloads = sweep_workloads(catalogue, name)
    return f"{name!r} is a sweep; name one of its workloads: {quoted(workloads)}" if workloads else None


def entry_key(name: str, entry: Workload) -> str:
    """The key of the entry that the user wrote."""
    return f"workload_catalogue.{entry.sweep.of if entry.sweep else name}"


def _expand_entry(name: str, entry: Workload) -> dict[str, Workload]:
    """The workloads of an entry by name: itself, or one for each value of its list."""
    for by in KEYS:
        if isinstance(values := getattr(entry.load, by), list):
            named = {f"{name}-{by}-{value}": value for value in values}
            return {
                workload: entry.changed(
                    name=workload, load=entry.load.changed(**{by: value}), sweep=SweepEntry(of=name, by=by, value=value)
                )
                for workload, value in named.items()
            }
    return {name: entry}
