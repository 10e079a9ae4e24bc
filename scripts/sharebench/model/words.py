"""Values in error lines, and suggestions for unknown ones."""

import difflib
import json
from collections.abc import Iterable
from typing import Any

# Suggestions for words whose nearest spelling would be wrong: a gpu is not a cpu.
SYNONYMS = {"gpu": ("nvidia", "cuda"), "k8s": ("kubernetes",)}


def unknown_value(value: Any, known: Iterable[str], problem: str) -> str:
    """A line `VALUE PROBLEM; did you mean …? Known: …`."""
    known = list(known)
    if not known:
        return f"{quoted(value)} {problem}; nothing is known here, remove it"
    text = str(value).lower()
    close = [word for word in SYNONYMS.get(text, ()) if word in known]
    close = close or difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    suggestion = f"; did you mean {close[0]!r}?" if close else "; use a known one."
    return f"{quoted(value)} {problem}{suggestion} Known: {', '.join(known)}"


def quoted(value: Any) -> str:
    """The value as in YAML, with text in quotes, at most 80 characters long; its type where YAML's has no such form."""
    try:
        if isinstance(value, list | tuple):
            text = f"[{', '.join(item if isinstance(item, str) else quoted(item) for item in value)}]"
        else:
            text = repr(value) if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
