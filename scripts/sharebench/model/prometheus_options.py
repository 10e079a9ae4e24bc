"""Meaning of the config's `prometheus` section: which cells Prometheus watches, and how it finds the tenants."""

from typing import TYPE_CHECKING, Literal

from sharebench.model.spec import Spec, WatchSpec

if TYPE_CHECKING:
    from sharebench.model.config_nodes import PrometheusOptions

Discovery = Literal["file", "pod-monitor", "annotations"]

# The increase of a counter needs two samples in the window, and one of them may be late.
SCRAPES_PER_WINDOW = 3


def has_prometheus(section: "PrometheusOptions") -> bool:
    return section["url"] is not None


def discovery_method(section: "PrometheusOptions") -> Discovery:
    """How Prometheus finds the tenants, with `auto` resolved."""
    if (chosen := section["discovery"]) != "auto":
        return chosen
    return "file" if section["folder"] is not None else "pod-monitor"


def has_pod_monitor(section: "PrometheusOptions") -> bool:
    """Whether the run makes a PodMonitor, and removes it in the end."""
    return has_prometheus(section) and discovery_method(section) == "pod-monitor"


def watch_spec(section: "PrometheusOptions", spec: Spec) -> WatchSpec | None:
    """The spec of a watched cell's scrapes, each of which costs a tenant time; None for a cell that is not watched.

    Prometheus watches only cells whose iterations are counted one by one for the whole window. That excludes jobs,
    queues, programs that count themselves, and cells with a fault. Calibrations, repeat 0, are not watched either.
    """
    is_counted = all(workload.kind in ("loop", "http") for workload in spec.workloads)
    if not has_prometheus(section) or spec.fault is not None or not is_counted or spec.repeat == 0:
        return None
    return WatchSpec(scrape_seconds=section["scrape_seconds"])
