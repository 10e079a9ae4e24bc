"""Checks of the section `prometheus`, which yield each problem as one line."""

from collections.abc import Iterator

from sharebench.model.config.files import is_folder
from sharebench.model.prometheus_options import SCRAPES_PER_WINDOW, discovery_method
from sharebench.model.study_config import StudyConfig
from sharebench.model.words import quoted


def problems(config: StudyConfig, kind: str) -> Iterator[str]:
    section = config["prometheus"]
    if section["url"] is None:
        return
    if kind == "simulated":
        yield "prometheus.url: a simulated node has nothing to scrape; remove it, or set another node"
        return
    if config["from"]:
        return
    how = discovery_method(section)
    if how != "file" and kind != "kubernetes":
        yield (
            f"prometheus.discovery: {how!r} is of a cluster, and this is the node {kind!r}; set prometheus.folder "
            "to a folder whose *.json files Prometheus reads (file_sd_configs)"
        )
    elif how == "file" and section["folder"] is None:
        yield "prometheus.folder: null is not enough for discovery: file; name the folder that Prometheus reads"
    elif how == "file" and section["folder"] is not None and not is_folder(section["folder"]):
        folder = quoted(section["folder"])
        yield f"prometheus.folder: {folder} is not an existing folder; make it, and let Prometheus read it"
    needed = SCRAPES_PER_WINDOW * section["scrape_seconds"]
    if config["window_seconds"] < needed:
        yield (
            f"prometheus.scrape_seconds: {section['scrape_seconds']} gives a window of {config['window_seconds']} s "
            f"fewer than {SCRAPES_PER_WINDOW} scrapes; set window_seconds to {needed:g} or more, or scrape more often"
        )
