"""The types of a record agree with its schema, key by key."""

import json
import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from sharebench.model.records.record import SCHEMA_PATH
from sharebench.model.records.types import Record, TenantRecord
from tenant.contract import TenantMeasurement, TenantReport

SCHEMA: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
SCALARS: dict[str, type] = {"string": str, "number": float, "integer": int, "boolean": bool, "null": type(None)}


def expected_hint(schema: dict[str, Any], hint: Any) -> Any:
    """The type hint that the schema implies; objects with fixed keys are compared with `hint` on the way."""
    if "$ref" in schema:
        return expected_hint(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], hint)
    if "anyOf" in schema:
        return Union[tuple(expected_hint(each, hint) for each in schema["anyOf"])]  # noqa: UP007
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        literal = Literal[tuple(value for value in values if value is not None)]
        return literal | None if None in values else literal
    if "type" not in schema:
        return Any
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return Union[tuple(SCALARS[kind] if kind in SCALARS else container(kind, schema, hint) for kind in kinds)]  # noqa: UP007


def container(kind: str, schema: dict[str, Any], hint: Any) -> Any:
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    inner = next((each for each in choices if each is not type(None)), Any)
    below = get_args(inner)[-1] if get_args(inner) else Any
    if kind == "array":
        return list[expected_hint(schema["items"], below)]  # type: ignore[misc]
    if "properties" in schema:
        compare(schema, inner)
        return inner
    values = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), {})
    return dict[str, expected_hint(values, below)]  # type: ignore[misc]


def compare(schema: dict[str, Any], typed: Any) -> None:
    assert is_typeddict(typed), typed
    hints = get_type_hints(typed, include_extras=True)
    assert hints.keys() == schema["properties"].keys(), typed
    for key, below in schema["properties"].items():
        hint = hints[key]
        is_optional = get_origin(hint) is NotRequired
        assert is_optional == (key not in schema["required"]), f"{typed.__name__}.{key}: required"
        hint = get_args(hint)[0] if is_optional else hint
        # Telemetry notes at a key how a queue joins it.
        hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        assert same(hint, expected_hint(below, hint)), (
            f"{typed.__name__}.{key}: {hint}, not {expected_hint(below, hint)}"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two hints mean the same, whatever the order of a Literal's values."""
    if get_origin(one) is Literal and get_origin(other) is Literal:
        return set(get_args(one)) == set(get_args(other))
    unions = (Union, types.UnionType)
    if get_origin(one) in unions and get_origin(other) in unions:
        rest = list(get_args(other))
        return len(rest) == len(get_args(one)) and all(any(same(a, b) for b in rest) for a in get_args(one))
    if get_args(one) and get_origin(one) is get_origin(other):
        return all(same(a, b) for a, b in zip(get_args(one), get_args(other), strict=True))
    return bool(one == other)


def test_every_key_of_a_record_has_the_type_of_the_schema() -> None:
    compare(SCHEMA, Record)


def test_a_tenant_record_is_its_report_without_the_keys_that_the_driver_removes() -> None:
    reported = get_type_hints(TenantReport).keys()
    assert reported - get_type_hints(TenantRecord).keys() == {"environment", "outside"}
    assert get_type_hints(TenantRecord).keys() - reported == {"status", "exit"}
    assert get_type_hints(TenantMeasurement).keys() < reported
