"""Write what is made from the models of the config: its JSON schema, and the tables of keys in its manual."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import yaml
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sharebench.config.catalogue_models import Strategy, Workload
from sharebench.config.models import Config
from sharebench.config.refusals import LINK, keys, meaning, section_in, types_in
from sharebench.config.values import Section
from sharebench.config.words import shown

FOLDER = Path(__file__).resolve().parent.parent / "config"
SCHEMA, MANUAL = FOLDER / "schemas" / "config.schema.json", FOLDER / "README.md"
BUILT_IN = {
    "strategy_catalogue": FOLDER / "strategies.yaml",
    "workload_catalogue": FOLDER / "workloads.yaml",
}
TABLE = re.compile(r"(<!-- keys of (\w+), by `make docs` -->\n).*?(<!-- end of keys -->)", re.DOTALL)
NAMES = re.compile(r"(<!-- names of (\w+), by `make docs` -->\n).*?(<!-- end of names -->)", re.DOTALL)


class _Schema(GenerateJsonSchema):
    """No mapping takes keys but its own, and no title repeats a name."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {**super().dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    of_models = Config.model_json_schema(schema_generator=_Schema)
    head = {"$schema": _Schema.schema_dialect, "$id": "sharebench/config/1", "title": "Configuration of a study"}
    return head | {key: _without_links(value) for key, value in of_models.items() if key != "title"}


def table(section: type[Section]) -> str:
    lines = [f"| `{key}` | {_default(rules)} | {meaning(rules)} |" for key, rules in rows(section)]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *lines]) + "\n"


def manual() -> str:
    sections: dict[str, type[Section]] = {
        "config": Config,
        "strategy_catalogue": Strategy,
        "workload_catalogue": Workload,
    }
    text = TABLE.sub(lambda found: f"{found[1]}{table(sections[found[2]])}{found[3]}", MANUAL.read_text("utf-8"))
    return NAMES.sub(lambda found: f"{found[1]}{names(found[2])}{found[3]}", text)


def names(catalogue: str) -> str:
    known = ", ".join(f"`{name}`" for name in yaml.safe_load(BUILT_IN[catalogue].read_text("utf-8"))[catalogue])
    return textwrap.fill(f"Built in: {known}.", 120, break_on_hyphens=False) + "\n"


def _without_links(value: Any, key: str = "") -> Any:
    """Texts as an editor shows them, which has no manual to lead to."""
    if isinstance(value, dict):
        return {name: _without_links(inner, name) for name, inner in value.items()}
    return LINK.sub(r"\1", " ".join(value.split())) if key == "description" and isinstance(value, str) else value


def rows(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """What a person may set: a section stands for its keys, unless it may be absent."""
    for key, rules in keys(section).items():
        types, inner = set(types_in(rules.annotation)), section_in(rules)
        if inner is None or types & {NoneType, dict, list}:
            yield prefix + key, rules
        if inner is not None and not types & {dict, list}:
            yield from rows(inner, f"{prefix}{key}.")


def _default(rules: FieldInfo) -> str:
    if rules.is_required():
        return "required"
    value = rules.default
    if isinstance(value, str):
        return f"`{value}`" if value and yaml.safe_load(value) == value else f'`"{value}"`'
    return f"`{shown(value)}`"


def made() -> dict[Path, str]:
    return {SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", MANUAL: manual()}


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text, "utf-8")
