"""Placeholders in the commands of user programs."""

import math
from collections.abc import Mapping

from sharebench.model.spec import Spec
from sharebench.model.workload import PLACEHOLDER


def memory_fraction(spec: Spec, index: int) -> float:
    """Fraction of the visible memory for tenant `index`: its limit, else an even part among those that share it.

    Tenants of a MIG instance see only the instance's memory.
    """
    if (percent := spec.strategy.tenant_limits(spec.replicas, index).memory_percent) is not None:
        return percent / 100
    return 1 / math.ceil(spec.replicas / spec.strategy.group_count(spec.replicas))


def placeholder_values(spec: Spec, index: int) -> dict[str, object]:
    """The values of the placeholders that depend on the cell, by name."""
    return {"index": index, "replicas": spec.replicas, "fraction": f"{memory_fraction(spec, index):.6g}"}


def fill_in(word: str, values: Mapping[str, object]) -> str:
    """A word of a command with its placeholders replaced."""
    return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), word)
