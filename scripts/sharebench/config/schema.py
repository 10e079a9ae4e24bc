"""The keys of a config as JSON Schema: what editors, the manual and lines about errors say of them."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sharebench.core.study_config import StudyConfig

CONFIG = TypeAdapter(StudyConfig)


class _Schema(GenerateJsonSchema):
    """No mapping takes keys but its own, and no title repeats a name."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {**super().dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def schema() -> dict[str, Any]:
    return CONFIG.json_schema(schema_generator=_Schema)


def parts(rules: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rules of a value, and those of all that it may be or hold, but for the keys of sections."""
    yield rules
    inner = [*rules.get("anyOf", ()), *rules.get("oneOf", ()), *rules.get("patternProperties", {}).values()]
    if "$ref" in rules:
        inner.append(schema()["$defs"][rules["$ref"].removeprefix("#/$defs/")])
    for each in [*inner, *([rules["items"]] if "items" in rules else [])]:
        yield from parts(each)


def section_in(rules: dict[str, Any]) -> dict[str, Any] | None:
    """The section that is the value of a key, or that the values in it are."""
    return next((part for part in parts(rules) if "properties" in part), None)


def may_be_null(rules: dict[str, Any]) -> bool:
    return any(part.get("type") == "null" for part in rules.get("anyOf", ()))


def meaning(rules: dict[str, Any]) -> str:
    """What a key is, in Markdown; that of a section is in its docstring."""
    section = section_in(rules) or {}
    return " ".join((rules.get("description") or section.get("description") or "").split())
