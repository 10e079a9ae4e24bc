"""Command line of the jobs, the line of a failed job, and text for a terminal."""

import argparse
import inspect
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin, get_type_hints

from sharebench.core.files import Refusal

LINE_CHARACTERS = 500
TEXT_TYPES = (Path, str, int, float)
TERMINAL_COLUMNS = 100
# ECMA-48: control sequences, strings such as window titles up to their end, and two-character escapes.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


def plain_text(text: str) -> str:
    """The text without control characters and escape sequences, in lines of bounded length."""
    lines = []
    for line in ESCAPES.sub("", text).splitlines():
        clean = "".join(character for character in line.expandtabs() if character.isprintable())
        cut = f"… ({len(clean)} characters)" if len(clean) > LINE_CHARACTERS else ""
        lines.append(clean[:LINE_CHARACTERS] + cut)
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def wrap_text(text: str, mark: str = "", hang: str = "  ") -> list[str]:
    """Lines of the text for a terminal; `mark` begins the first line, `hang` the others."""
    return textwrap.wrap(
        text,
        TERMINAL_COLUMNS,
        initial_indent=mark,
        subsequent_indent=hang,
        break_on_hyphens=False,
        break_long_words=False,
    )


def format_duration(seconds: float) -> str:
    """A duration for people: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_count(number: int, one: str, many: str) -> str:
    """`1 node switch`, `2 node switches`."""
    return f"{number} {one if number == 1 else many}"


def report_failure(line: object) -> int:
    """Print the reason to the job's log, and to the terminal unless both are one; returns the exit status."""
    print(line, file=sys.stderr)
    if not os.path.sameopenfile(1, 2):
        print(f"  {line}", flush=True)
    return 1


def accept_any_text() -> None:
    """Print unencodable characters as `?`, since a terminal's encoding must not fail a measurement."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def run_job(
    job: Callable[..., int | str | None],
    arguments: Sequence[str],
    opening: Callable[[Path], AbstractContextManager[object]] | None = None,
) -> int:
    """Run a job with these options, print the text that it returns, and return its exit status.

    A Refusal becomes one line. Each parameter of the job is an option of the same name, required where it has no
    default. Its annotation gives the type: one of TEXT_TYPES, a list of one of them, either of these `| None`, or else
    the option is parsed as JSON. With `opening` the first parameter is what `opening` yields for `--results`.
    """
    parser = argparse.ArgumentParser(description=job.__doc__)
    annotations = get_type_hints(job)
    parameters = list(inspect.signature(job).parameters.items())
    if opening:
        parser.add_argument("--results", type=Path, required=True)
    for name, parameter in parameters[1:] if opening else parameters:
        values, annotation = None, annotations[name]
        if get_origin(annotation) is list:
            values, (annotation,) = "*", get_args(annotation)
        elif get_origin(annotation) is UnionType:
            annotation, _ = get_args(annotation)
        parse = annotation if annotation in TEXT_TYPES else json.loads
        is_required = parameter.default is parameter.empty
        default = None if is_required else parameter.default
        parser.add_argument(f"--{name}", type=parse, nargs=values, required=is_required, default=default)
    accept_any_text()
    options = vars(parser.parse_args(arguments))
    try:
        with opening(options.pop("results")) if opening else nullcontext() as opened:
            returned = job(opened, **options) if opening else job(**options)
    except Refusal as refusal:
        return report_failure(refusal)
    if isinstance(returned, str):
        print(returned, flush=True)
        return 0
    return returned or 0
