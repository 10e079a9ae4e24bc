"""A trace of requests: a CSV file with the time of each, in seconds from the start, and its numbers of tokens."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

# The pool of random tokens that prompts are cut from is not much larger (tenant/request_bodies.py).
MAX_TOKENS = 200_000


class TraceRow(NamedTuple):
    """A request; a number of tokens is 1 where the file lacks its column."""

    seconds: float
    prompt_tokens: int = 1
    output_tokens: int = 1


TOKEN_COLUMNS = TraceRow._fields[1:]


def read_trace(path: str, needed: Collection[str] = ()) -> list[TraceRow]:
    """The requests in a file with the column `seconds` and those `needed`.

    Raises ValueError with what is wrong, where, and what to write instead.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = list(reader.fieldnames or ())
            for name in ("seconds", *needed):
                if name not in names:
                    known = ", ".join(TraceRow._fields)
                    raise ValueError(f"line 1: no column {name!r}; begin with the line {known}")
            rows = list[TraceRow]()
            for texts in reader:
                rows.append(_row(texts, reader.line_num, rows[-1].seconds if rows else 0.0))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"is not a CSV file in UTF-8 ({error}); write one request per line") from None
    if not rows:
        raise ValueError("line 2: no request; write one per line")
    return rows


def _row(texts: dict[str, str], line: int, least_seconds: float) -> TraceRow:
    seconds_text, values = texts["seconds"], dict[str, int]()
    seconds = _number(seconds_text)
    if seconds is None or seconds < 0:
        raise ValueError(f"line {line}: seconds {seconds_text!r} is not a time; write a number from 0 on")
    if seconds < least_seconds:
        raise ValueError(f"line {line}: seconds {seconds_text} is before {least_seconds:g} above it; sort them")
    for name in TOKEN_COLUMNS:
        if name not in texts:
            continue
        number = _number(texts[name])
        if number is None or not number.is_integer() or not 1 <= number <= MAX_TOKENS:
            problem = f"is not a number of tokens; write a whole one from 1 to {MAX_TOKENS}"
            raise ValueError(f"line {line}: {name} {texts[name]!r} {problem}")
        values[name] = int(number)
    return TraceRow(seconds, **values)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def period_seconds(rows: Sequence[TraceRow]) -> float:
    """Time after which a trace begins again: a mean gap after its last request."""
    span = rows[-1].seconds - rows[0].seconds
    return span * len(rows) / (len(rows) - 1) if span else max(1.0, rows[-1].seconds)


def mean_rate_hz(rows: Sequence[TraceRow]) -> float:
    return len(rows) / period_seconds(rows)
