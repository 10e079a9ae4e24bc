"""Checks of the sections `prometheus` and `survey`, which yield each problem as one line."""

from collections.abc import Iterator
from pathlib import Path

from sharebench.model.prometheus_options import SCRAPES_PER_WINDOW, discovery_method
from sharebench.model.question import SurveyOptions
from sharebench.model.study_config import StudyConfig
from sharebench.model.words import quoted


def problems(config: StudyConfig, node_kind: str) -> Iterator[str]:
    yield from _survey(config["survey"])
    section = config["prometheus"]
    if section["url"] is None:
        return
    if node_kind == "simulated":
        yield "prometheus.url: a simulated node has nothing to scrape; remove it, or set another node"
        return
    if config["from"] is not None:
        return
    how = discovery_method(section)
    if how != "file" and node_kind != "kubernetes":
        yield (
            f"prometheus.discovery: {how!r} is of a cluster, and this is the node {node_kind!r}; set prometheus.folder "
            "to a folder whose *.json files Prometheus reads (file_sd_configs)"
        )
    elif how == "file" and section["folder"] is None:
        yield "prometheus.folder: null is not enough for discovery: file; name the folder that Prometheus reads"
    elif how == "file" and section["folder"] is not None and not Path(section["folder"]).is_dir():
        yield f"prometheus.folder: {section['folder']!r} is not an existing folder; make it, and let Prometheus read it"
    needed = SCRAPES_PER_WINDOW * section["scrape_seconds"]
    if config["window_seconds"] < needed:
        yield (
            f"prometheus.scrape_seconds: {section['scrape_seconds']} gives a window of {config['window_seconds']} s "
            f"fewer than {SCRAPES_PER_WINDOW} scrapes; set window_seconds to {needed:g} or more, or scrape more often"
        )


def _survey(section: SurveyOptions) -> Iterator[str]:
    for key in ("labels", "namespaces"):
        if section["url"] is None and (given := section.get(key)):
            yield f"survey.{key}: {quoted(given)} has no effect on this host's GPUs; set survey.url, or remove it"
    empty, filled = section["empty_percent"], section["filled_percent"]
    if empty > filled:
        yield (
            f"survey.empty_percent: {empty} is above survey.filled_percent, {filled}; "
            "make it half of that, so that two fit together"
        )
