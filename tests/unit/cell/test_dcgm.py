"""dcgm-exporter's values: of a device or an instance, never of a pod, and never twice."""

import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from watching import DCGM

from sharebench.cell.prometheus import dcgm
from sharebench.records.telemetry import COLUMNS, NOTHING_KNOWN

START = 1000.0
SAMPLES = [
    (sample.labels | {"__name__": sample.name}, sample.value)
    for family in text_string_to_metric_families(DCGM.read_text())
    for sample in family.samples
]


def found(node: str | None, **changes: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Two scrapes of the text, the second with other values of some metrics."""
    series = [
        (labels, [(START + 1.0, value), (START + 3.0, changes.get(labels["__name__"], value))])
        for labels, value in SAMPLES
    ]
    return dcgm.summarise(series, node, START)


def test_a_device_whose_value_is_repeated_for_each_pod_counts_once() -> None:
    rows, summary = found("node-a", DCGM_FI_DEV_POWER_USAGE=300.0)
    (whole,) = summary["instances"]
    assert whole["instance"] is None and summary["scrapes"] == 2
    assert whole["power_mean_watts"] == pytest.approx((312.47 + 300) / 2)
    assert whole["sm_active_mean_percent"] == pytest.approx(42.31)
    assert whole["gpu_util_mean_percent"] == 100
    assert [row["t_seconds"] for row in rows] == [1.0, 3.0]
    assert [row["power_watts"] for row in rows] == [312.47, 300.0]
    assert all(set(row) <= set(COLUMNS) for row in rows)


def test_instances_are_told_apart_and_blank_values_are_none() -> None:
    rows, summary = found("node-b")
    first, second = summary["instances"]
    assert (first["instance"], first["profile"]) == ("1", "3g.40gb")
    assert first["sm_active_mean_percent"] == pytest.approx(88.0)
    assert second["dram_active_mean_percent"] is None
    # GPU_UTIL is not there under MIG.
    assert first["gpu_util_mean_percent"] is None
    assert rows == []


def test_several_devices_are_not_guessed_at() -> None:
    rows, summary = found(None)
    assert rows == [] and summary["instances"] == []
    assert summary["reason"] == "dcgm-exporter knows 2 devices; name the shared one: prometheus.dcgm"
    assert "2 devices" in found("another-node")[1]["reason"]


def test_no_series_is_said() -> None:
    assert "no series of dcgm-exporter" in dcgm.summarise([], "node-a", START)[1]["reason"]


def test_the_summary_is_dcgms_where_nobody_else_sampled() -> None:
    rows, summary = found("node-a", DCGM_FI_DEV_GPU_TEMP=44.0)
    filled = dcgm.filled(NOTHING_KNOWN, rows, summary)
    assert (filled["source"], filled["samples"]) == ("dcgm", 2)
    assert filled["power_mean_watts"] == pytest.approx(312.47)
    assert filled["memory_used_max_mib"] == 9216
    assert (filled["temperature_start_celsius"], filled["temperature_end_celsius"]) == (41, 44)
    assert filled["energy_joules"] is None


def test_who_sampled_already_keeps_the_summary() -> None:
    rows, summary = found("node-a")
    known = {**NOTHING_KNOWN, "samples": 50, "source": "nvml", "power_mean_watts": 300.0}
    assert dcgm.filled(known, rows, summary) == known | {"dcgm": summary}


def test_not_a_number_is_nothing() -> None:
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "Hostname": "a", "gpu": "0"}
    _, summary = dcgm.summarise([(labels, [(START, math.nan), (START + 1, 5.0)])], "a", START)
    assert summary["instances"][0]["power_mean_watts"] == 5.0
