"""How the lines about a config name values, and what they may have meant."""

import difflib
import json
from collections.abc import Iterable
from typing import Any

# Words for which the nearest spelling would be wrong: a gpu is not a cpu.
SYNONYMS = {"gpu": ("nvidia", "cuda"), "k8s": ("kubernetes",)}


def unknown_value(value: Any, known: Iterable[str], problem: str) -> str:
    """`VALUE PROBLEM; did you mean …? Known: …`"""
    known = list(known)
    if not known:
        return f"{quoted(value)} {problem}; nothing is known here, remove it"
    asked = str(value).lower()
    close = [word for word in SYNONYMS.get(asked, ()) if word in known]
    close = close or difflib.get_close_matches(asked, known, n=1, cutoff=0.5)
    meant = f"; did you mean {close[0]!r}?" if close else "; use a known one."
    return f"{quoted(value)} {problem}{meant} Known: {', '.join(known)}"


def quoted(value: Any) -> str:
    """The value as YAML would have it, text in quotes, at most 80 characters."""
    if isinstance(value, list):
        text = f"[{', '.join(item if isinstance(item, str) else quoted(item) for item in value)}]"
    elif isinstance(value, str):
        text = repr(value)
    else:
        text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
