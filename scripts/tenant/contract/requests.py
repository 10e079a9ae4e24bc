"""What the driver and a tenant share about requests: the text of HTTP errors, and secrets.

`{env:NAME}` in a request stands for a variable of the environment, and is filled in by the client only.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Mapping

VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
# At most this much of a server's text is repeated in an error.
SHOWN_CHARACTERS = 100


def described(error: Exception) -> str:
    """The line for an OSError or HTTPException of http.client."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    said = str(error).strip()
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {said[:SHOWN_CHARACTERS]!r}"
    return "".join(each for each in said if each.isprintable())[:SHOWN_CHARACTERS] or type(error).__name__


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
