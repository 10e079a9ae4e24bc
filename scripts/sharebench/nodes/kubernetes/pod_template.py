"""What a strategy's entry adds to each tenant's pod where another scheduler shares the GPU (`access: static`).

Texts of the template may hold placeholders, which are filled in for a number of tenants N. Shares are rounded down, so
that N of them fit on one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from sharebench.config_words import shown, unknown

# Snakemake would take them for wildcards of its own.
BRACES = re.compile(r"\{\w+\}")
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
# What brings a GPU to a pod: without either of them the scheduler has nothing to go by.
BRINGS = ("resources", "annotations")


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


def _texts(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in FILLED:
        for name, text in template[part].items():
            yield f"{part}.{name}", text


def needs_memory(template: Mapping[str, Any]) -> bool:
    """Whether filling it in takes the size of the GPU's memory."""
    return any("memory_mib" in names_in(text) for _, text in _texts(template))


def filled(
    template: Mapping[str, Any], replicas: int, limits: Mapping[str, float | None], memory_mib: int | None
) -> PodTemplate:
    """A strategy's template for `replicas` tenants with these limits (`Strategy.limits`, in percent).

    `memory_mib` is the GPU's memory; None, where it is not known, is enough for a template without `memory_mib`.
    """
    values = {"replicas": str(replicas), "fraction": f"{100 // replicas / 100:.2f}"}
    values |= {name: f"{int(limit)}" for name, limit in limits.items() if limit is not None}
    if memory_mib is not None and limits["memory_percent"] is not None:
        values["memory_mib"] = str(int(memory_mib * limits["memory_percent"] / 100))

    def fill(part: str) -> dict[str, str]:
        return {name: Template(text).substitute(values) for name, text in template[part].items()}

    return PodTemplate(**dict(template) | {part: fill(part) for part in FILLED})


def problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the template of a normalised, schema-valid catalogue entry; `key` is the entry's."""
    template = entry["pod"]
    for where, text in _texts(template):
        for name in names_in(text):
            if name not in PLACEHOLDERS:
                yield f"{key}.pod.{where}: {unknown(name, PLACEHOLDERS, 'is no placeholder')}"
            elif (limit := PLACEHOLDERS[name]) is not None and entry[limit] is None:
                yield f"{key}.pod.{where}: ${name} has nothing to stand for; give {limit}, such as 100/N"
        if BRACES.search(text) or not Template(text).is_valid():
            what = "holds a brace or a $ that is no placeholder; write one as $thread_percent"
            yield f"{key}.pod.{where}: {text!r} {what}"
    if not any(template[part] for part in BRINGS):
        yield f"{key}.pod.resources: {shown({})} brings no GPU; name a resource, such as nvidia.com/gpu: 1"
    for limit in ("thread_percent", "memory_percent"):
        used = {PLACEHOLDERS.get(name) for _, text in _texts(template) for name in names_in(text)}
        if entry[limit] is not None and limit not in used:
            yield (
                f"{key}.{limit}: {entry[limit]!r} reaches no pod; use ${limit} in pod.resources, "
                "or remove it where nothing keeps to it"
            )
