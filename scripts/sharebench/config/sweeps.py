"""Sweeps: an entry of the workload catalogue with a list in its `load` stands for one workload per value."""

from collections.abc import Iterator
from typing import cast, get_args

from sharebench.config.words import quoted
from sharebench.core.config_catalogues import Load, SweptKey, WorkloadEntry
from sharebench.core.study_config import StudyConfig

KEYS: tuple[SweptKey, ...] = get_args(SweptKey)


def problems(config: StudyConfig) -> Iterator[str]:
    """Entries that no sweep can be made of."""
    for name, entry in config["workload_catalogue"].items():
        lists = [key for key in KEYS if isinstance(entry["load"].get(key), list)]
        if len(lists) > 1:
            yield f"workload_catalogue.{name}.load: {' and '.join(lists)} are both lists; sweep one, keep one number"
        for made in _expand_entry(name, entry):
            if made != name and made in config["workload_catalogue"]:
                yield f"workload_catalogue.{made}: the sweep {name!r} makes a workload of this name; choose another"


def expand(config: StudyConfig) -> StudyConfig:
    """The config with a workload in place of each value of a list; `workloads` may name all of a sweep by its entry."""
    catalogue = {
        made: workload
        for name, entry in config["workload_catalogue"].items()
        for made, workload in _expand_entry(name, entry).items()
    }
    asked = [
        made
        for name in config["workloads"]
        for made in ([name] if name in catalogue else sweep_workloads(catalogue, name) or [name])
    ]
    return {**config, "workload_catalogue": catalogue, "workloads": list(dict.fromkeys(asked))}


def sweep_workloads(catalogue: dict[str, WorkloadEntry], name: str) -> list[str]:
    """The workloads of the sweep of this name; Snakemake sorts the keys of a mapping as text."""
    made = {
        own: entry["sweep"]["value"]
        for own, entry in catalogue.items()
        if entry["sweep"] and entry["sweep"]["of"] == name
    }
    return sorted(made, key=made.__getitem__)


def sweep_hint(catalogue: dict[str, WorkloadEntry], name: str) -> str | None:
    """What to name where one workload is asked for and this is a sweep; None where it is none."""
    made = sweep_workloads(catalogue, name)
    return f"{name!r} is a sweep; name one of its workloads: {quoted(made)}" if made else None


def entry_key(name: str, entry: WorkloadEntry) -> str:
    """The key of an entry where the person wrote it."""
    return f"workload_catalogue.{entry['sweep']['of'] if entry['sweep'] else name}"


def _expand_entry(name: str, entry: WorkloadEntry) -> dict[str, WorkloadEntry]:
    """The workloads that an entry stands for, by name: itself, or one for each value of its list."""
    for by in KEYS:
        if isinstance(values := entry["load"].get(by), list):
            return {
                f"{name}-{by}-{value}": {
                    **entry,
                    "load": cast(Load, entry["load"] | {by: value}),
                    "sweep": {"of": name, "by": by, "value": value},
                }
                for value in values
            }
    return {name: entry}
