"""Configs with random mistakes: a line for each, or a config that loads again to itself."""

import copy
import datetime
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from snakemake.utils import update_config
from unit.studies import CONFIG, base_config

from sharebench.model.config.load import ConfigError, load

pytestmark = pytest.mark.thorough

LOOP: list[Any] = []
LOOP.append(LOOP)
RING: dict[str, Any] = {}
RING["ring"] = RING
HOSTILE: list[Any] = [
    *(None, True, 0, -1, 7, 2**63, 10**400, 1e300, -0.5, float("nan"), float("inf")),
    *("", " ", "null", "nan", "1e309", "-1", "x", "a,b", "100/N", "\x00", "\x1b[31m", "\u202e", "\ud800", "é" * 300),
    *("{port}", "{prompt}", "${index}", "{env:", "../..", "/dev/zero", "/proc/self/mem", "http://[", "http://a:99999"),
    *([], [[]], [None], {}, {"": 1}, {1: 2}, {None: None}, {"x": {}}, b"bytes", (1, 2), {1}, LOOP, RING),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
]


@cache
def studies() -> dict[str, dict[str, Any]]:
    """The shipped studies that can be loaded on this machine."""
    loaded = {}
    for path in sorted(CONFIG.glob("*.yaml")):
        config = copy.deepcopy(base_config())
        own = yaml.safe_load(path.read_text())
        update_config(config, {} if "strategy_catalogue" in own and len(own) == 1 else own)
        try:
            load(config)
        except ConfigError:
            continue
        loaded[path.stem] = config
    return loaded


def sections(value: Any, outer: tuple[int, ...] = ()) -> list[Any]:
    """All mappings and lists in it that are not empty; a cycle is followed once."""
    if not isinstance(value, dict | list) or not value or id(value) in outer:
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(each for part in inner for each in sections(part, (*outer, id(value))))]


def mutate(config: dict[str, Any], data: Any) -> None:
    """Replace, misspell, remove or exchange a value somewhere in the config."""
    # The section of the study first, since the catalogues have most of the values.
    top = data.draw(st.sampled_from([config, *(value for value in config.values() if isinstance(value, dict | list))]))
    section = data.draw(st.sampled_from(sections(top) or [config]))
    key = data.draw(st.sampled_from(range(len(section)) if isinstance(section, list) else list(section)))
    match data.draw(st.sampled_from(("replace", "replace", "misspell", "remove", "exchange", "add"))):
        case "replace":
            section[key] = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
        case "misspell" if isinstance(section, dict) and isinstance(key, str):
            section[f"{key[:-1]}{data.draw(st.sampled_from(['', 'x', 'é', ':', chr(10)]))}"] = section.pop(key)
        case "remove":
            del section[key]
        case "exchange":
            other = data.draw(st.sampled_from(sections(config) or [config]))
            section[key] = copy.deepcopy(other)
        case "add" if isinstance(section, dict):
            added = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
            section[data.draw(st.sampled_from(["x", "", "url", "tenants", 1, None]))] = added


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_config_is_refused_in_printable_lines_or_loads_to_itself(data: Any) -> None:
    config = copy.deepcopy(studies()[data.draw(st.sampled_from(sorted(studies())))])
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(config, data)
    try:
        loaded = load(config)
    except ConfigError as refused:
        for line in str(refused).splitlines():
            assert line.startswith("config: ") and line.isprintable() and len(line) < 2000
    else:
        assert load(loaded) == loaded
