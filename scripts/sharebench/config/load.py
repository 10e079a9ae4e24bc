"""The configuration of a study: normalise, fill in defaults, validate, check across keys.

`config/schemas/config.schema.json` is the reference of all keys; this module knows none of them by name.
It runs at every parse of the Snakefile and imports nothing heavy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sharebench.config.checks import cross_key_problems, schema_problem
from sharebench.core.capabilities import resolve_node
from sharebench.core.files import REPOSITORY

__all__ = ["ConfigError", "check_files", "config_schema", "load", "resolve_node"]

SCHEMA_FILE = REPOSITORY / "config" / "schemas" / "config.schema.json"
# Deeper than any schema; what is deeper is a YAML anchor that contains itself.
MAX_DEPTH = 16
# No quantity here comes near it, and up to it whole numbers are exact in every representation.
MAX_NUMBER = 2**53

Json = dict[str, Any]


class ConfigError(Exception):
    """The config cannot be used; the message is exactly one line that names key, value and remedy."""

    def __init__(self, line: str) -> None:
        super().__init__(" ".join(f"config: {line}".split()))


@cache
def config_schema() -> Json:
    """The JSON Schema of a whole config."""
    schema: Json = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def load(config: Mapping[str, Any]) -> Json:
    """The complete config: normalised, with every default filled in, valid and consistent.

    `config` is the merge of config files and command line, in which numbers may be text and lists scalars; it
    is not changed. `load(load(config)) == load(config)`. Raises ConfigError and nothing else.
    """
    schema = config_schema()
    normalised: Json = _normalise(_plain(config), schema, schema["$defs"])
    problem = schema_problem(normalised, schema)
    if problem is None:
        problem = next(cross_key_problems(normalised), None)
    if problem is not None:
        raise ConfigError(problem)
    return normalised


def check_files(paths: Iterable[Path | str]) -> None:
    """Raise ConfigError where a config file has a key twice, of which readers of YAML and JSON silently keep the last.

    The files can be read; what else they hold is for `load`.
    """
    import yaml  # imported late: only a parse of the Snakefile needs it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in paths:
        try:
            root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=loader)
        except yaml.YAMLError:
            continue  # JSON that is no YAML, such as one with tabs
        waiting, seen = [root], set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue  # an anchor, possibly within itself
            seen.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                waiting += node.value
            elif isinstance(node, yaml.MappingNode):
                lines: dict[str, int] = {}
                for key, value in node.value:
                    line = key.start_mark.line + 1
                    if isinstance(key, yaml.ScalarNode):
                        if key.value in lines:
                            first = lines[key.value]
                            raise ConfigError(
                                f"{path}, line {line}: {key.value!r} is there already, in line {first}; keep one"
                            )
                        lines[key.value] = line
                    waiting.append(value)


def _plain(value: Any, key: str = "", depth: int = 0) -> Any:
    """A deep copy that holds only what JSON holds; raises ConfigError where that is impossible."""
    where = key or "the file"
    if depth > MAX_DEPTH:
        raise ConfigError(f"{where}: is nested too deeply; look for a YAML anchor that contains itself")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not _is_text(name):
                raise ConfigError(f"{where}: the key {name!r} is not text; put it in quotes")
        return {name: _plain(item, f"{key}.{name}".lstrip("."), depth + 1) for name, item in value.items()}
    if depth == 0:
        raise ConfigError(f"{where}: {value!r:.60} is not a mapping; write it as lines of key: value")
    if isinstance(value, list | tuple):
        return [_plain(item, key, depth + 1) for item in value]
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        raise ConfigError(f"{where}: {value!r} is not a number up to 2^53; use a smaller one")
    if value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and _is_text(value)):
        return value
    raise ConfigError(f"{where}: {value!r:.60} ({type(value).__name__}) is no plain value; put it in quotes")


def _is_text(value: str) -> bool:
    """False for undecodable bytes of a command line."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _normalise(value: Any, schema: Json, definitions: Json) -> Any:
    """`value` in the types that the schema wants, as far as that is possible without guessing."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if value is None or (isinstance(value, str) and value.strip() in ("", "null")):
        if "null" in types:
            return None
        if value is None and types == ["array"]:
            return []
        if value is None and types == ["object"]:
            value = {}
    if isinstance(value, dict):
        return _normalise_object(value, schema, definitions) if "object" in types else value
    if "array" in types and value is not None and not _is_keyword(value, schema, types):
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")] if value.strip() else []
        items = value if isinstance(value, list) else [value]
        return [_normalise(item, schema["items"], definitions) for item in items]
    return _normalise_scalar(value, types)


def _normalise_object(value: Json, schema: Json, definitions: Json) -> Json:
    """The object with the schema's keys first, in its order and with their defaults, then the free ones."""
    properties = schema.get("properties", {})
    result = {}
    for key, inner in properties.items():
        if key in value or "default" in inner:
            result[key] = _normalise(value.get(key, inner.get("default")), inner, definitions)
    free = schema.get("patternProperties", {})
    for key in (key for key in value if key not in properties):
        inner = next((inner for pattern, inner in free.items() if re.fullmatch(pattern, key)), None)
        result[key] = value[key] if inner is None else _normalise(value[key], inner, definitions)
    return result


def _is_keyword(value: Any, schema: Json, types: list[str]) -> bool:
    """Whether the value is the word that may stand in place of a list, such as `auto`."""
    return "string" in types and isinstance(value, str) and re.fullmatch(schema["pattern"], value) is not None


def _normalise_scalar(value: Any, types: list[str]) -> Any:
    is_numeric = "integer" in types or "number" in types
    if isinstance(value, str):
        if "boolean" in types and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if is_numeric:
            value = _number(value)
    if isinstance(value, float) and is_numeric and value.is_integer():
        # One text for one number: 2 and 2.0 are the same window, and must not make a cell stale.
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and not is_numeric and "string" in types:
        return str(value)
    return value


def _number(text: str) -> int | float | str:
    """The number that the text stands for, or the text itself."""
    for parse in (int, float):
        try:
            number = parse(text)
        except ValueError:
            continue
        if abs(number) <= MAX_NUMBER:
            return number
    return text
