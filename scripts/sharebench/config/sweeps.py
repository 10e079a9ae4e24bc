"""Sweeps: an entry of the workload catalogue with a list in its `load` stands for one workload per value."""

from collections.abc import Iterator
from typing import get_args

from sharebench.config.catalogue_models import Sweep, Workload
from sharebench.config.models import Config
from sharebench.config.words import shown
from sharebench.core.study_config import SweptKey

KEYS: tuple[SweptKey, ...] = get_args(SweptKey)


def problems(config: Config) -> Iterator[str]:
    """Entries that no sweep can be made of."""
    for name, entry in config.workload_catalogue.items():
        lists = [key for key in KEYS if isinstance(getattr(entry.load, key), list)]
        if len(lists) > 1:
            yield f"workload_catalogue.{name}.load: {' and '.join(lists)} are both lists; sweep one, keep one number"
        for made in _workloads(name, entry):
            if made != name and made in config.workload_catalogue:
                yield f"workload_catalogue.{made}: the sweep {name!r} makes a workload of this name; choose another"


def expanded(config: Config) -> Config:
    """The config with a workload in place of each value of a list; `workloads` may name all of a sweep by its entry."""
    catalogue = {
        made: workload
        for name, entry in config.workload_catalogue.items()
        for made, workload in _workloads(name, entry).items()
    }
    asked = [
        made
        for name in config.workloads
        for made in ([name] if name in catalogue else of_sweep(catalogue, name) or [name])
    ]
    update = {"workload_catalogue": catalogue, "workloads": list(dict.fromkeys(asked))}
    return config.model_copy(update=update)


def of_sweep(catalogue: dict[str, Workload], name: str) -> list[str]:
    """The workloads of the sweep of this name; Snakemake sorts the keys of a mapping as text."""
    made = {own: entry.sweep.value for own, entry in catalogue.items() if entry.sweep and entry.sweep.of == name}
    return sorted(made, key=made.__getitem__)


def named(catalogue: dict[str, Workload], name: str) -> str | None:
    """What to name where one workload is asked for and this is a sweep; None where it is none."""
    made = of_sweep(catalogue, name)
    return f"{name!r} is a sweep; name one of its workloads: {shown(made)}" if made else None


def key(name: str, entry: Workload) -> str:
    """The key of an entry where the person wrote it."""
    return f"workload_catalogue.{entry.sweep.of if entry.sweep else name}"


def _workloads(name: str, entry: Workload) -> dict[str, Workload]:
    """The workloads that an entry stands for, by name: itself, or one for each value of its list."""
    for by in KEYS:
        if isinstance(values := getattr(entry.load, by), list):
            return {
                f"{name}-{by}-{value}": entry.model_copy(
                    update={
                        "load": entry.load.model_copy(update={by: value}),
                        "sweep": Sweep(of=name, by=by, value=value),
                    }
                )
                for value in values
            }
    return {name: entry}
