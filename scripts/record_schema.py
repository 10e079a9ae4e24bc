"""Write the form of config/schemas/record.schema.json from a record's types; its meanings and bounds are kept.

pydantic cannot: before Python 3.12 it refuses the TypedDict of `typing`, and a tenant's contract has no other.
"""

import json
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from sharebench.model.records.record import SCHEMA_PATH
from sharebench.model.records.types import Record

Rules = dict[str, Any]
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
LINE_LENGTH = 120
# What the types say. Descriptions, bounds, and whether other keys may follow, stand in the file only.
FORM = ("type", "enum", "const", "items", "properties")


def schema() -> Rules:
    written: Rules = json.loads(SCHEMA_PATH.read_text("utf-8"))
    return _rules(Record, written, written["$defs"])


def is_current() -> bool:
    return bool(schema() == json.loads(SCHEMA_PATH.read_text("utf-8")))


def _rules(hint: Any, written: Rules, shared: Rules) -> Rules:
    """The rules of a type; `shared` are those that `$ref` names, which are updated in place."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if "$ref" in written:
        name = written["$ref"].removeprefix("#/$defs/")
        shared[name] = _rules(hint, shared[name], shared)
        return written
    if "anyOf" in written:
        pairs = zip(members, written["anyOf"], strict=True)
        return written | {"anyOf": [_rules(member, rules, shared) for member, rules in pairs]}
    form: Rules = {}
    kinds = []
    for member in members:
        kind, below = _form(member, written, shared)
        form |= below
        kinds += [kind] if kind else []
    if "enum" in form:
        form["enum"] += [None] * ("null" in kinds)
    elif kinds:
        form = {"type": kinds[0] if len(kinds) == 1 else kinds} | form
    return {key: rule for key, rule in written.items() if key not in (*FORM, *form)} | form


def _form(hint: Any, written: Rules, shared: Rules) -> tuple[str | None, Rules]:
    """The name of a type that is not a union, and the rules of what it holds."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        hints, below = get_type_hints(hint), written.get("properties", {})
        marked = get_type_hints(hint, include_extras=True)
        return "object", {
            "additionalProperties": written.get("additionalProperties", bool(below)),
            "required": [key for key in hints if get_origin(marked[key]) is not NotRequired],
            "properties": {key: _rules(each, below.get(key, {}), shared) for key, each in hints.items()},
        }
    if origin is Literal:
        return None, {"enum": [*arguments]} if len(arguments) > 1 else {"const": arguments[0]}
    if origin is list:
        return "array", {"items": _rules(arguments[0], written.get("items", {}), shared)}
    if origin is dict and (patterns := written.get("patternProperties")):
        values = {pattern: _rules(arguments[1], rules, shared) for pattern, rules in patterns.items()}
        return "object", {"patternProperties": values}
    if origin is dict:
        values = _rules(arguments[1], written.get("additionalProperties", {}), shared)
        return "object", {"additionalProperties": values} if values else {}
    return NAMES.get(hint), {}


def text(value: Any, indent: str = "") -> str:
    """JSON with a line for each rule that holds no others, as a person reads it who writes a meaning."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(indent + line) <= LINE_LENGTH or "{" not in line[1:]:
        return line
    inner = f"{indent}  "
    return "{\n" + ",\n".join(f'{inner}"{key}": {text(below, inner)}' for key, below in value.items()) + f"\n{indent}}}"


if __name__ == "__main__":
    SCHEMA_PATH.write_text(text(schema()) + "\n", "utf-8")
