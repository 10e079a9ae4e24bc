"""What the config's `prometheus` section means: which cells Prometheus watches, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from sharebench.mixes import tenant_workloads

Json = Mapping[str, Any]

# The increase of a counter needs two samples in the window, and one of them may be late.
SCRAPES_PER_WINDOW = 3
# Bounds are moved to the record's nearest, which are 1.1 % apart.
BUCKET_RATIO = 1.011
LOWEST_SECONDS, HIGHEST_SECONDS = 1e-6, 1000.0


def is_on(config: Json) -> bool:
    """Whether a Prometheus is to watch the study."""
    return config["prometheus"]["url"] is not None


def discovery(section: Json) -> str:
    """How Prometheus finds the tenants: `file`, `pod-monitor` or `annotations`."""
    chosen: str = section["discovery"]
    if chosen != "auto":
        return chosen
    return "file" if section["folder"] is not None else "pod-monitor"


def has_pod_monitor(config: Json) -> bool:
    """Whether the run makes a PodMonitor, which it has to remove in the end."""
    return is_on(config) and discovery(config["prometheus"]) == "pod-monitor"


def in_spec(config: Json, spec: Json) -> dict[str, Any]:
    """What being watched adds to the cell's spec, since every scrape costs a tenant time; empty where nobody watches.

    Not watched are cells in which iterations are not counted one by one from start to end: jobs, queues, programs that
    count themselves, and cells with a fault. Calibrations are not either: they are repeat 0.
    """
    workloads = tenant_workloads(spec)
    is_counted = all(each.get("kind", "loop") in ("loop", "http") for each in workloads)
    if not is_on(config) or "fault" in spec or not is_counted or spec["repeat"] == 0:
        return {}
    section = config["prometheus"]
    return {"prometheus": {"scrape_seconds": section["scrape_seconds"], "buckets": section["buckets"]}}


def problems(config: Json, node_kind: str) -> Iterator[str]:
    """What is wrong with the section, a line each."""
    section = config["prometheus"]
    yield from _buckets(section["buckets"])
    if not is_on(config):
        return
    if not section["url"].startswith(("http://", "https://")):
        yield f"prometheus.url: {section['url']!r} is no URL; write it as http://localhost:9090"
    if node_kind == "simulated":
        yield "prometheus.url: a simulated node has nothing to scrape; remove it, or set another node"
        return
    if config["from"] is not None:
        return
    how = discovery(section)
    if how != "file" and node_kind != "kubernetes":
        yield (
            f"prometheus.discovery: {how!r} is of a cluster, and this is the node {node_kind!r}; set prometheus.folder "
            "to a folder whose *.json files Prometheus reads (file_sd_configs)"
        )
    elif how == "file" and section["folder"] is None:
        yield "prometheus.folder: null is not enough for discovery: file; name the folder that Prometheus reads"
    elif how == "file" and not Path(section["folder"]).is_dir():
        yield f"prometheus.folder: {section['folder']!r} is not an existing folder; make it, and let Prometheus read it"
    needed = SCRAPES_PER_WINDOW * section["scrape_seconds"]
    if config["window_seconds"] < needed:
        yield (
            f"prometheus.scrape_seconds: {section['scrape_seconds']} gives a window of {config['window_seconds']} s "
            f"fewer than {SCRAPES_PER_WINDOW} scrapes; set window_seconds to {needed:g} or more, or scrape more often"
        )


def _buckets(bounds: list[float] | None) -> Iterator[str]:
    for bound in bounds or ():
        if not LOWEST_SECONDS <= bound <= HIGHEST_SECONDS:
            within = f"{LOWEST_SECONDS:g} and {HIGHEST_SECONDS:g}"
            yield f"prometheus.buckets: {bound} s is not within {within}; leave it out"
    for low, high in pairwise(bounds or ()):
        if high < low * BUCKET_RATIO:
            yield f"prometheus.buckets: {high} is not at least 1.1 % above {low}, which stands before it; change one"
