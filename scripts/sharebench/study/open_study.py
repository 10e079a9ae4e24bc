"""Making a study from a config as the user gave it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sharebench.model.config.load import ConfigError, load
from sharebench.model.study_config import StudyConfig
from sharebench.model.words import quoted
from sharebench.study.cells import is_excluded
from sharebench.study.study import Study


def open_study(config: Mapping[str, object], files: Iterable[Path | str] = ()) -> Study:
    """The study of a config with these files, normalised and checked (`config.load`). Raises ConfigError."""
    study = Study(load(config, files))
    if study.config["exclude"] and not study.config["from"] and (found := list(_exclusion_problems(study))):
        raise ConfigError(*found)
    return study


def _names_unused_entry(pattern: str, config: StudyConfig) -> bool:
    """Whether the pattern names a strategy or a workload of the catalogue that this study does not use.

    Parts of a study have such patterns. Pairs and faults have names of their own, and are not looked at.
    """
    strategy, workload = pattern.split("/")[:2]
    is_unused = strategy in config["strategy_catalogue"] and strategy not in config["strategies"]
    return is_unused or (workload in config["workload_catalogue"] and workload not in config["workloads"])


def _exclusion_problems(study: Study) -> Iterator[str]:
    """Entries of `exclude` that match no cell, and that no cell is left."""
    config = study.config
    all_cells = Study(config | {"exclude": []}).cells
    for pattern in config["exclude"]:
        if not _names_unused_entry(pattern, config) and not any(is_excluded(cell, pattern) for cell in all_cells):
            example = all_cells[-1].folder.removeprefix("cells/")
            problem = f"is not a cell of this study; one is {example}; change it, or remove it"
            yield f"exclude: {quoted(pattern)} {problem}"
    if not study.requested:
        yield f"exclude: {quoted(config['exclude'])} leaves no cell; remove an entry"
