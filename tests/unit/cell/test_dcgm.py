"""dcgm-exporter's values: of a device or an instance, never of a pod, and never twice."""

import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from watching import DCGM

from sharebench.cell.prometheus import dcgm

START = 1000.0
SAMPLES = [
    (sample.labels | {"__name__": sample.name}, sample.value)
    for family in text_string_to_metric_families(DCGM.read_text())
    for sample in family.samples
]


def found(node: str | None, **changes: float) -> dict[str, Any]:
    """Two scrapes of the text, the second with other values of some metrics."""
    series = [
        (labels, [(START + 1.0, value), (START + 3.0, changes.get(labels["__name__"], value))])
        for labels, value in SAMPLES
    ]
    return dcgm.summarise(series, node)


def test_a_device_whose_value_is_repeated_for_each_pod_counts_once() -> None:
    summary = found("node-a", DCGM_FI_DEV_POWER_USAGE=300.0)
    (whole,) = summary["instances"]
    assert whole["instance"] is None and summary["scrapes"] == 2
    assert whole["power_mean_watts"] == pytest.approx((312.47 + 300) / 2)
    assert whole["sm_active_mean_percent"] == pytest.approx(42.31)
    assert whole["gpu_util_mean_percent"] == 100


def test_instances_are_told_apart_and_blank_values_are_none() -> None:
    first, second = found("node-b")["instances"]
    assert (first["instance"], first["profile"]) == ("1", "3g.40gb")
    assert first["sm_active_mean_percent"] == pytest.approx(88.0)
    assert second["dram_active_mean_percent"] is None
    # GPU_UTIL is not there under MIG.
    assert first["gpu_util_mean_percent"] is None


def test_several_devices_are_not_guessed_at_and_none_is_said() -> None:
    summary = found(None)
    assert summary["instances"] == []
    assert summary["reason"] == "dcgm-exporter knows 2 devices; name the shared one: prometheus.dcgm"
    assert "2 devices" in found("another-node")["reason"]
    assert "no series of dcgm-exporter" in dcgm.summarise([], "node-a")["reason"]


def test_not_a_number_is_nothing() -> None:
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "Hostname": "a", "gpu": "0"}
    summary = dcgm.summarise([(labels, [(START, math.nan), (START + 1, 5.0)])], "a")
    assert summary["instances"][0]["power_mean_watts"] == 5.0
