"""The configuration of a study: normalise, fill in defaults, validate, check across keys.

`core/study_config.py` has all keys; this module knows none of them by name. It runs at every parse of the Snakefile.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from sharebench.config import refusals, sweeps
from sharebench.config.checks import cross_key_problems
from sharebench.config.schema import CONFIG
from sharebench.core.study_config import StudyConfig


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
        checked = CONFIG.validate_python(_of_today(config))
    except ValidationError as error:
        raise ConfigError(refusals.line(error)) from None
    problem = next(sweeps.problems(checked), None)
    if problem is None:
        checked = sweeps.expanded(checked)
        problem = next(cross_key_problems(checked), None)
    if problem is not None:
        raise ConfigError(problem)
    return checked


def _of_today(config: Mapping[str, object]) -> dict[str, object]:
    """Without what older data sets say in keys that were withdrawn, where it is that the key was not used."""
    kept = {key: given for key, given in config.items() if (key, given) != ("slo_ms", None)}
    if isinstance(section := kept.get("kubernetes"), Mapping) and section.get("drain") is False:
        kept["kubernetes"] = {key: given for key, given in section.items() if key != "drain"}
    return kept


def check_files(paths: Iterable[Path | str]) -> None:
    """Raise ConfigError where a config file has a key twice, of which readers of YAML and JSON silently keep the last.

    The files can be read; what else they hold is for `load`.
    """
    import yaml  # imported late: only a parse of the Snakefile needs it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in paths:
        try:
            root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=loader)
        except yaml.YAMLError:
            continue  # JSON with tabs, for example, is not YAML
        waiting, seen = [root], set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue  # an anchor, possibly within itself
            seen.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                waiting += node.value
            elif isinstance(node, yaml.MappingNode):
                lines: dict[str, int] = {}
                for key, value in node.value:
                    line = key.start_mark.line + 1
                    if isinstance(key, yaml.ScalarNode):
                        if key.value in lines:
                            first = lines[key.value]
                            raise ConfigError(
                                f"{path}, line {line}: {key.value!r} is there already, in line {first}; keep one"
                            )
                        lines[key.value] = line
                    waiting.append(value)
