"""Gates of user programs, each passed and failed, and what the tables make of such tenants."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.factories import WINDOW_SECONDS, back_to_back, record, scraped, served, tenant, with_changes

from sharebench.model.records import record as records
from sharebench.model.records.record import window_seconds
from sharebench.read.cells.rows import reduce_record
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.gates import gates
from sharebench.read.histogram import ForeignHistogram, merge_foreign
from sharebench.read.tables.histograms import export_histograms
from sharebench.read.tables.summary import summary_table
from sharebench.study.cells import Cell
from tenant.contract import OVERFLOW_INDEX

UPPERS = [0.01, 0.1, 0.25, None]


def loop_tenant(*latencies: float) -> dict[str, Any]:
    """A tenant of kind loop with 400 iterations of these latencies."""
    return tenant(0, back_to_back(np.resize(latencies or (0.005,), 400)))


def verdicts(*tenants: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The gates of a cell with these tenants."""
    numbered = [each | {"index": index} for index, each in enumerate(tenants)]
    return {gate["name"]: gate for gate in record(tenants=numbered)["gates"]}


def with_workload_key(spec: str, key: str, value: object) -> str:
    """The spec of a cell whose workload has this key, too."""
    document = json.loads(spec)
    document["workload"][key] = value
    return json.dumps(document)


def scraped_with_error(name: str, ratio: float) -> dict[str, Any]:
    """A scraped tenant with an error of this size."""
    measured = scraped(loop_tenant(), UPPERS, [0, 400, 0, 0]) | {"sum_seconds": 400 * 0.05}
    measured["scrape"] |= {name: ratio}
    return measured


@pytest.mark.parametrize(
    ("count", "factor", "passes"),
    [
        ([400, 0, 0, 0], 1.0, True),
        ([400, 0, 0, 0], 1000.0, False),
        ([0, 400, 0, 0], 1.0, False),
        ([0, 400, 0, 0], 1.9, True),
        ([399, 0, 0, 1], 1000.0, True),
    ],
)
def test_a_sum_that_its_own_buckets_exclude_counts_nothing(count: list[int], factor: float, passes: bool) -> None:
    """400 iterations of 5 ms, which a program counts in these buckets, with this factor on their sum."""
    measured = scraped(loop_tenant(), UPPERS, count)
    found = verdicts(measured | {"sum_seconds": factor * measured["sum_seconds"]})["scrape_error"]
    assert found["passed"] == passes
    assert passes or "by its buckets; give both in seconds" in found["message"]


def test_gates_of_programs_do_not_apply_to_loops() -> None:
    assert not verdicts(loop_tenant()).keys() & {
        "scrape_error",
        "generator_bound",
        "generator_cost",
        "generator_gap",
        "new_connections",
        "token_count",
        "server_elsewhere",
    }


def test_gates_of_unknown_values_do_not_apply_to_programs() -> None:
    found = verdicts(scraped(loop_tenant(), UPPERS, [400, 0, 0, 0]))
    assert not found.keys() & {"output_digest", "drained_queue", "littles_law", "generator_bound"}
    assert all(gate["passed"] for gate in found.values())
    assert {"output_digest", "drained_queue"} <= verdicts(loop_tenant(), served(loop_tenant())).keys()


