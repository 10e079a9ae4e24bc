"""GPU usage in a cluster, from dcgm-exporter's metrics in Prometheus: time series by workload and GPU."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import pandas as pd

from sharebench.measure.cell.prometheus.server import Labels, PrometheusUnavailable, Server, duration, selector
from sharebench.measure.nodes.counters import Samples
from sharebench.model.records.usage import (
    ACTIVITIES,
    DRAM,
    ENGINE,
    MEMORY,
    POWER,
    QUANTITIES,
    SM,
    UTIL,
    GpuPlace,
    ObservedUsage,
    Usage,
)

# The exporter's names (etc/dcp-metrics-included.csv) and ours. Those with PROF are ratios, not percentages; SM_ACTIVE
# must be enabled in the exporter's own list.
FREE_MIB = "memory_free_mib"
METRICS = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ENGINE,
    "DCGM_FI_PROF_SM_ACTIVE": SM,
    "DCGM_FI_PROF_DRAM_ACTIVE": DRAM,
    "DCGM_FI_DEV_GPU_UTIL": UTIL,
    "DCGM_FI_DEV_POWER_USAGE": POWER,
    "DCGM_FI_DEV_FB_USED": MEMORY,
    "DCGM_FI_DEV_FB_FREE": FREE_MIB,
}
INSTANCE, PROFILE = "GPU_I_ID", "GPU_I_PROFILE"
Key = tuple[str, str]
# A day has 1440 rows, and the answer for a hundred GPUs a few megabytes; the exporter's interval is 30 s.
MAX_STEPS, MIN_STEP_SECONDS = 1440, 30.0
HOURS = 24.0
# A day of a large cluster takes a busy server some seconds.
ANSWER_SECONDS = 120
# The generated end of a pod's name (its ReplicaSet's and its own), in the letters that Kubernetes uses.
LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
GENERATED_SUFFIX = re.compile(f"(-{LETTERS}{{6,10}})?-{LETTERS}{{5}}$")
# A hundredth of DCGM's smallest blank value (dcgm_structs.h, DCGM_INT32_BLANK), which no metric reaches: the mean over
# a step may include a blank.
BLANK_LIMIT = 0x7FFFFFF0 / 100
EXPORTER = "dcgm-exporter"
# Whole GPUs, and what plugins offer in their place: replicas, and resources renamed to nvidia.com/gpu.shared.
UNITS = 'kube_node_status_allocatable{resource=~"nvidia_com_gpu.*"}'
# Pods of KAI and Run:ai that hold a GPU for those that have parts of it.
RESERVING_NAMESPACES = ("kai-resource-reservation", "runai-reservation")
# When a pod ends and the next one begins, both are in one step.
SHARED_RATIO = 0.1


def device_key(labels: Labels) -> Key:
    """The key of a device: the node, and the GPU's UUID (or its index)."""
    return labels.get("Hostname", ""), labels.get("UUID") or labels.get("gpu", "")


def workload_name(pod: str) -> str:
    """The workload of a pod from the pod's name: the name of its Deployment, DaemonSet or Job."""
    return GENERATED_SUFFIX.sub("", pod)


def pod_key(labels: Labels, is_renamed: bool) -> tuple[str, str] | None:
    """Namespace and name of the pod that has the GPU; None where no pod has it.

    Where Prometheus does not honour the exporter's labels (`is_renamed`), the pod's labels begin with `exported_`, and
    the plain labels are the exporter's own.
    """
    prefix = "exported_" if is_renamed else ""
    pod = labels.get(f"{prefix}pod", "")
    if not pod or (EXPORTER in pod and not is_renamed):
        return None
    return labels.get(f"{prefix}namespace", ""), pod


def gpu_usage(server: Server, labels: Labels, hours: float, now: float) -> ObservedUsage:
    """The usage in the hours before a moment (epoch seconds). Raises PrometheusUnavailable."""
    step_seconds = max(MIN_STEP_SECONDS, round(3600 * hours / MAX_STEPS))
    step = duration(step_seconds)
    found = {
        metric: server.time_series(f"avg_over_time({selector(metric, labels)}[{step}])", hours, step_seconds, now)
        for metric in METRICS
    }
    if not any(METRICS[metric] in ACTIVITIES and series for metric, series in found.items()):
        chosen = "".join(f" with {name}={value}" for name, value in labels.items())
        raise PrometheusUnavailable(
            f"Prometheus has no metric of dcgm-exporter in the last {hours:g} h{chosen}; is this the Prometheus that "
            "scrapes it? See docs/survey.md"
        )
    return ObservedUsage(
        "Prometheus", hours, step_seconds, usages(found, images(server, hours, now), units(server, hours, now))
    )


def images(server: Server, hours: float, now: float) -> dict[tuple[str, str], str]:
    """The image of each pod (one of several containers' images), where kube-state-metrics is scraped too."""
    containers = server.vector(f"last_over_time(kube_pod_container_info[{duration(3600 * hours)}])", now)
    return {(labels.get("namespace", ""), labels.get("pod", "")): labels.get("image", "") for labels, _ in containers}


