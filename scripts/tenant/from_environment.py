"""Secrets in requests: `{env:NAME}` stands for a variable of the environment, whose value only the client knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def named(texts: Iterable[str]) -> list[str]:
    """The variables that these texts name, each once."""
    return list(dict.fromkeys(name for text in texts for name in VARIABLE.findall(text)))


def unusable(texts: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Why a variable that these texts name cannot be part of a request, or None; never its value."""
    for name in named(texts):
        value = environment.get(name)
        if not value:
            return f"{{env:{name}}} is not set in the environment; export {name}"
        if not (value.isascii() and value.isprintable()):
            return f"{{env:{name}}} holds what no request can (a line break, or no ASCII); export {name} without it"
    return None


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with the values of the variables that it names."""
    return VARIABLE.sub(lambda found: environment[found[1]], text)
