"""Versions of the parts of a cluster."""

from __future__ import annotations


def version_of(text: str) -> tuple[int, ...]:
    """`v0.19.3` as numbers; empty where it is none."""
    parts = text.removeprefix("v").split("-")[0].split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
