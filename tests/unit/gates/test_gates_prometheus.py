"""Gates and table of cells that Prometheus watched: what it says is judged, the cell stays valid whatever it is."""

from typing import Any

import numpy as np
import pytest
from unit.factories import record, with_prometheus

from sharebench.model.records.record import _validate  # the schema is what is tested
from sharebench.read.gates import gates
from sharebench.read.tables.cells import prometheus_rows


def verdicts(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    measured["gates"] = gates.evaluate(measured)
    assert gates.is_valid(measured)
    _validate(None, measured)  # type: ignore[arg-type]
    return {gate["name"]: gate for gate in measured["gates"] if gate["name"].startswith("prometheus")}


def verdicts_with(error: str | None = None, **changes: Any) -> dict[str, dict[str, Any]]:
    measured = with_prometheus(record(latencies=[np.full(400, 0.005)] * 2), **changes)
    if error:
        measured["prometheus"] |= {"error": error, "tenants": []}
    return verdicts(measured)


def test_a_cell_without_prometheus_has_no_such_gates() -> None:
    assert verdicts(record()) == {}
    assert list(prometheus_rows(record())) == []


def test_counts_that_agree_pass() -> None:
    found = verdicts_with()
    assert all(gate["passed"] for gate in found.values()) and found["prometheus_counts"]["value"] == 0
    # The limit is 2 % of 400 and one iteration at each end.
    assert verdicts_with(count=390.0)["prometheus_counts"]["passed"]


def test_a_tenant_that_counted_nothing_has_no_share_to_differ_by() -> None:
    measured = with_prometheus(record(latencies=[np.full(400, 0.005)] * 2), count=0.0)
    measured["tenants"][1]["count"] = 0
    found = {gate["name"]: gate for gate in gates.evaluate(measured)}
    assert found["prometheus_counts"]["value"] == 0


@pytest.mark.parametrize("count", [389.0, 411.0])
def test_counts_that_differ_by_more_than_two_percent_and_the_edges_fail(count: float) -> None:
    gate = verdicts_with(count=count)["prometheus_counts"]
    assert not gate["passed"]
    assert gate["message"] == f"Prometheus saw {count} iterations of tenant 1, which counted 400"


def test_a_tenant_without_scrapes_around_the_window_fails() -> None:
    gate = verdicts_with(count=None)["prometheus_counts"]
    assert not gate["passed"] and gate["value"] is None and "no scrapes of tenant 1" in gate["message"]


@pytest.mark.parametrize(("gap", "passed"), [(2.0, True), (2.5, True), (2.6, False)])
def test_one_late_scrape_passes_and_two_missing_ones_do_not(gap: float, passed: bool) -> None:
    for interval in (1, 5):
        measured = with_prometheus(record(latencies=[np.full(400, 0.005)] * 2), longest_gap_seconds=gap * interval)
        measured["prometheus"]["scrape_seconds"] = interval
        gate = verdicts(measured)["prometheus_scrapes"]
        assert gate["passed"] is passed and gate["value"] == gap


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resets": 1}, "the counters of tenant 1 were reset"),
        ({"longest_gap_seconds": None}, "has not scraped tenant 1 at all"),
        ({"error": "Prometheus does not answer (ReadTimeout)"}, "does not answer"),
    ],
)
def test_the_reason_for_doubtful_numbers_is_named(changes: dict[str, Any], words: str) -> None:
    found = verdicts_with(**changes)
    assert not found["prometheus_scrapes"]["passed"] and words in found["prometheus_scrapes"]["message"]
    assert found["prometheus_counts"]["passed"] is ("error" not in changes)


def test_the_table_has_the_numbers_of_both() -> None:
    measured = with_prometheus(record(latencies=[np.full(400, 0.005)] * 2), count=396.0, sum_seconds=1.98)
    first, second = prometheus_rows(measured)
    assert first["prometheus_count_difference_percent"] == pytest.approx(0)
    assert second["prometheus_count_difference_percent"] == pytest.approx(-1)
    assert second["latency_mean_seconds"] == pytest.approx(0.005)
    assert second["prometheus_mean_seconds"] == pytest.approx(0.005)
    assert second["latency_p50_seconds"] == pytest.approx(0.005, rel=0.011)
    assert second["prometheus_p50_seconds"] == 0.0055
    assert [first["tenant"], second["tenant"]] == [0, 1]


def test_a_silent_prometheus_is_in_the_table_with_the_reason() -> None:
    measured = with_prometheus(record())
    measured["prometheus"] |= {"error": "gone", "tenants": []}
    (row,) = prometheus_rows(measured)
    assert row["reason"] == "gone" and row["count"] == 400 and "prometheus_count" not in row
