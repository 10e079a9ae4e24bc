"""Keys of a record that may be null by the schema, and records with them set to null."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sharebench.model.records.record import SCHEMA_PATH

Key = tuple[str, ...]
"""Keys from the top of a record; `[]` stands for each item of a list, `*` for each value of an object."""
SCHEMA: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))


def _resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in part:
        return part
    target = SCHEMA
    for key in part["$ref"].removeprefix("#/").split("/"):
        target = target[key]
    return target | {key: value for key, value in part.items() if key != "$ref"}


def _may_be_null(part: Mapping[str, Any]) -> bool:
    part = _resolved(part)
    kinds = part.get("type", [])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or None in part.get("enum", [])


def _walk(part: Mapping[str, Any], path: Key) -> Iterator[Key]:
    part = _resolved(part)
    choices = [part, *map(_resolved, part.get("anyOf", []))]
    if any(map(_may_be_null, choices)):
        yield path
    for choice in choices:
        for key, below in choice.get("properties", {}).items():
            yield from _walk(below, (*path, key))
        if isinstance(below := choice.get("additionalProperties"), dict):
            yield from _walk(below, (*path, "*"))
        if isinstance(below := choice.get("items"), dict):
            yield from _walk(below, (*path, "[]"))


NULLABLE_KEYS: list[Key] = list(dict.fromkeys(_walk(SCHEMA, ())))


def with_null(record: dict[str, Any], path: Key) -> dict[str, Any] | None:
    """A copy of the record with null at `path`; None if it has no other value there."""
    made = copy.deepcopy(record)
    return made if _null(made, path) else None


def with_all_null(record: dict[str, Any], but: frozenset[Key] = frozenset()) -> dict[str, Any]:
    """A copy of the record with null at all NULLABLE_KEYS except `but`, the innermost first."""
    made = copy.deepcopy(record)
    for path in sorted(NULLABLE_KEYS, key=len, reverse=True):
        if path not in but:
            _null(made, path)
    return made


def _null(content: Any, path: Key) -> bool:
    key, *rest = path
    if content is None:
        return False
    if key == "[]":
        places: list[Any] = list(range(len(content)))
    else:
        places = list(content) if key == "*" else [key] if key in content else []
    found = False
    for place in places:
        if rest:
            found |= _null(content[place], tuple(rest))
        elif content[place] is not None:
            content[place], found = None, True
    return found
