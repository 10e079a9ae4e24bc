"""Models, schema, config files and manual agree, and the manual's examples work."""

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
from unit.studies import CONFIG, S, W, base_config, config_with, refusal_line

import config_manual
from sharebench.model.config import schema as types
from sharebench.model.config.load import load
from sharebench.model.study_config import to_json

MANUAL = (CONFIG / "README.md").read_text()
SCHEMA = config_manual.schema()
LEAVES = {key: rules["default"] for key, rules in config_manual.rows(types.schema())}


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping in the schema, however deep."""
    if isinstance(schema, dict):
        yield path, schema
        for key, inner in schema.items():
            yield from nodes(inner, f"{path}/{key}")
    if isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from nodes(inner, f"{path}/{index}")


OBJECTS = {path: node for path, node in nodes(SCHEMA) if node.get("type") == "object"}
KEYS = {
    f"{section['title']}.{key}": rules
    for section in (types.schema(), *types.schema()["$defs"].values())
    for key, rules in section.get("properties", {}).items()
}


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of a config file, cut at the same depth as `LEAVES`."""
    for key, item in value.items():
        if isinstance(item, dict) and prefix + key not in LEAVES:
            yield from flat(item, f"{prefix}{key}.")
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


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_meaning_and_a_default_that_it_may_have(name: str) -> None:
    meaning = types.meaning(KEYS[name])
    assert meaning.endswith(".")
    assert "|" not in meaning
    if "default" in KEYS[name]:
        jsonschema_rs.validate({**KEYS[name], "$defs": SCHEMA["$defs"]}, KEYS[name]["default"])


def test_only_these_keys_are_required() -> None:
    required = {name for name, rules in KEYS.items() if "default" not in rules and "$ref" not in rules}
    written_by_us = {"SweepEntry.of", "SweepEntry.by", "SweepEntry.value"}
    assert required == {"Strategy.mechanism", "Job.iterations"} | written_by_us


def test_a_ready_made_config_satisfies_the_schema() -> None:
    """Only the loaded config is compared, since the files may have one value for a list."""
    jsonschema_rs.validate(SCHEMA, to_json(load(base_config())))


@pytest.mark.parametrize("path", config_manual.generated_files(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text("utf-8") == config_manual.generated_files()[path], "run `make docs`"


def test_the_manual_has_all_tables_of_keys() -> None:
    made = {found[2] for found in config_manual.TABLE.finditer(MANUAL)}
    assert made == {"config", S, W}
    assert {found[2] for found in config_manual.NAMES.finditer(MANUAL)} == {S, W}


def test_the_config_file_has_every_key_with_its_default() -> None:
    config = yaml.safe_load((CONFIG / "config.yaml").read_text())
    catalogues = {key: {} for key in (S, W)}  # these have files of their own
    assert dict(flat(config)) | catalogues == LEAVES


def test_defaults_of_a_loaded_config_are_those_of_the_models() -> None:
    loaded = load({key: base_config()[key] for key in (S, W)})
    kept = {key: value for key, value in loaded.items() if key not in (S, W)}
    assert dict(flat(kept)) | {S: {}, W: {}} == LEAVES


def test_every_entry_of_a_catalogue_has_a_description() -> None:
    assert all(entry["description"].endswith(".") for key in (S, W) for entry in base_config()[key].values())


def test_manual_lists_every_ready_made_config() -> None:
    ready = {path.name for path in CONFIG.glob("*.yaml")} - {"promises.yaml", "strategies.yaml", "workloads.yaml"}
    rows = dict(re.findall(r"^\| `(\w+\.yaml)` \| .+ \| `(.+)` \|$", MANUAL, flags=re.MULTILINE))
    assert set(rows) == ready
    for name, results in rows.items():
        assert yaml.safe_load((CONFIG / name).read_text())["results"] == results


def test_command_lines_of_the_manual_work() -> None:
    lines = "\n".join(code_blocks("bash")).splitlines() + re.findall(r"`([^`\n]*--config [^`\n]+)`", MANUAL)
    seen = 0
    for line in lines:
        line = line.replace('make run ARGS="', "").rstrip('"')
        words = shlex.split(line, comments=True)
        if "--config" in words:
            config = config_with({})
            update_config(
                config, parse_config([word for word in words[words.index("--config") :] if word != "--config"])
            )
            load(config)
            seen += 1
    assert seen >= 6


def test_yaml_of_the_manual_works() -> None:
    blocks = code_blocks("yaml")
    assert len(blocks) >= 5
    for block in blocks:
        config = config_with({})
        update_config(config, yaml.safe_load(block))
        load(config)


def test_refusals_quoted_in_the_manual_are_real() -> None:
    quoted = "".join(code_blocks("text")).splitlines()
    assert len(quoted) >= 4
    real = [line for changes, _ in MALFORMED.values() for line in refusal_line(changes).splitlines()]
    for line in quoted:
        pattern = re.escape(line).replace(r"\.\.\.", ".*")
        assert any(re.fullmatch(pattern, refused) for refused in real), line
