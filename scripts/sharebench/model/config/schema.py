"""The keys of a config as JSON Schema, which editors, the manual and error lines use."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sharebench.model.study_config import StudyConfig

CONFIG = TypeAdapter(StudyConfig)


class _Schema(GenerateJsonSchema):
    """A generator that forbids unknown keys, and that leaves out titles, which would repeat the names."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {**super().dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def schema() -> dict[str, Any]:
    return CONFIG.json_schema(schema_generator=_Schema)


def parts(rules: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rules of a value, and of its alternatives, items and free keys, but not of the keys of a section."""
    yield rules
    inner = [*rules.get("anyOf", ()), *rules.get("oneOf", ()), *rules.get("patternProperties", {}).values()]
    if "$ref" in rules:
        inner.append(schema()["$defs"][rules["$ref"].removeprefix("#/$defs/")])
    if "items" in rules:
        inner.append(rules["items"])
    for part in inner:
        yield from parts(part)


def section_in(rules: dict[str, Any]) -> dict[str, Any] | None:
    """The section that a key's value is or contains; None without one."""
    return next((part for part in parts(rules) if "properties" in part), None)


def may_be_null(rules: dict[str, Any]) -> bool:
    return any(part.get("type") == "null" for part in rules.get("anyOf", ()))


def meaning(rules: dict[str, Any]) -> str:
    """The meaning of a key in Markdown, which a section has in its docstring."""
    section = section_in(rules) or {}
    return " ".join((rules.get("description") or section.get("description") or "").split())
