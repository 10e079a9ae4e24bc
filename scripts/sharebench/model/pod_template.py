"""Pod template of a strategy under `access: static`, where another scheduler shares the GPU.

Placeholders in its texts are filled in for N tenants. Shares are rounded down so that N of them fit on one GPU.
"""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from collections.abc import Iterator, Mapping
from string import Template
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from sharebench.model.values import Concept, Matching, Maybe, Name, OpenMapping, Text

if TYPE_CHECKING:
    from sharebench.model.strategy import TenantLimits

# Each placeholder with the limit of the entry that it is computed from.
PLACEHOLDERS: Mapping[str, str | None] = {
    "replicas": None,
    "fraction": None,
    "thread_percent": "thread_percent",
    "memory_percent": "memory_percent",
    "memory_mib": "memory_percent",
}
# The sections of a template whose values may hold placeholders.
TEMPLATED_SECTIONS = ("resources", "annotations", "labels", "environment", "shows")
Variable = Annotated[str, Matching("[A-Za-z_][A-Za-z0-9_]*", "is not the name of a variable")]
MetaName = Annotated[str, Matching("[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?", "is not a name that Kubernetes takes")]
Resource = Annotated[
    str,
    Matching(
        "[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
        "is not the name of an extended resource, such as nvidia.com/gpu",
    ),
]


class PodTemplate(Concept):
    """Additions to every tenant's pod under `access: static`, where another scheduler shares the GPU.

    See [Other schedulers](#other-schedulers).
    """

    scheduler: Maybe[Name] = None
    """Name of the scheduler of the pods; `null` is the cluster's own."""
    deployment: Maybe[Name] = None
    """Deployment that must have a ready pod, in whatever namespace, or the strategy is infeasible."""
    allocated: Maybe[Name] = None
    """Evidence: annotation, as `NAME` or `NAME=VALUE`, that the scheduler writes onto a pod with a share."""
    companions: Maybe[Name] = None
    """Namespace of pods by which the scheduler itself holds a GPU, which are waited for after a cell."""
    resources: OpenMapping[Resource, Text] = Field(default={})
    """Resources of the GPU that a pod asks for, by name, such as `nvidia.com/gpu`, each with an amount."""
    annotations: OpenMapping[MetaName, Text] = Field(default={})
    """Annotations of the pod."""
    labels: OpenMapping[MetaName, Text] = Field(default={})
    """Labels of the pod."""
    environment: OpenMapping[Variable, Text] = Field(default={})
    """Variables of the tenant's container."""
    shows: OpenMapping[Variable, Text] = Field(default={})
    """Evidence: variables that the scheduler's stack sets in the container, with their values; not secret ones."""

    def texts(self) -> Iterator[tuple[str, str]]:
        """Keys and texts of the values that may hold placeholders."""
        for section in TEMPLATED_SECTIONS:
            for name, text in getattr(self, section).items():
                yield f"{section}.{name}", text

    def limits(self) -> Iterator[tuple[str, str, str]]:
        """Key, placeholder and limit of each placeholder that stands for a limit."""
        for where, text in self.texts():
            for name in placeholder_names(text):
                if (limit := PLACEHOLDERS[name]) is not None:
                    yield where, name, limit

    def needs_memory(self) -> bool:
        """Whether filling the template in needs the size of the GPU's memory."""
        return any(name == "memory_mib" for _, name, _ in self.limits())

    def filled_in(self, replicas: int, limits: "TenantLimits", memory_mib: int | None) -> Self:
        """The template for `replicas` tenants with these limits in percent.

        `memory_mib` is the GPU's memory; it may be None, unknown, for a template without `memory_mib`.
        """
        values = {"replicas": str(replicas), "fraction": f"{100 // replicas / 100:.2f}"}
        percents = {"thread_percent": limits.thread_percent, "memory_percent": limits.memory_percent}
        values |= {name: f"{int(percent)}" for name, percent in percents.items() if percent is not None}
        if memory_mib is not None and limits.memory_percent is not None:
            values["memory_mib"] = str(int(memory_mib * limits.memory_percent / 100))
        texts = {section: getattr(self, section) for section in TEMPLATED_SECTIONS}
        filled = {
            section: {name: Template(text).substitute(values) for name, text in own.items()}
            for section, own in texts.items()
        }
        return self.changed(**filled)


def placeholder_names(text: str) -> list[str]:
    return Template(text).get_identifiers()


# Pod template that requests a GPU in the usual way.
WHOLE_GPU = PodTemplate(resources={"nvidia.com/gpu": "1"})