@pytest.mark.parametrize("name", ["rate_error_ratio", "mean_error_ratio"])
def test_scrapes_with_a_large_error_are_invalid(name: str) -> None:
    assert verdicts(scraped_with_error(name, 0.2))["scrape_error"]["passed"]
    failed = verdicts(loop_tenant(), scraped_with_error(name, 0.3))["scrape_error"]
    assert (failed["passed"], failed["severity"], failed["value"]) == (False, "invalid", 0.3)
    assert "leave 30% open with the 400 iterations of tenant 1; a longer window has more" in failed["message"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"errors": 717, "last_error": "status 500"}, "tenant 1: all of 717 requests failed, the last with status 500"),
        ({"errors": 3}, "tenant 1: all of 3 requests failed"),
        ({}, "tenant 1: no request began in the window of 2 s and ended; set a longer one (window_seconds)"),
    ],
)
def test_a_server_that_finished_nothing_excludes_the_cell_with_the_reason(changes: dict[str, Any], line: str) -> None:
    """Otherwise the mean would be that of its neighbour."""
    silent = served(tenant(1, back_to_back([]))) | changes
    measured = record(tenants=[served(loop_tenant()), silent])
    assert not gates.is_valid(measured)
    failed = next(gate for gate in measured["gates"] if gate["name"] == "nothing_finished")
    assert (failed["passed"], failed["severity"], failed["message"]) == (False, "invalid", line)
    expected = [(Cell("exclusive", "matmul", 2, 1), "matmul")]
    row = summary_table([reduce_record(measured)], expected, Baseline([], None)).iloc[0]
    assert (row["n"], row["n_excluded"]) == (0, 1)
    assert math.isnan(row["latency_mean_seconds"] or math.nan)
    assert line in row["reason"]
    assert "1 of 1 cells excluded by nothing_finished" in row["notes"]


@pytest.mark.parametrize(
    ("cpu_seconds", "broken"),
    [(0.1, set()), (0.3, {"generator_cost"}), (1.1, {"generator_cost", "generator_bound"}), (None, set())],
)
def test_gates_compare_the_clients_own_time_with_its_requests(cpu_seconds: float | None, broken: set[str]) -> None:
    found = verdicts(served(loop_tenant(0.005), client_cpu_seconds=cpu_seconds))
    names = {"generator_cost", "generator_bound"}
    assert {name for name in names if not found[name]["passed"]} == broken
    assert found["generator_bound"]["severity"] == "invalid"
    assert found["generator_cost"]["severity"] == "warning"


@pytest.mark.parametrize(
    ("reported", "counted", "passed"), [(400, 400, True), (403, 400, True), (406, 400, False), (0, 400, None)]
)
def test_usage_that_differs_from_the_tokens_with_text_is_a_warning(
    reported: int, counted: int, passed: bool | None
) -> None:
    streamed = served(loop_tenant())
    assert "token_count" not in verdicts(streamed | {"output_tokens": {"count": 5, "source": "usage"}}), "older records"
    tokens = {"count": 5, "source": "usage", "reported": reported, "counted": counted}
    found = verdicts(served(loop_tenant()), streamed | {"output_tokens": tokens}).get("token_count")
    assert (found and found["passed"]) == passed
    if found and not passed:
        assert found["severity"] == "warning"
        assert "usage of tenant 1 is 1.5% off the tokens that came with text" in found["message"]


def test_failures_are_named_and_their_limit_is_the_workloads() -> None:
    failing = served(loop_tenant()) | {"errors": 40, "errors_by_reason": {"status 500": 37, "connection refused": 3}}
    found = verdicts(failing)
    assert not found["failed_share"]["passed"]
    why = "failed, and has no latency: status 500 (37), connection refused (3)"
    assert found["failed_share"]["message"] == f"9.1% of what tenant 0 began {why}, above the workload's failed_percent"
    assert found["errors"]["message"] == "40 iterations failed: status 500 (37), connection refused (3)"
    measured = record(tenants=[failing])
    measured["spec"] = with_workload_key(measured["spec"], "failed_percent", 10)
    limited = next(gate for gate in gates.evaluate(measured) if gate["name"] == "failed_share")
    assert (limited["passed"], limited["limit"]) == (True, 0.1)
    row = reduce_record(measured | {"gates": gates.evaluate(measured)}).rows[0].other_columns
    assert (row["errors"], row["error_reasons"]) == (40, "status 500: 37, connection refused: 3")


@pytest.mark.parametrize(("connections", "passed"), [(0, True), (200, True), (201, False), (400, False)])
def test_requests_that_mostly_connect_are_a_warning(connections: int, passed: bool) -> None:
    server = served(loop_tenant())
    server["generator"]["connections"] = connections
    found = verdicts(server)["new_connections"]
    assert (found["passed"], found["severity"]) == (passed, "warning")
    if connections == 400:
        assert (
            found["message"] == "100% of the requests to tenant 0 needed a new connection, which their latency includes"
        )


