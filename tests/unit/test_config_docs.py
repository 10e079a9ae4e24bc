"""Schema, config files and manual say the same, and the manual's examples are true."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from snakemake.cli import parse_config
from snakemake.utils import update_config
from unit.config_cases import MALFORMED
from unit.studies import CONFIG, S, W, files, refusal, study

from sharebench.config.load import config_schema, load

MANUAL = (CONFIG / "README.md").read_text()
SCHEMA = config_schema()
STRATEGY, WORKLOAD = SCHEMA["$defs"]["strategy"], SCHEMA["$defs"]["workload"]
REQUIRED = object()


def leaves(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and default of everything that a person may set; a section stands for its keys."""
    for key, inner in schema.get("properties", {}).items():
        is_section = inner.get("default") == {} and inner.get("properties")
        if not is_section:
            yield prefix + key, inner.get("default", REQUIRED)
        yield from leaves(inner, f"{prefix}{key}.")


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, however deep."""
    if isinstance(schema, dict):
        if "object" in schema.get("type", ()):
            yield path, schema
        for key, inner in schema.items():
            yield from objects(inner, f"{path}/{key}")


OBJECTS = dict(objects(SCHEMA))
PROPERTIES = {
    f"{path}/{key}": inner for path, schema in OBJECTS.items() for key, inner in schema.get("properties", {}).items()
}


def manual_table(heading: str) -> dict[str, Any]:
    """Key and default of every row of the table under a heading of the manual."""
    section = MANUAL.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (?:`([^`]*)`|(required)) \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows
    assert all(meaning.strip() for *_, meaning in rows)
    table = {key: REQUIRED if required else as_yaml(default) for key, default, required, _ in rows}
    assert len(table) == len(rows)
    return table


def as_yaml(text: str) -> Any:
    value = yaml.safe_load(text)
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d+e-?\d+", value) else value


def flat(value: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of a config file, cut at the same depth as `leaves`."""
    for key, item in value.items():
        inner = schema["properties"][key]
        if isinstance(item, dict) and inner.get("properties"):
            yield from flat(item, inner, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", MANUAL, flags=re.MULTILINE | re.DOTALL)


def test_schema_is_valid_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(SCHEMA)


@pytest.mark.parametrize("path", OBJECTS)
def test_no_object_takes_unknown_keys(path: str) -> None:
    assert OBJECTS[path]["additionalProperties"] is False
    assert "properties" in OBJECTS[path] or "patternProperties" in OBJECTS[path]


@pytest.mark.parametrize("path", PROPERTIES)
def test_every_key_has_description_and_default(path: str) -> None:
    rules = PROPERTIES[path]
    assert rules["description"].endswith(".")
    owner, key = path.rsplit("/", 1)
    assert ("default" in rules) != (key in OBJECTS[owner].get("required", ()))
    if "default" in rules:
        jsonschema_rs.validate({**rules, "$defs": SCHEMA["$defs"]}, rules["default"])


def test_only_the_mechanism_is_required() -> None:
    required = {f"{path}/{key}" for path, schema in OBJECTS.items() for key in schema.get("required", ())}
    assert required == {"/$defs/strategy/mechanism", "/$defs/workload/properties/job/iterations"}


def test_every_pattern_says_what_it_wants() -> None:
    for path, rules in (OBJECTS | PROPERTIES).items():
        if "pattern" in rules or "patternProperties" in rules:
            assert rules["patternErrorMessage"], path


def test_config_file_holds_every_key_with_its_default() -> None:
    config = yaml.safe_load((CONFIG / "config.yaml").read_text())
    catalogues = {key: {} for key in (S, W)}  # these have files of their own
    assert dict(flat(config, SCHEMA)) | catalogues == dict(leaves(SCHEMA))


def test_config_file_explains_itself() -> None:
    """Every group of keys is under a comment."""
    for group in (CONFIG / "config.yaml").read_text().strip().split("\n\n"):
        assert group.startswith("#")


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("## Keys", SCHEMA),
        ("### An entry of `strategy_catalogue`", STRATEGY),
        ("### An entry of `workload_catalogue`", WORKLOAD),
    ],
)
def test_manual_holds_every_key_with_its_default(heading: str, schema: dict[str, Any]) -> None:
    assert manual_table(heading) == dict(leaves(schema))


def test_defaults_of_a_loaded_config_are_those_of_the_schema() -> None:
    loaded = load({key: files()[key] for key in (S, W)})
    kept = {key: value for key, value in loaded.items() if key not in (S, W)}
    assert dict(flat(kept, SCHEMA)) | {S: {}, W: {}} == dict(leaves(SCHEMA))


@pytest.mark.parametrize(("catalogue", "heading"), [(S, "## Strategies"), (W, "## Workloads")])
def test_manual_names_what_is_built_in(catalogue: str, heading: str) -> None:
    section = MANUAL.split(f"\n{heading}\n", 1)[1]
    listed = re.search(r"Built in: ((?:`[a-z0-9-]+`[,.\s]*)+)", section)
    assert listed
    assert re.findall(r"`([^`]+)`", listed[1]) == list(files()[catalogue])
    assert all(entry["description"].endswith(".") for entry in files()[catalogue].values())


def test_manual_lists_every_ready_made_config() -> None:
    ready = {path.name for path in CONFIG.glob("*.yaml")} - {"strategies.yaml", "workloads.yaml"}
    rows = dict(re.findall(r"^\| `(\w+\.yaml)` \| .+ \| `(.+)` \|$", MANUAL, flags=re.MULTILINE))
    assert set(rows) == ready
    for name, results in rows.items():
        assert yaml.safe_load((CONFIG / name).read_text())["results"] == results


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*.yaml")), ids=lambda path: path.name)
def test_editors_find_the_schema(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=schemas/config.schema.json"


def test_command_lines_of_the_manual_work() -> None:
    lines = "\n".join(code_blocks("bash")).splitlines() + re.findall(r"`([^`\n]*--config [^`\n]+)`", MANUAL)
    seen = 0
    for line in lines:
        line = line.replace('make run ARGS="', "").rstrip('"')
        words = shlex.split(line, comments=True)
        if "--config" in words:
            config = study({})
            update_config(config, parse_config(words[words.index("--config") + 1 :]))
            load(config)
            seen += 1
    assert seen >= 6


def test_yaml_of_the_manual_works() -> None:
    blocks = code_blocks("yaml")
    assert len(blocks) >= 5
    for block in blocks:
        config = study({})
        update_config(config, yaml.safe_load(block))
        load(config)


def test_refusals_of_the_manual_are_real() -> None:
    quoted = "".join(code_blocks("text")).splitlines()
    assert len(quoted) >= 12
    real = [refusal(changes) for changes, _ in MALFORMED.values()]
    for line in quoted:
        pattern = re.escape(line).replace(r"\.\.\.", ".*")
        assert any(re.fullmatch(pattern, refused) for refused in real), line
