"""A study from a config as it was given."""

from collections.abc import Mapping

from sharebench.config.load import ConfigError, load
from sharebench.config.words import quoted
from sharebench.core.study_config import StudyConfig
from sharebench.study.cells import is_excluded
from sharebench.study.study import Study


def open_study(config: Mapping[str, object]) -> Study:
    """The study of a config, normalised and checked (`config.load`). Raises ConfigError."""
    study = Study(load(config))
    if study.config["exclude"] and not study.config["datasets"] and study.config["from"] is None:
        _check_exclusions(study)
    return study


def _is_left_out_anyway(pattern: str, config: StudyConfig) -> bool:
    """Whether it is about a strategy or a workload of the catalogue that the study is without, as a part of a whole is.

    Pairs and faults are named by their workloads, of which the study may have others.
    """
    strategy, workload = pattern.split("/")[:2]
    is_left_out = strategy in config["strategy_catalogue"] and strategy not in config["strategies"]
    return is_left_out or (workload in config["workload_catalogue"] and workload not in config["workloads"])


def _check_exclusions(study: Study) -> None:
    """Raise ConfigError for entries that leave nothing out, or nothing over, of a config that is sound otherwise."""
    config = study.config
    everything = Study(config | {"exclude": []}).cells
    for pattern in config["exclude"]:
        if not _is_left_out_anyway(pattern, config) and not any(is_excluded(cell, pattern) for cell in everything):
            example = everything[-1].folder.removeprefix("cells/")
            problem = f"is not a cell of this study; one is {example}; change it, or remove it"
            raise ConfigError(f"exclude: {quoted(pattern)} {problem}")
    if not study.requested:
        raise ConfigError(f"exclude: {quoted(config['exclude'])} leaves no cell; remove an entry")