def units(server: Server, hours: float, now: float) -> dict[str, float]:
    """The most units of GPUs that each node offered to pods, where kube-state-metrics is scraped too."""
    nodes: dict[str, float] = {}
    for labels, value in server.vector(f"max_over_time({UNITS}[{duration(3600 * hours)}])", now):
        node = labels.get("node", "")
        nodes[node] = nodes.get(node, 0.0) + value
    return nodes


def usages(
    found: Mapping[str, Sequence[tuple[Labels, Samples]]],
    image_of: Mapping[tuple[str, str], str],
    units_of: Mapping[str, float],
) -> list[Usage]:
    """The usage of each workload on each GPU or MIG instance, from the series of each metric.

    In a cluster the exporter names one pod, or none, of those that share a GPU. Only on a node with at most as many
    units (`units_of`) as GPUs a pod is known to have its GPU alone.
    """
    all_labels = [labels for series in found.values() for labels, _ in series]
    is_cluster = bool(units_of) or any({"pod", "exported_pod"} & set(labels) for labels in all_labels)
    gpus_of = Counter(node for node, _ in {device_key(labels) for labels in all_labels})
    is_renamed = any("exported_pod" in labels for labels in all_labels)
    # Outside Kubernetes a workload has no name: it is named after its GPU.
    knows_pods = any(pod_key(labels, is_renamed) for labels in all_labels)
    series_by_place: dict[tuple[Key, str], dict[tuple[str, str] | None, dict[str, pd.Series[float]]]] = {}
    about: dict[tuple[Key, str], Labels] = {}
    for metric, series in found.items():
        for labels, samples in series:
            key = device_key(labels), labels.get(INSTANCE, "")
            about[key] = labels
            pods = series_by_place.setdefault(key, {}).setdefault(pod_key(labels, is_renamed), {})
            values = _series(samples, 100.0 if "_PROF_" in metric else 1.0)
            # A pod with several containers has a series for each, all of the same GPU.
            pods[METRICS[metric]] = pods[METRICS[metric]].combine_first(values) if METRICS[metric] in pods else values
    gpus = Counter(pod for pods in series_by_place.values() for pod in pods if pod)
    spread = {pod for pod, count in gpus.items() if count > 1}
    found_usages = [
        replace(usage, may_be_shared=is_cluster and _may_be_shared(usage, gpus_of, units_of))
        for key, pods in series_by_place.items()
        for frames in [{pod: pd.DataFrame(own) for pod, own in pods.items()}]
        for usage in _place_usages(key, about[key], frames, spread, image_of)
    ]
    return found_usages if knows_pods else [replace(usage, workload=str(usage.place)) for usage in found_usages]


def _may_be_shared(usage: Usage, gpus_of: Mapping[str, int], units_of: Mapping[str, float]) -> bool:
    node = usage.place.node
    is_reserved = (usage.workload or "").partition("/")[0] in RESERVING_NAMESPACES
    return is_reserved or not 0 < units_of.get(node, 0) <= gpus_of[node]


def _series(samples: Samples, factor: float) -> "pd.Series[float]":
    values = {at: factor * value for at, value in samples if value == value and abs(value) < BLANK_LIMIT}
    return pd.Series(values, dtype=float)


def _place_usages(
    key: tuple[Key, str],
    labels: Labels,
    pods: Mapping[tuple[str, str] | None, pd.DataFrame],
    spread: Set[tuple[str, str]],
    image_of: Mapping[tuple[str, str], str],
) -> Iterable[Usage]:
    (node, _), instance = key
    memory = pd.concat([_total(series) for series in pods.values()]).max()
    place = GpuPlace(
        node,
        labels.get("gpu") or labels.get("UUID", ""),
        labels.get("modelName", ""),
        None if pd.isna(memory) else float(memory),
        instance,
        labels.get(PROFILE, ""),
    )
    at_once = pd.concat([pd.Series(1, series.index) for pod, series in pods.items() if pod] or [pd.Series(dtype=int)])
    is_crowded = at_once.groupby(level=0).sum() > 1
    workloads: dict[str | None, list[tuple[str, str] | None]] = {}
    for pod in pods:
        workloads.setdefault(None if pod is None else f"{pod[0]}/{workload_name(pod[1])}", []).append(pod)
    for workload, own in workloads.items():
        series = pd.concat([pods[pod] for pod in own]).groupby(level=0).mean().reindex(columns=list(QUANTITIES))
        is_shared = workload is not None and is_crowded.reindex(series.index, fill_value=False).mean() > SHARED_RATIO
        image = next((image_of[pod] for pod in own if pod and pod in image_of), None)
        yield Usage(place, workload, series, bool(is_shared), not spread.isdisjoint(filter(None, own)), image)


def _total(series: pd.DataFrame) -> "pd.Series[float]":
    if not {MEMORY, FREE_MIB} <= set(series):
        return pd.Series(dtype=float)
    return series[MEMORY] + series[FREE_MIB]
