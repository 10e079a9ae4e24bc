"""What a job that fails says, and how what programs print is shown."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

from sharebench.core.files import Damaged

LINE_CHARACTERS = 500
# ECMA-48: control sequences, strings such as window titles up to their end, and two-character escapes.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


def plain(text: str) -> str:
    """The text without what a terminal would act on, in lines of bounded length."""
    lines = []
    for line in ESCAPES.sub("", text).splitlines():
        clean = "".join(each for each in line.expandtabs() if each.isprintable())
        cut = f"… ({len(clean)} characters)" if len(clean) > LINE_CHARACTERS else ""
        lines.append(clean[:LINE_CHARACTERS] + cut)
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def failed(line: object) -> int:
    """Say why, to the job's log and at once to the terminal; returns the job's exit status."""
    print(line, file=sys.stderr)
    print(f"  {line}", flush=True)
    return 1


def accept_any_text() -> None:
    """Print what a terminal cannot show as `?`: its encoding must not fail a measurement."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def script(main: Callable[[], int | None]) -> None:
    """Run a script's `main`, and exit with what it returns; a damaged file of the pipeline's own is one line."""
    accept_any_text()
    try:
        if code := main():
            sys.exit(code)
    except Damaged as damage:
        sys.exit(str(damage))
