"""Loading the config of a study: normalise it, fill in defaults, validate it, check it across keys.

`core/study_config.py` has all keys. This module runs at every parse of the Snakefile.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sharebench.core.files import Refusal
from sharebench.model.config import nodes, refusals, strategies, sweeps, workloads
from sharebench.model.config.checks import cross_key_problems
from sharebench.model.config.schema import CONFIG
from sharebench.model.pod_template import PodTemplate
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import StudyConfig
from sharebench.model.traffic import Length, Load, Request
from sharebench.model.values import Checks
from sharebench.model.workload import Model, Workload

CHECKS: Checks = {
    Strategy: strategies.problems,
    PodTemplate: strategies.pod_problems,
    Workload: workloads.problems,
    Model: workloads.model_problems,
    Load: workloads.load_problems,
    Length: workloads.length_problems,
    Request: workloads.request_problems,
}
CATALOGUES = ("strategy_catalogue", "workload_catalogue")
# Withdrawn keys, of the config and by section, with the value that means in older data sets that the key is not used.
UNUSED_KEYS: dict[str, object] = {"slo_ms": None, "datasets": [], "parts": []}
# What a section `survey` has in an older data set that was no survey.
NO_SURVEY: dict[str, object] = {"url": None, "hours": None}
WITHDRAWN_KEYS: dict[str, dict[str, object]] = {
    "kubernetes": {"drain": False},
    "prometheus": {"buckets": None, "dcgm": None},
}


class ConfigError(Refusal):
    """The config cannot be used; the message has a line for each problem, with key, value and remedy."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(" ".join(f"config: {line}".split()) for line in lines))


class _Catalogue(dict[str, Any]):
    """A catalogue without its faulty entries. They and their sweeps are `in` it, and a look-up raises KeyError."""

    def __init__(self, entries: Mapping[str, object], faulty: Collection[str]) -> None:
        super().__init__((name, entry) for name, entry in entries.items() if name not in faulty)
        self._faulty = faulty

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or any(f"{name}-".startswith(f"{each}-") for each in self._faulty)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if super().__contains__(name) or name in self else default


def load(config: Mapping[str, object], files: Iterable[Path | str] = ()) -> StudyConfig:
    """The complete config: normalised, with every default filled in, valid and consistent.

    `config` merges config files and the command line, so that numbers may be text and lists scalars; it is not changed.
    `files` are its files that are readable, in which no key may be there twice.
    `load(load(config)) == load(config)`. Raises ConfigError with all that is wrong, and nothing else. What is faulty by
    itself is left out of the checks across keys.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"the file: {config!r:.60} is not a mapping; write it as lines of key: value")
    given = _without_withdrawn_keys(config)
    found = [line for path in files for line in _repeated_keys(path)]
    faulty_keys, faulty_entries = set[str](), set[str]()
    try:
        checked = CONFIG.validate_python(given, context=CHECKS)
    except ValidationError as error:
        found += refusals.error_lines(error)
        faulty_keys, faulty_entries = refusals.faulty_parts(error)
        try:
            checked = CONFIG.validate_python(_sound_part(given, faulty_keys, faulty_entries), context=CHECKS)
        except ValidationError:
            raise ConfigError(*found) from None
    checked = nodes.with_python(checked)
    for name, line in sweeps.problems(checked):
        found.append(line)
        faulty_entries.add(name)
    if is_whole := not found:
        checked = sweeps.expand(checked)
    else:
        checked = _sound_part(sweeps.expand(_sound_part(checked, (), faulty_entries)), faulty_keys, faulty_entries)
    if found := [*found, *cross_key_problems(checked, is_whole)]:
        raise ConfigError(*dict.fromkeys(found))
    return checked


def _sound_part(config: Mapping[str, Any], keys: Collection[str], entries: Collection[str]) -> Any:
    """The config without these faulty keys and entries of its catalogues."""
    return {
        key: _Catalogue(value, entries) if key in CATALOGUES and isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in keys
    }


def _without_withdrawn_keys(config: Mapping[str, object]) -> dict[str, object]:
    """The config without withdrawn keys that are unused, or that a finished data set has (`from`)."""
    is_finished = bool(config.get("from"))
    kept = {key: value for key, value in config.items() if key not in UNUSED_KEYS or value != UNUSED_KEYS[key]}
    if isinstance(survey := kept.get("survey"), Mapping) and survey.items() >= NO_SURVEY.items():
        del kept["survey"]
    for name, unused in WITHDRAWN_KEYS.items():
        if isinstance(section := kept.get(name), Mapping):
            kept[name] = {
                key: value
                for key, value in section.items()
                if key not in unused or (value != unused[key] and not is_finished)
            }
    return kept


def _repeated_keys(path: Path | str) -> Iterator[str]:
    """A line for each key that a readable config file has twice, of which only the last would count."""
    # libyaml's parser is quick; a PyYAML that was built without it has only its own.
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # JSON with tabs is not YAML.
    with Path(path).open(encoding="utf-8") as file, contextlib.suppress(yaml.YAMLError):
        for line, key in _repeated_names(yaml.parse(file, Loader=parser)):
            yield f"{path}, line {line}: {key!r} is there already; remove one"


def _repeated_names(events: Iterable[yaml.Event]) -> Iterator[tuple[int, str]]:
    """The line and the name of each key that its mapping has already."""
    # For each open mapping its keys, and whether the next node is a key; nothing for a list.
    open_collections: list[tuple[set[str], bool] | None] = [None]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            open_collections.pop()
        elif isinstance(event, yaml.NodeEvent):
            if mapping := open_collections[-1]:
                keys, is_key = mapping
                open_collections[-1] = keys, not is_key
                if is_key and isinstance(event, yaml.ScalarEvent):
                    if event.value in keys and event.start_mark:
                        yield event.start_mark.line + 1, event.value
                    keys.add(event.value)
            if isinstance(event, yaml.CollectionStartEvent):
                open_collections.append((set(), True) if isinstance(event, yaml.MappingStartEvent) else None)
