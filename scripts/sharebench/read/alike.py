"""Sentences of the repeats of one cell, which differ in numbers alone, as one."""

import re

from sharebench.read.grouping import group_by

TENANT = "tenant "
NUMBER = re.compile(rf"((?:{TENANT})?\d+(?:\.\d+)?)")


def merge_alike(texts: str) -> str:
    """Sentences joined by `; `, each kind once: `tenants 1, 3: requests came 105 to 116% faster`."""
    kinds = group_by(texts.split("; "), lambda text: NUMBER.sub(_placeholder, text))
    return "; ".join("".join(map(_merged, zip(*map(NUMBER.split, alike), strict=True))) for alike in kinds.values())


def _merged(parts: tuple[str, ...]) -> str:
    """What the sentences have at one place: the same words, or tenants, or other numbers from the least to the most."""
    if len({*parts}) == 1:
        return parts[0]
    if _is_tenant(parts[0]):
        return f"tenants {', '.join(sorted({part.removeprefix(TENANT) for part in parts}, key=float))}"
    return f"{min(parts, key=float)} to {max(parts, key=float)}"


def _placeholder(number: re.Match[str]) -> str:
    return f"{TENANT * _is_tenant(number[0])}\0"


def _is_tenant(number: str) -> bool:
    return number.startswith(TENANT)
