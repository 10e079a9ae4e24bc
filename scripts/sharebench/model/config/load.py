"""Loading the config of a study: normalise it, fill in defaults, validate it, check it across keys.

`core/study_config.py` has all keys. This module runs at every parse of the Snakefile.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sharebench.core.files import Refusal
from sharebench.model.config import refusals, sweeps
from sharebench.model.config.checks import cross_key_problems
from sharebench.model.config.schema import CONFIG
from sharebench.model.study_config import StudyConfig

# Withdrawn keys by section, with the value that means in older data sets that the key is not used.
WITHDRAWN_KEYS: dict[str, dict[str, object]] = {
    "kubernetes": {"drain": False},
    "prometheus": {"buckets": None, "dcgm": None},
}


class ConfigError(Refusal):
    """The config cannot be used; the message is exactly one line with key, value and remedy."""

    def __init__(self, line: str) -> None:
        super().__init__(" ".join(f"config: {line}".split()))


def load(config: Mapping[str, object]) -> StudyConfig:
    """The complete config: normalised, with every default filled in, valid and consistent.

    `config` merges config files and the command line, so that numbers may be text and lists scalars; it is not changed.
    `load(load(config)) == load(config)`. Raises ConfigError and nothing else.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"the file: {config!r:.60} is not a mapping; write it as lines of key: value")
    try:
        checked = CONFIG.validate_python(_without_withdrawn_keys(config))
    except ValidationError as error:
        raise ConfigError(refusals.error_line(error)) from None
    problem = next(sweeps.problems(checked), None)
    if problem is None:
        checked = sweeps.expand(checked)
        problem = next(cross_key_problems(checked), None)
    if problem is not None:
        raise ConfigError(problem)
    return checked


def _without_withdrawn_keys(config: Mapping[str, object]) -> dict[str, object]:
    """The config without withdrawn keys that are unused, or that a finished data set has (`from`)."""
    is_finished = config.get("from") is not None
    kept = {key: value for key, value in config.items() if (key, value) != ("slo_ms", None)}
    for name, unused in WITHDRAWN_KEYS.items():
        if isinstance(section := kept.get(name), Mapping):
            kept[name] = {
                key: value
                for key, value in section.items()
                if key not in unused or (value != unused[key] and not is_finished)
            }
    return kept


class _UniqueKeyLoader(yaml.SafeLoader):
    """A loader that raises ConfigError for a repeated key, where others silently keep the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # This runs before the keys of `<<` are merged, which the mapping may override.
        node = super().compose_mapping_node(anchor)
        keys: list[object] = []
        for key, _ in node.value:
            if key.value in keys:
                line = key.start_mark.line + 1
                raise ConfigError(f"{self.name}, line {line}: {key.value!r} is there already; remove one")
            keys.append(key.value)
        return node


def check_files(paths: Iterable[Path | str]) -> None:
    """Raise ConfigError where one of these readable config files has a key twice."""
    for path in paths:
        # JSON with tabs is not YAML.
        with Path(path).open(encoding="utf-8") as file, contextlib.suppress(yaml.YAMLError):
            yaml.compose(file, Loader=_UniqueKeyLoader)