def test_failed_requests_connect_too() -> None:
    server = served(loop_tenant()) | {"errors": 200}
    server["generator"]["connections"] = 300
    assert verdicts(server)["new_connections"]["value"] == 0.5


@pytest.mark.parametrize("errors", [(20, 40), (40, 20)])
def test_the_tenant_of_which_most_failed_is_judged(errors: tuple[int, int]) -> None:
    found = verdicts(
        *(served(tenant(index, back_to_back([0.005] * 400))) | {"errors": own} for index, own in enumerate(errors))
    )
    assert not found["failed_share"]["passed"] and found["failed_share"]["value"] == pytest.approx(40 / 440)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_processes_that_a_program_left_are_counted(left: int) -> None:
    job = {"iterations": 1, "completed": 1, "start_delay_seconds": 0.0, "completion_seconds": 1.5, "left_running": left}
    ended = {"measured_by": "exit", "job": job}
    assert "left_running" not in verdicts(served(loop_tenant()) | {"job": job}), "a server's own job leaves nothing"
    found = verdicts(loop_tenant() | ended, loop_tenant() | ended | {"job": job | {"left_running": 0}})["left_running"]
    assert (found["value"], found["passed"]) == (left, left == 0)
    assert left == 0 or found["message"] == f"the container of tenant 0 ended with {left} processes still at work"


@pytest.mark.parametrize(
    ("failed", "passed"),
    [
        ({}, True),
        ({3: 1, 9: 1, 20: 1}, True),
        ({8: 11, 9: 12, 10: 10}, False),
        (dict.fromkeys(range(40), 1), True),
        (dict.fromkeys(range(0, 40, 2), 10), True),
    ],
    ids=["none", "few", "outage", "10 % everywhere", "every second"],
)
def test_an_outage_within_the_window_is_a_warning(failed: dict[int, int], passed: bool) -> None:
    server = served(loop_tenant())
    slots = len(server["timeline"]["count"])
    server["timeline"] |= {"errors": [failed.get(slot, 0) for slot in range(slots)], "count": [10] * slots}
    found = verdicts(server)["outage"]
    assert (found["passed"], found["severity"]) == (passed, "warning")
    if not passed:
        assert found["message"] == "most of what tenant 0 began in 5% of the window failed, and has no latency"


def test_a_slot_of_few_requests_that_fails_by_chance_is_no_outage() -> None:
    """Two of three fail in one slot, as in one of 27 at this rate of failures."""
    server = served(loop_tenant())
    slots = len(server["timeline"]["count"])
    errors = [2, *[1, 0, 0, 0, 0, 0, 0, 0, 0, 0] * 3, *[0] * (slots - 31)]
    server["timeline"] |= {"errors": errors, "count": [1] * slots}
    assert verdicts(server)["outage"]["passed"]


@pytest.mark.parametrize(("late_seconds", "passed"), [(0.0005, True), (0.0014, True), (0.0016, False)])
def test_a_client_that_sends_late_is_invalid(late_seconds: float, passed: bool) -> None:
    late = served(loop_tenant(*[0.005] * 95, *[0.006] * 5))
    late["generator"]["lateness_p99_seconds"] = late_seconds
    found = verdicts(served(loop_tenant(0.005)), late)["generator_late"]
    assert (found["passed"], found["severity"]) == (passed, "invalid")
    assert found["value"] == pytest.approx(late_seconds / 0.006, rel=0.02)
    # The lateness of a stream is compared with the time to first token.
    late["stages"] = {"ttft": {"count": 1, "sum_seconds": 0.003, "histogram": {"739": 1}}}
    found = verdicts(late)["generator_late"]
    assert found["passed"] == (late_seconds < 0.00075)
    assert found["passed"] or "the client of tenant 0 was late by" in found["message"]
    assert "generator_late" not in verdicts(served(loop_tenant(0.005))), "older records do not say"


