"""The keys of a config as JSON Schema, which editors, the manual and error lines use."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sharebench.model.study_config import StudyConfig

CONFIG = TypeAdapter(StudyConfig)


class _Schema(GenerateJsonSchema):
    """A generator that forbids unknown keys, takes meanings from docstrings, and leaves out titles, which would repeat
    the names. pydantic's own reading of docstrings would make every start slower, for text that few starts need."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _with_meanings(super().model_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _with_meanings(super().typed_dict_schema(schema), schema["cls"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {**super().dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _with_meanings(section: JsonSchemaValue, cls: type) -> JsonSchemaValue:
    for name, text in _attribute_docstrings(cls).items():
        if rules := section["properties"].get(name):
            rules.setdefault("description", text)
    return section


def _attribute_docstrings(cls: type) -> dict[str, str]:
    """The docstrings below a class's annotations and below those of its bases, by attribute."""
    found: dict[str, str] = {}
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        if getattr(base, "__annotations__", None):
            found |= _attribute_docstrings(base)
    for statement, docstring in pairwise(_class_bodies(cls.__module__).get(cls.__name__, ())):
        match statement, docstring:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements in each class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


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
