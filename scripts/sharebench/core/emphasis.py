"""Colour for the words that answer, where a terminal shows them; elsewhere the same text without it."""

import re
import sys
from typing import TextIO

# The sentences are those of the callers' own functions in tests/unit/core/test_emphasis.py.
PATTERNS = {
    "bold green": r": take (?!a )(?:\d+ replicas?: )?\S+| {2}kept$",
    "bold red": r" {2}broken$|^broken:|^\d+ of \d+ cells (?:oom|crashed|killed|hung|excluded)"
    r"|^[1-9]\d* promises? broken|could not be restored",
    "yellow": r"\bCaution\b|(?:sharing brings|more replicas bring) nothing"
    r"|no (?:sharing|number of replicas)(?=.* brings anything;)|^\d+ of \d+ cells with a warning",
    "cyan": r"\b(?:sharebench (?!--)\w+|snakemake) [^;]*$",
}


def show(text: str, stream: TextIO | None = None) -> None:
    """Print the text. rich obeys NO_COLOR and TERM."""
    stream = stream or sys.stdout
    if not stream.isatty():
        print(text, file=stream, flush=True)
        return
    # Imported late: jobs and pipes need no colours.
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    for style, pattern in PATTERNS.items():
        shown.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    Console(file=stream).print(shown, soft_wrap=True)