@pytest.mark.parametrize(("hung", "errors", "unfinished"), [(0, 0, 0), (1, 0, 1), (3, 0, 3), (1, 4, 0)], ids=str)
def test_requests_that_hang_from_before_the_window_are_censored(hung: int, errors: int, unfinished: int) -> None:
    """Four in flight; each that hangs is in no latency. What failures took is not known."""
    tenant = served(loop_tenant(0.005)) | {"errors": errors}
    seconds = window_seconds(record())
    tenant["load"] = tenant["load"] | {"in_flight_mean": tenant["sum_seconds"] / seconds + hung}
    found = verdicts(tenant)["censored"]
    assert (found["value"], found["passed"]) == (unfinished, not unfinished)


@pytest.mark.parametrize(
    "changes",
    [{"measured_by": "program"}, {"load.in_flight_mean": None}, {"max_seconds": 2.0}],
    ids=["not ours", "not counted", "longer than the window is"],
)
def test_what_may_cross_an_edge_or_was_not_counted_is_not_censored(changes: dict[str, Any]) -> None:
    tenant = served(loop_tenant(0.005))
    seconds = window_seconds(record())
    tenant["load"] = tenant["load"] | {"in_flight_mean": tenant["sum_seconds"] / seconds + 1}
    assert verdicts(with_changes(tenant, changes))["censored"]["passed"]


def test_lateness_against_latencies_beyond_the_histogram_is_over_its_end() -> None:
    late = served(loop_tenant(0.005))
    late["generator"]["lateness_p99_seconds"] = 400.0
    late["stages"] = {"ttft": {"count": 1, "sum_seconds": 2e3, "histogram": {str(OVERFLOW_INDEX): 1}}}
    found = verdicts(late)["generator_late"]
    assert not found["passed"] and found["value"] == pytest.approx(0.4, rel=0.05)


def test_unanswered_requests_are_named() -> None:
    silent = served(loop_tenant()) | {"count": 0, "sum_seconds": 0.0, "histogram": {}}
    silent["load"] = silent["load"] | {"censored": 16}
    failed = verdicts(silent)["nothing_finished"]
    assert not failed["passed"]
    assert failed["message"].startswith("tenant 0: none of 16 requests was answered in time")


def test_an_external_server_has_no_evidence_but_a_warning() -> None:
    elsewhere = served(loop_tenant()) | {"cpu": None}
    measured = record(tenants=[elsewhere]) | {"evidence": []}
    found = {gate["name"]: gate for gate in gates.evaluate(measured)}
    assert "evidence" not in found
    assert found["server_elsewhere"]["severity"] == "warning"
    assert not found["server_elsewhere"]["passed"]
    assert verdicts(served(loop_tenant()))["server_elsewhere"]["passed"]
    both = record(tenants=[elsewhere, loop_tenant() | {"index": 1}]) | {"evidence": []}
    assert not next(gate for gate in gates.evaluate(both) if gate["name"] == "evidence")["passed"]


def test_records_of_programs_are_written_and_read(tmp_path: Path) -> None:
    measured = record(tenants=[scraped(loop_tenant(), UPPERS, [1, 398, 0, 1]), served(loop_tenant()) | {"index": 1}])
    records.write(tmp_path / "raw.json", measured)
    assert records.read(tmp_path / "raw.json") == measured
    measured["tenants"][0]["count"] += 1
    records.write(tmp_path / "raw.json", measured)
    with pytest.raises(records.RecordError, match="its foreign_histogram holds 400 iterations, its count says 401"):
        records.read(tmp_path / "raw.json")


def test_a_record_of_a_summary_without_buckets_is_read(tmp_path: Path) -> None:
    measured = scraped(loop_tenant(), [], []) | {"foreign_histogram": None, "count": 400}
    records.write(tmp_path / "raw.json", record(tenants=[measured]))
    assert records.read(tmp_path / "raw.json")["tenants"][0]["count"] == 400
    assert reduce_record(record(tenants=[measured])).percentiles == {}


