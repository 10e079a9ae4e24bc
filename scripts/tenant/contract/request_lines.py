"""Lines of a file of requests (`request.body_lines`): each is a body, or an entry of an OpenAI batch, which has one."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def numbered_lines(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, counted from 1, without the byte order mark that some editors write."""
    for number, line in enumerate(file, 1):
        content = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        if content.strip():
            yield number, content


def batch_entry(document: object) -> Mapping[str, Any] | None:
    """The document if it is an entry of an OpenAI batch, with `custom_id`, `url` and `body`."""
    is_entry = isinstance(document, dict) and "custom_id" in document and isinstance(document.get("body"), dict)
    return document if is_entry else None  # type: ignore[return-value]


def line_body(line: bytes) -> bytes:
    """The body to send for a line."""
    if b'"custom_id"' not in line:
        return line
    try:
        entry = batch_entry(json.loads(line))
    except ValueError:
        return line
    return line if entry is None else json.dumps(entry["body"]).encode()
