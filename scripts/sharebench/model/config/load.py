"""Loading the config of a study: normalise it, fill in defaults, validate it, check it across keys.

`core/study_config.py` has all keys. This module runs at every parse of the Snakefile.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from sharebench.core.files import Refusal
from sharebench.model.config import refusals, strategies, sweeps, workloads
from sharebench.model.config.checks import cross_key_problems, name_problems
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


def load(config: Mapping[str, object]) -> StudyConfig:
    """The complete config: normalised, with every default filled in, valid and consistent.

    `config` merges config files and the command line, so that numbers may be text and lists scalars; it is not changed.
    `load(load(config)) == load(config)`. Raises ConfigError and nothing else.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"the file: {config!r:.60} is not a mapping; write it as lines of key: value")
    given = _without_withdrawn_keys(config)
    try:
        checked = CONFIG.validate_python(given, context=CHECKS)
    except ValidationError as error:
        raise ConfigError(*refusals.error_lines(error), *_name_problems_beside(error, given)) from None
    if found := list(sweeps.problems(checked)):
        raise ConfigError(*found)
    checked = sweeps.expand(checked)
    if found := list(cross_key_problems(checked)):
        raise ConfigError(*found)
    return checked


def _name_problems_beside(error: ValidationError, given: Mapping[str, object]) -> list[str]:
    """What else is wrong with names, where the catalogues can be read, so that one run shows all."""
    faulty = {str(each["loc"][0]) for each in error.errors(include_url=False, include_input=False) if each["loc"]}
    try:
        rest = CONFIG.validate_python({key: given[key] for key in given if key not in faulty}, context=CHECKS)
    except ValidationError:
        return []
    if faulty & {"strategy_catalogue", "workload_catalogue"} or any(sweeps.problems(rest)):
        return []
    return [line for line in name_problems(sweeps.expand(rest)) if line.split(":")[0] not in faulty]


def _without_withdrawn_keys(config: Mapping[str, object]) -> dict[str, object]:
    """The config without withdrawn keys that are unused, or that a finished data set has (`from`)."""
    is_finished = config.get("from") is not None
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


def check_files(paths: Iterable[Path | str]) -> None:
    """Raise ConfigError where one of these readable config files has a key twice: only the last would count."""
    # libyaml's parser is quick; a PyYAML that was built without it has only its own.
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in paths:
        # JSON with tabs is not YAML.
        with Path(path).open(encoding="utf-8") as file, contextlib.suppress(yaml.YAMLError):
            for line, key in _repeated_keys(yaml.parse(file, Loader=parser)):
                raise ConfigError(f"{path}, line {line}: {key!r} is there already; remove one")


def _repeated_keys(events: Iterable[yaml.Event]) -> Iterator[tuple[int, str]]:
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
