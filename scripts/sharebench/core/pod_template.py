"""What a strategy's entry adds to each tenant's pod where another scheduler shares the GPU (`access: static`).

Texts of the template may hold placeholders, which are filled in for a number of tenants N. Shares are rounded down, so
that N of them fit on one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from sharebench.core.spec import Limits

# What each stands for, and the limit of the entry that it is made from.
PLACEHOLDERS: Mapping[str, str | None] = {
    "replicas": None,
    "fraction": None,
    "thread_percent": "thread_percent",
    "memory_percent": "memory_percent",
    "memory_mib": "memory_percent",
}
# The parts of a template whose values may hold placeholders.
FILLED = ("resources", "annotations", "labels", "environment", "shows")


@dataclass(frozen=True)
class PodTemplate:
    """A template filled in for a number of tenants: what every tenant's pod gets besides what all pods have."""

    scheduler: str | None
    """Name of the scheduler that places the pods; None is the cluster's own."""
    deployment: str | None
    """Name of the Deployment that is that scheduler, in whatever namespace."""
    allocated: str | None
    """Annotation, NAME or NAME=VALUE, that the scheduler writes onto a pod that it has given a share."""
    companions: str | None
    """Namespace in which the scheduler's stack keeps pods of its own that hold the GPU while ours share it."""
    resources: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, str] = field(default_factory=dict)
    """Variables that a tenant must see in its container, and their values."""


def names_in(text: str) -> list[str]:
    """The placeholders of a text, by name."""
    return Template(text).get_identifiers()


def texts(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts that may hold placeholders, each with its key in the template."""
    for part in FILLED:
        for name, text in template[part].items():
            yield f"{part}.{name}", text


def needs_memory(template: Mapping[str, Any]) -> bool:
    """Whether filling it in takes the size of the GPU's memory."""
    return any("memory_mib" in names_in(text) for _, text in texts(template))


def filled(template: Mapping[str, Any], replicas: int, limits: Limits, memory_mib: int | None) -> PodTemplate:
    """A strategy's template for `replicas` tenants with these limits (`Strategy.limits`, in percent).

    `memory_mib` is the GPU's memory; None, where it is not known, is enough for a template without `memory_mib`.
    """
    values = {"replicas": str(replicas), "fraction": f"{100 // replicas / 100:.2f}"}
    percents = {"thread_percent": limits["thread_percent"], "memory_percent": limits["memory_percent"]}
    values |= {name: f"{int(percent)}" for name, percent in percents.items() if percent is not None}
    if memory_mib is not None and limits["memory_percent"] is not None:
        values["memory_mib"] = str(int(memory_mib * limits["memory_percent"] / 100))

    def fill(part: str) -> dict[str, str]:
        return {name: Template(text).substitute(values) for name, text in template[part].items()}

    return PodTemplate(**dict(template) | {part: fill(part) for part in FILLED})
