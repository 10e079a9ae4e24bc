"""What a strategy's entry adds to each tenant's pod where another scheduler shares the GPU (`access: static`).

Texts of the template may hold placeholders, which are filled in for a number of tenants N. Shares are rounded down, so
that N of them fit on one GPU.
"""

from collections.abc import Iterator, Mapping
from string import Template
from typing import Literal, cast, get_args

from sharebench.core.config_catalogues import PodTemplate
from sharebench.core.spec import TenantLimits

# What each stands for, and the limit of the entry that it is made from.
PLACEHOLDERS: Mapping[str, str | None] = {
    "replicas": None,
    "fraction": None,
    "thread_percent": "thread_percent",
    "memory_percent": "memory_percent",
    "memory_mib": "memory_percent",
}
# The parts of a template whose values may hold placeholders.
TemplatedSection = Literal["resources", "annotations", "labels", "environment", "shows"]
TEMPLATED_SECTIONS: tuple[TemplatedSection, ...] = get_args(TemplatedSection)


def placeholder_names(text: str) -> list[str]:
    return Template(text).get_identifiers()


def template_texts(template: PodTemplate) -> Iterator[tuple[str, str]]:
    """The texts that may hold placeholders, each with its key in the template."""
    for part in TEMPLATED_SECTIONS:
        for name, text in template[part].items():
            yield f"{part}.{name}", text


def needs_memory(template: PodTemplate) -> bool:
    """Whether filling it in takes the size of the GPU's memory."""
    return any("memory_mib" in placeholder_names(text) for _, text in template_texts(template))


def fill_template(template: PodTemplate, replicas: int, limits: TenantLimits, memory_mib: int | None) -> PodTemplate:
    """A strategy's template for `replicas` tenants with these limits (`Strategy.limits`, in percent).

    `memory_mib` is the GPU's memory; None, where it is not known, is enough for a template without `memory_mib`.
    """
    values = {"replicas": str(replicas), "fraction": f"{100 // replicas / 100:.2f}"}
    percents = {"thread_percent": limits.thread_percent, "memory_percent": limits.memory_percent}
    values |= {name: f"{int(percent)}" for name, percent in percents.items() if percent is not None}
    if memory_mib is not None and limits.memory_percent is not None:
        values["memory_mib"] = str(int(memory_mib * limits.memory_percent / 100))

    def fill(texts: dict[str, str]) -> dict[str, str]:
        return {name: Template(text).substitute(values) for name, text in texts.items()}

    return cast(PodTemplate, {**template, **{part: fill(template[part]) for part in TEMPLATED_SECTIONS}})
