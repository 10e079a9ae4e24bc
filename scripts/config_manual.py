"""Write the files that are generated from the config's types: its JSON schema, and the tables of keys in its manual."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema

from sharebench.model.capabilities import unsupported_reason
from sharebench.model.config import schema as types
from sharebench.model.config.refusals import LINK
from sharebench.model.strategy import Strategy
from sharebench.model.words import quoted

FOLDER = Path(__file__).resolve().parent.parent / "config"
SCHEMA, MANUAL = FOLDER / "schemas" / "config.schema.json", FOLDER / "README.md"
BUILT_IN = {"strategy_catalogue": FOLDER / "strategies.yaml", "workload_catalogue": FOLDER / "workloads.yaml"}
TABLE = re.compile(r"(<!-- keys of (\w+), by `make docs` -->\n).*?(<!-- end of keys -->)", re.DOTALL)
NAMES = re.compile(r"(<!-- names of (\w+), by `make docs` -->\n).*?(<!-- end of names -->)", re.DOTALL)


def schema() -> dict[str, Any]:
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": "sharebench/config/1"}
    rules: dict[str, Any] = _without_links(types.schema())
    return {**head, **rules, "title": "Configuration of a study"}


def table(section: dict[str, Any]) -> str:
    lines = [f"| `{key}` | {_default(rules)} | {types.meaning(rules)} |" for key, rules in rows(section)]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *lines]) + "\n"


def manual() -> str:
    rules = types.schema()
    sections = {"config": rules, **{name: types.section_in(rules["properties"][name]) or {} for name in BUILT_IN}}
    text = TABLE.sub(lambda match: f"{match[1]}{table(sections[match[2]])}{match[3]}", MANUAL.read_text("utf-8"))
    return NAMES.sub(lambda match: f"{match[1]}{names(match[2])}{match[3]}", text)


def names(catalogue: str) -> str:
    entries = yaml.safe_load(BUILT_IN[catalogue].read_text("utf-8"))[catalogue]
    of_clusters = [name for name in entries if "access" in entries[name]]
    hosts = [name for name in entries if name not in of_clusters]
    groups = {"Built in": hosts, "Only for clusters": of_clusters}
    if catalogue == "strategy_catalogue":
        strategies = {name: Strategy(name=name, **entries[name]) for name in hosts}
        for kind, node in (("simulated", "simulated node"), ("cpu", "CPU stand-in")):
            lacking = [name for name in hosts if unsupported_reason(kind, strategies[name], None)]
            groups[f"Not on the {node}"] = lacking
    text = " ".join(f"{kind}: {', '.join(f'`{name}`' for name in of)}." for kind, of in groups.items() if of)
    return textwrap.fill(text, 120, break_on_hyphens=False) + "\n"


def _without_links(value: Any, key: str = "") -> Any:
    """The rules with descriptions for editors, where links to the manual lead nowhere."""
    if isinstance(value, dict):
        return {name: _without_links(inner, name) for name, inner in value.items()}
    return LINK.sub(r"\1", " ".join(value.split())) if key == "description" and isinstance(value, str) else value


def rows(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Dotted keys with their rules; a section has no row of its own, unless it may be absent."""
    for key, rules in section["properties"].items():
        inner = types.section_in(rules)
        is_many = any("items" in part or "patternProperties" in part for part in types.parts(rules))
        if inner is None or is_many or types.may_be_null(rules):
            yield prefix + key, rules
        if inner is not None and not is_many:
            yield from rows(inner, f"{prefix}{key}.")


def _default(rules: dict[str, Any]) -> str:
    if "default" not in rules:
        return "required"
    value = rules["default"]
    if isinstance(value, str):
        return f"`{value}`" if value and yaml.safe_load(value) == value else f'`"{value}"`'
    return f"`{quoted(value)}`"


def generated_files() -> dict[Path, str]:
    return {SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", MANUAL: manual()}


if __name__ == "__main__":
    for path, text in generated_files().items():
        path.write_text(text, "utf-8")