def test_quantiles_of_foreign_buckets_equal_prometheus() -> None:
    """Three published means in one bucket of (0.1, 0.25] all give p50 = 175.0 ms and p99 = 248.5 ms."""
    p50, p99 = ForeignHistogram((0.01, 0.1, 0.25, math.inf), (0, 0, 1000, 0)).quantiles([0.5, 0.99])
    assert (p50.value_seconds, p99.value_seconds) == (pytest.approx(0.175), pytest.approx(0.2485))
    assert (p50.low_seconds, p50.high_seconds) == (0.1, 0.25)
    assert p50.error_percent == pytest.approx(100 * (1 - 0.1 / 0.175))
    assert p99.error_percent == pytest.approx(100 * (1 - 0.1 / 0.2485))


def test_a_quantile_without_an_upper_bound_is_not_bounded() -> None:
    (beyond,) = ForeignHistogram((0.1, math.inf), (10, 10)).quantiles([0.99])
    assert not beyond.is_bounded
    with pytest.raises(ValueError, match="empty"):
        ForeignHistogram((0.1, math.inf), (0, 0)).quantiles([0.5])


def test_only_histograms_with_equal_buckets_are_merged() -> None:
    one = ForeignHistogram((0.1, math.inf), (1, 2))
    together = merge_foreign([one, ForeignHistogram((0.1, math.inf), (3, 4))])
    assert together is not None
    assert together.counts.tolist() == [4, 6]
    assert merge_foreign([one, ForeignHistogram((0.2, math.inf), (3, 4))]) is None
    assert merge_foreign([]) is None


def test_tables_have_the_error_of_the_scrapes() -> None:
    pair = [scraped_with_error("mean_error_ratio", 0.04), scraped_with_error("mean_error_ratio", 0.06) | {"index": 1}]
    cell = reduce_record(record("mps", tenants=pair))
    assert [row.scrape_error_percent for row in cell.rows] == pytest.approx([4.0, 6.0])
    assert cell.rows[0].throughput_hz == pair[0]["load"]["achieved_rate_hz"]
    assert cell.rows[0].other_columns["latency_max_seconds"] is None
    table = summary_table([cell], [(Cell("mps", "matmul", 2, 1), "matmul")], Baseline([], None))
    row = table.iloc[0]
    assert row["scrape_error_percent"] == pytest.approx(6.0)
    assert "between two scrapes: means and rates within 6 %" in row["notes"]
    assert row["latency_p99_seconds"] == pytest.approx(0.01 + 0.09 * 0.99)
    assert row["latency_p99_seconds_bucket_error_percent"] == pytest.approx(100 * (1 - 0.01 / 0.0991))


def test_the_export_has_foreign_buckets(tmp_path: Path) -> None:
    measured = scraped(loop_tenant(), UPPERS, [3, 0, 390, 7]) | {"sum_seconds": 80.0}
    records.write(tmp_path / "raw.json", record(tenants=[measured]))
    export_histograms([tmp_path / "raw.json"], tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert lines == ["1,1,0,0.0,0.01,3", "1,1,0,0.1,0.25,390", "1,1,0,0.25,inf,7"]


def test_a_unit_that_was_forgotten_makes_iterations_longer_than_the_window() -> None:
    """Milliseconds that were read as seconds."""
    forgotten = scraped(loop_tenant(), UPPERS, [0, 400, 0, 0]) | {"sum_seconds": 400 * 50.0}
    verdict = verdicts(forgotten)["reported_mean"]
    assert not verdict["passed"] and "metrics.unit: milliseconds" in verdict["message"]
    for mean in (0.05, 0.6 * WINDOW_SECONDS):
        right = scraped(loop_tenant(), UPPERS, [0, 400, 0, 0]) | {"sum_seconds": 400 * mean}
        assert verdicts(right)["reported_mean"]["passed"], "requests may overlap"
