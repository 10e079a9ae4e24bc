"""What can be wrong with the sections `prometheus` and `survey`."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from sharebench.config.words import shown
from sharebench.core.capabilities import resolve_node
from sharebench.core.config_nodes import SurveyOptions
from sharebench.core.prometheus_options import (
    BUCKET_RATIO,
    HIGHEST_SECONDS,
    LOWEST_SECONDS,
    SCRAPES_PER_WINDOW,
    discovery,
)
from sharebench.core.study_config import StudyConfig, is_on_several


def problems(config: StudyConfig, node_kind: str) -> Iterator[str]:
    yield from _survey(config["survey"])
    section = config["prometheus"]
    yield from _buckets(section["buckets"])
    if section["url"] is None:
        return
    if node_kind == "simulated":
        yield "prometheus.url: a simulated node has nothing to scrape; remove it, or set another node"
        return
    if config["from"] is not None:
        return
    if section["dcgm"] is not None and is_on_several(config, resolve_node(config)):
        yield f"prometheus.dcgm: {shown(section['dcgm'])} is of one device, and several are measured; remove it"
    how = discovery(section)
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
            yield f"survey.{key}: {shown(given)} has no effect on this host's GPUs; set survey.url, or remove it"
    empty, filled = section["empty_percent"], section["filled_percent"]
    if empty > filled:
        yield (
            f"survey.empty_percent: {empty} is above survey.filled_percent, {filled}; "
            "make it half of that, so that two fit together"
        )


def _buckets(bounds: list[float] | None) -> Iterator[str]:
    for bound in bounds or ():
        if not LOWEST_SECONDS <= bound <= HIGHEST_SECONDS:
            within = f"{LOWEST_SECONDS:g} and {HIGHEST_SECONDS:g}"
            yield f"prometheus.buckets: {bound} s is not within {within}; leave it out"
    for low, high in pairwise(bounds or ()):
        if high < low * BUCKET_RATIO:
            yield f"prometheus.buckets: {high} is not at least 1.1 % above {low}, which stands before it; change one"
