"""Pod template of a strategy under `access: static`, where another scheduler shares the GPU.

Placeholders in its texts are filled in for N tenants. Shares are rounded down so that N of them fit on one GPU.
"""

from collections.abc import Iterator, Mapping
from string import Template
from typing import Literal, cast, get_args

from sharebench.model.config_catalogues import PodTemplate
from sharebench.model.spec import TenantLimits

# Each placeholder with the limit of the entry that it is computed from.
PLACEHOLDERS: Mapping[str, str | None] = {
    "replicas": None,
    "fraction": None,
    "thread_percent": "thread_percent",
    "memory_percent": "memory_percent",
    "memory_mib": "memory_percent",
}
# The sections of a template whose values may hold placeholders.
TemplatedSection = Literal["resources", "annotations", "labels", "environment", "shows"]
TEMPLATED_SECTIONS: tuple[TemplatedSection, ...] = get_args(TemplatedSection)


def placeholder_names(text: str) -> list[str]:
    return Template(text).get_identifiers()


def template_texts(template: PodTemplate) -> Iterator[tuple[str, str]]:
    """Keys and texts of the values that may hold placeholders."""
    for section in TEMPLATED_SECTIONS:
        for name, text in template[section].items():
            yield f"{section}.{name}", text


def needs_memory(template: PodTemplate) -> bool:
    """Whether filling the template in needs the size of the GPU's memory."""
    return any("memory_mib" in placeholder_names(text) for _, text in template_texts(template))


def fill_template(template: PodTemplate, replicas: int, limits: TenantLimits, memory_mib: int | None) -> PodTemplate:
    """A strategy's template, filled in for `replicas` tenants with these limits in percent.

    `memory_mib` is the GPU's memory; it may be None, unknown, for a template without `memory_mib`.
    """
    values = {"replicas": str(replicas), "fraction": f"{100 // replicas / 100:.2f}"}
    percents = {"thread_percent": limits.thread_percent, "memory_percent": limits.memory_percent}
    values |= {name: f"{int(percent)}" for name, percent in percents.items() if percent is not None}
    if memory_mib is not None and limits.memory_percent is not None:
        values["memory_mib"] = str(int(memory_mib * limits.memory_percent / 100))

    def fill(texts: dict[str, str]) -> dict[str, str]:
        return {name: Template(text).substitute(values) for name, text in texts.items()}

    return cast(PodTemplate, {**template, **{section: fill(template[section]) for section in TEMPLATED_SECTIONS}})
