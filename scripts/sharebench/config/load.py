"""The configuration of a study: normalise, fill in defaults, validate, check across keys.

`core/study_config.py` has all keys; this module knows none of them by name. It runs at every parse of the Snakefile.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sharebench.config import refusals, sweeps
from sharebench.config.checks import cross_key_problems
from sharebench.config.schema import CONFIG
from sharebench.core.study_config import StudyConfig

# Keys that were withdrawn, by section, with the value by which older data sets say that they are not used.
WITHDRAWN_KEYS: dict[str, dict[str, object]] = {
    "kubernetes": {"drain": False},
    "prometheus": {"buckets": None, "dcgm": None},
}


class ConfigError(Exception):
    """The config cannot be used; the message is exactly one line that names key, value and remedy."""

    def __init__(self, line: str) -> None:
        super().__init__(" ".join(f"config: {line}".split()))


def load(config: Mapping[str, object]) -> StudyConfig:
    """The complete config: normalised, with every default filled in, valid and consistent.

    `config` is the merge of config files and command line, in which numbers may be text and lists scalars; it
    is not changed. `load(load(config)) == load(config)`. Raises ConfigError and nothing else.
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
    """Without keys that were withdrawn, where they were not used, or the study is an older data set's (`from`)."""
    is_measured = config.get("from") is not None
    kept = {key: given for key, given in config.items() if (key, given) != ("slo_ms", None)}
    for name, unused in WITHDRAWN_KEYS.items():
        if isinstance(section := kept.get(name), Mapping):
            kept[name] = {
                key: given
                for key, given in section.items()
                if key not in unused or (given != unused[key] and not is_measured)
            }
    return kept


class _UniqueKeyLoader(yaml.SafeLoader):
    """Raises ConfigError for a key that is in a mapping already, where others silently keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Before `<<` is filled in, whose keys the mapping may override.
        node = super().compose_mapping_node(anchor)
        seen: list[object] = []
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(f"{self.name}, line {line}: {key.value!r} is there already; remove one")
            seen.append(key.value)
        return node


def check_files(paths: Iterable[Path | str]) -> None:
    """Raise ConfigError where one of these config files, which can be read, has a key twice."""
    for path in paths:
        # JSON with tabs is not YAML.
        with Path(path).open(encoding="utf-8") as file, contextlib.suppress(yaml.YAMLError):
            yaml.compose(file, Loader=_UniqueKeyLoader)
