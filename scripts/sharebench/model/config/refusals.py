"""Errors of pydantic about a config, each as one line with key, value and remedy."""

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sharebench.model import values
from sharebench.model.config.schema import may_be_null, meaning, parts, schema, section_in
from sharebench.model.values import as_list, as_number
from sharebench.model.words import quoted, unknown_value

WRONG_KEY = "[key]"
"""The last part of pydantic's path, where an error is about a key of a mapping and not its value."""
WITHDRAWN_KEYS = {
    "slo_ms": "is now slo.latency_ms; write slo: {{latency_ms: {}}}",
    "datasets": "was withdrawn; remove it, and compare with `sharebench compare BEFORE AFTER`",
    "parts": "was withdrawn; name the folders to `sharebench join`",
    "survey": "was withdrawn; remove it, and give its keys as flags: `sharebench survey --help`",
    **dict.fromkeys(("drain", "buckets", "dcgm"), "was withdrawn; remove it"),
}
"""Keys of older versions, with the remedy; `{}` stands for their value."""
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
"""A link in the meaning of a key; only the manual shows links."""
TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "literal": "text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
}


@dataclass(frozen=True)
class _Place:
    """A value in a config: its dotted key, its section, and the rules of the last named key."""

    key: str
    section: dict[str, Any]
    rules: dict[str, Any] | None
    is_item: bool

    @property
    def explanation(self) -> str:
        """The first sentence of the key's meaning, with its default."""
        return _explanation(self.rules) if self.rules else str(self.section["description"])


def error_lines(error: ValidationError) -> list[str]:
    """A line about each error. Unknown keys come first: one that is misspelled is missing, too, which is left out."""
    details = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    misspelled = {each["loc"][:-1] for each in details if each["type"] == "extra_forbidden"}
    lines: dict[str, str] = {}
    for each in details:
        if each["type"] != "missing" or each["loc"][:-1] not in misspelled:
            key, line = _error_line(each)
            # A value that may be of several types has an error for each.
            lines.setdefault(key, line)
    return list(dict.fromkeys(lines.values()))


def faulty_parts(error: ValidationError) -> tuple[set[str], set[str]]:
    """The keys of the config that have an error, with those that are misspelled, and the entries of catalogues."""
    keys, entries = set[str](), set[str]()
    for details in error.errors(include_url=False):
        match details["loc"]:
            case ("strategy_catalogue" | "workload_catalogue", name, *_):
                entries.add(str(name))
            case (key, *_):
                keys |= {str(key), *get_close_matches(str(key), schema()["properties"], n=1, cutoff=0.5)}
    return keys, entries


def _error_line(details: ErrorDetails) -> tuple[str, str]:
    """What an error is about, a key or an entry of a list, and the line."""
    path = list(details["loc"])
    if details["type"] == values.CROSSED:
        key = ".".join(map(str, path))
        return key, f"{key}: {details['msg']}"
    name = path.pop() if details["type"] in ("extra_forbidden", "missing", "invalid_key") else ""
    if path and path[-1] == WRONG_KEY:
        path, name = path[:-2], WRONG_KEY
    place = _place(path)
    problem = _key_problem(details, place, str(name)) if name else _value_problem(details, place)
    line = f"{place.key}: {problem}" if place.key else problem
    return (line if name else f"{place.key} {[part for part in path if isinstance(part, int)]}"), line


def _place(path: list[int | str]) -> _Place:
    section, rules, names, is_item, is_free = schema(), None, [], False, False
    for part in path:
        if isinstance(part, int):
            is_item = True
        elif is_free:
            names.append(part)
            is_item, is_free = True, False
        elif part in section["properties"]:  # any other part names a type of a union
            names.append(part)
            rules = section["properties"][part]
            section = section_in(rules) or section
            is_item, is_free = False, any("patternProperties" in inner for inner in parts(rules))
    return _Place(".".join(names), section, rules, is_item)


def _explanation(rules: dict[str, Any]) -> str:
    text = LINK.sub(r"\1", re.split(r"\.(?:\s|$)", meaning(rules), maxsplit=1)[0]).replace("`", "")
    default = rules.get("default")
    return text if default in (None, {}, "") else f"{text}; default {quoted(default)}"


def _key_problem(details: ErrorDetails, place: _Place, name: str) -> str:
    known = place.section["properties"]
    if details["type"] == "missing":
        return f"{name} is missing; add it: {_explanation(known[name])}"
    if details["type"] == "extra_forbidden" and name in WITHDRAWN_KEYS:
        return f"{name}: {quoted(details['input'])} {WITHDRAWN_KEYS[name].format(details['input'])}"
    if details["type"] == "extra_forbidden":
        hint = " (a mapping needs a space after the colon)" if ":" in name else ""
        return unknown_value(name, known, "is an unknown key") + hint
    if details["type"] == values.REFUSED:
        return f"the name {quoted(details['input'])} {details['msg']}"
    return f"the key {details['input'] if name == WRONG_KEY else name!r} is not text; put it in quotes"


def _value_problem(details: ErrorDetails, place: _Place) -> str:
    value, kind, context = details["input"], details["type"], details.get("ctx", {})
    limits = {name: as_number(number) for name, number in context.items() if isinstance(number, int | float)}
    if kind in ("too_short", "too_long"):
        value = as_list(value)
    elif limits:
        value = as_number(value)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, UnicodeEncodeError):
        return f"{value!r:.60} ({type(value).__name__}) is not a plain value; put it in quotes"
    except (ValueError, RecursionError):
        return "is nested too deeply; look for a YAML anchor that contains itself"
    match kind:
        case "literal_error" if isinstance(value, str):
            words = re.findall("'[^']*'|True|False", context["expected"])
            known = (word.strip("'") if word[0] == "'" else word.lower() for word in words)
            return unknown_value(value, known, "is not known")
        case values.LISTED_TWICE:
            return f"{quoted(context['item'])} is listed twice; remove one"
        case "too_short" if value:
            problem = f"has too few entries; name at least {context['min_length']}"
        case "too_short":
            problem = "is empty; name at least one"
        case "string_too_short":
            problem = "is empty; give a name"
        case "too_long":
            problem = f"has more than {context['max_length']} entries; remove some"
        case "greater_than":
            problem = f"is not above {limits['gt']}; use a larger number"
        case "greater_than_equal":
            problem = f"is below {limits['ge']}; use {limits['ge']} or more"
        case "less_than_equal":
            problem = f"is above {limits['le']}; use {limits['le']} or less"
        case values.REFUSED:
            problem = details["msg"]
        case _ if kind.removesuffix("_type").removesuffix("_error") in TYPE_NAMES:
            problem = f"is not {TYPE_NAMES[kind.rpartition('_')[0]]}"
            if place.rules and not place.is_item and may_be_null(place.rules) and value is not None:
                problem += " or null"
            if kind == "dict_type":
                problem += "; write it as {key: value} with a space after the colon"
        case _:
            problem = f"is not allowed: {details['msg']}"
    text = repr(value) if isinstance(value, float) else quoted(value)
    return f"{text} {problem} ({place.explanation})"
