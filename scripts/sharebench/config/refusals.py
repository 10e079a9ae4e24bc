"""What pydantic finds wrong with a config, as one line for the person who wrote it: key, value, remedy."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from sharebench.config import values
from sharebench.config.values import REFUSED, Section, as_list, as_number
from sharebench.config.words import shown, unknown

WRONG_KEY = "[key]"
"""The last part of pydantic's path to a key, instead of its value, of a mapping with free keys."""
RENAMED = {"slo_ms": "is now slo.latency_ms; write slo: {{latency_ms: {}}}"}
"""Keys that were called otherwise, with what to write for their value."""
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
"""A link in the meaning of a key, which only the manual shows."""
WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "literal": "text",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a section, by the names that a config has for them."""
    return {rules.alias or name: rules for name, rules in section.model_fields.items()}


def section_in(rules: FieldInfo) -> type[Section] | None:
    """The section that is the value of a key, or that the values in it are."""
    return next((each for each in types_in(rules.annotation) if issubclass(each, Section)), None)


def types_in(annotation: Any) -> Iterator[type]:
    """All types that an annotation is made of."""
    outer = get_origin(annotation) or annotation
    if isinstance(outer, type):
        yield outer
    for inner in get_args(annotation):
        yield from types_in(inner)


def meaning(rules: FieldInfo) -> str:
    """What a key is, in Markdown; that of a section is in its docstring."""
    section = section_in(rules)
    return " ".join((rules.description or (section and section.__doc__) or "").split())


@dataclass(frozen=True)
class _Place:
    """A value in a config: its dotted key, the section that it is (or is in), and the rules of the last named key."""

    key: str
    section: type[Section]
    rules: FieldInfo | None
    is_item: bool

    @property
    def about(self) -> str:
        """What the key means, in a sentence, and its default."""
        return _about(self.rules) if self.rules else str(self.section.__doc__)


def line(error: ValidationError, model: type[Section]) -> str:
    """The first of the errors; an unknown key goes before the others, as their usual cause."""
    details = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    path = list(details["loc"])
    name = path.pop() if details["type"] in ("extra_forbidden", "missing", "invalid_key") else ""
    if path and path[-1] == WRONG_KEY:
        path, name = path[:-2], WRONG_KEY
    place = _place(path, model)
    problem = _problem_of_key(details, place, str(name)) if name else _problem(details, place)
    return f"{place.key}: {problem}" if place.key else problem


def _place(path: list[int | str], section: type[Section]) -> _Place:
    rules, names, is_item, is_free = None, [], False, False
    for part in path:
        if isinstance(part, int):
            is_item = True
        elif is_free:
            names.append(part)
            is_item, is_free = True, False
        elif part in keys(section):  # another part is one of the types that a value may have
            names.append(part)
            rules = keys(section)[part]
            section = section_in(rules) or section
            is_item, is_free = False, dict in types_in(rules.annotation)
    return _Place(".".join(names), section, rules, is_item)


def _about(rules: FieldInfo) -> str:
    text = LINK.sub(r"\1", re.split(r"\.(?:\s|$)", meaning(rules), maxsplit=1)[0]).replace("`", "")
    has_default = not rules.is_required() and rules.default_factory is None and rules.default not in (None, {}, "")
    return f"{text}; default {shown(rules.default)}" if has_default else text


def _problem_of_key(details: ErrorDetails, place: _Place, name: str) -> str:
    known = keys(place.section)
    if details["type"] == "missing":
        return f"{name} is missing; add it: {_about(known[name])}"
    if details["type"] == "extra_forbidden" and name in RENAMED:
        return f"{name}: {shown(details['input'])} {RENAMED[name].format(details['input'])}"
    if details["type"] == "extra_forbidden":
        hint = " (a mapping needs a space after the colon)" if ":" in name else ""
        return unknown(name, known, "is an unknown key") + hint
    if details["type"] == REFUSED:
        return f"the name {shown(details['input'])} {details['msg']}"
    return f"the key {details['input'] if name == WRONG_KEY else name!r} is not text; put it in quotes"


def _problem(details: ErrorDetails, place: _Place) -> str:
    value, kind, given = details["input"], details["type"], details.get("ctx", {})
    limit = {name: as_number(number) for name, number in given.items() if isinstance(number, int | float)}
    if kind in ("too_short", "too_long"):
        value = as_list(value)
    elif limit:
        value = as_number(value)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, UnicodeEncodeError):
        return f"{value!r:.60} ({type(value).__name__}) is not a plain value; put it in quotes"
    except (ValueError, RecursionError):
        return "is nested too deeply; look for a YAML anchor that contains itself"
    match kind:
        case "literal_error" if isinstance(value, str):
            return unknown(value, re.findall("'([^']*)'", given["expected"]), "is not known")
        case values.TWICE:
            return f"{shown(given['item'])} is listed twice; remove one"
        case "too_short" if value:
            problem = f"has too few entries; name at least {given['min_length']}"
        case "too_short":
            problem = "is empty; name at least one"
        case "string_too_short":
            problem = "is empty; give a name"
        case "too_long":
            problem = f"has more than {given['max_length']} entries; remove some"
        case "greater_than":
            problem = f"is not above {limit['gt']}; use a larger number"
        case "greater_than_equal":
            problem = f"is below {limit['ge']}; use {limit['ge']} or more"
        case "less_than_equal":
            problem = f"is above {limit['le']}; use {limit['le']} or less"
        case values.REFUSED:
            problem = details["msg"]
        case _ if kind.removesuffix("_type").removesuffix("_error") in WANTED:
            problem = f"is not {WANTED[kind.rpartition('_')[0]]}"
            can_be_null = place.rules and not place.is_item and NoneType in types_in(place.rules.annotation)
            if can_be_null and value is not None:
                problem += " or null"
            if kind in ("model_type", "dict_type"):
                problem += "; write it as {key: value} with a space after the colon"
        case _:
            problem = f"is not allowed: {details['msg']}"
    text = repr(value) if isinstance(value, float) else shown(value)
    return f"{text} {problem} ({place.about})"
