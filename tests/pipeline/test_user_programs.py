"""User programs: a script with its own metrics, and servers that our client measures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline.harness import Checkout, dry_run_counts, is_disturbed
from tables import rows

from sharebench.read.gates.programs import GENERATOR_GAP_RATIO

# A script as users write it: a histogram in seconds, and a port as its argument. Only the notes are for the test.
SCRIPT = """
import sys, time
import numpy as np
from prometheus_client import Histogram, start_http_server

latency = Histogram("matmul_seconds", "A product", buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1, 10))
left = np.random.rand(200, 200)
start_http_server(int(sys.argv[1]))
with open(sys.argv[2], "w") as notes:
    while True:
        begun = time.monotonic()
        left @ left
        ended = time.monotonic()
        latency.observe(ended - begun)
        print(begun, ended, file=notes, flush=True)
"""
# A summary has a count and a sum, and no buckets.
SUMMARY = """
import sys, time
from prometheus_client import Summary, start_http_server

work = Summary("work_seconds", "Time of an iteration")
start_http_server(int(sys.argv[1]))
while True:
    with work.time():
        time.sleep(0.01)
"""
FAILING_SERVER = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
asked = []
class Dies(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        asked.append(1)
        status = 200
        if sys.argv[2] == "1" and len(asked) >= 3:
            if sys.argv[3] == "dies":
                print("out of tokens", flush=True)
                os._exit(3)
            status = 500
        # Slow enough that the client is not the bottleneck.
        time.sleep(0.01)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Dies).serve_forever()
"""


def test_a_script_with_its_own_metrics_runs_unmodified_in_two_tenants(untouched: Checkout) -> None:
    (untouched.root / "foreign.py").write_text(SCRIPT)
    entry = (
        "workload_catalogue={foreign: {kind: command, metrics: {histogram: matmul_seconds}, "
        "command: ['{python}', '{here}/foreign.py', '{port}', '{here}/tmp/notes-{index}']}}"
    )
    config = [entry, "workloads=foreign", "strategies=time-slicing", "window_seconds=2"]
    result = untouched.run(study="programs.yaml", config=config).ok()
    assert result.cells == {"time-slicing/foreign/2/1"}

    record = untouched.record("time-slicing/foreign/2/1")
    assert record["status"] == "ok"
    for index, tenant in enumerate(record["tenants"]):
        notes = np.loadtxt((untouched.root / f"tmp/notes-{index}").read_text().splitlines()[:-1])
        begun, ended = notes[:, 0], notes[:, 1]
        scrape = tenant["scrape"]
        start = record["window"]["start_monotonic_seconds"] + scrape["offset_seconds"]
        # Neither moment is known better than the round trips, and a program that shares a core runs in bursts, so its
        # rate in them may be any. The notes give limits: what surely was inside, and what may have been. An iteration
        # that has ended may be observed late, one at each edge.
        error = scrape["seconds_error"]
        surely = (begun >= start + error) & (ended < start + scrape["seconds"] - error)
        maybe = (ended >= start - error) & (begun < start + scrape["seconds"] + error)
        busy = ended - begun
        assert surely.sum() - 1 <= tenant["count"] <= maybe.sum() + 1
        assert busy[surely].sum() - busy.max() <= tenant["sum_seconds"] <= busy[maybe].sum() + busy.max()

    (row,) = rows(untouched.results / "tables/summary.csv")
    worst = 100 * max(max(t["scrape"]["rate_error_ratio"], t["scrape"]["mean_error_ratio"]) for t in record["tenants"])
    # A disturbed cell has no numbers.
    assert (
        row["scrape_error_percent"] == ""
        if is_disturbed(record)
        else float(row["scrape_error_percent"]) == pytest.approx(worst)
    )
    if row["latency_p99_seconds"]:
        assert float(row["latency_p99_seconds_bucket_error_percent"]) > 5, "the table shows that its buckets are wide"

    again: dict[str, Any] = {"study": "programs.yaml", "config": config}
    assert untouched.run(**again).ok().jobs == {}
    path = Path(untouched.root / "foreign.py")
    path.write_text(path.read_text().replace("200, 200", "100, 100"))
    stale = dry_run_counts(untouched.run(options=["-n"], **again).ok().out)
    assert (stale["calibrate"], stale["run_cell"]) == (1, 1), "a changed program is re-measured"


@pytest.mark.thorough
def test_a_summary_gives_mean_and_rate_without_percentiles(untouched: Checkout) -> None:
    (untouched.root / "foreign.py").write_text(SUMMARY)
    entry = (
        "workload_catalogue={foreign: {kind: command, metrics: {summary: work_seconds}, "
        "command: ['{python}', '{here}/foreign.py', '{port}']}}"
    )
    config = [entry, "workloads=foreign", "strategies=time-slicing", "window_seconds=2"]
    (cell,) = untouched.run(study="programs.yaml", config=config).ok().cells
    record = untouched.record(cell)
    assert record["status"] == "ok"
    for tenant in record["tenants"]:
        assert tenant["foreign_histogram"] is None
        # A busy machine wakes a sleeper late, never early. A scrape may come when only the count has the last nap.
        assert tenant["sum_seconds"] >= 0.01 * (tenant["count"] - 1) > 0
        assert tenant["load"]["achieved_rate_hz"] == pytest.approx(tenant["count"] / tenant["scrape"]["seconds"])
    (row,) = rows(untouched.results / "tables/summary.csv")
    assert row["latency_p99_seconds"] == ""


def has_served(record: dict[str, Any]) -> bool:
    """Whether the servers that are well have answered in the window."""
    well = record["tenants"][:1] if "turns-bad" in record["spec"] else record["tenants"]
    return all(tenant["count"] for tenant in well)


def test_servers_are_measured_by_clients_and_may_fail(untouched: Checkout) -> None:
    (untouched.root / "dies.py").write_text(FAILING_SERVER)
    result = untouched.run(study="programs.yaml").ok()
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []
    # On a busy machine no request may end in a window of a second.
    for _ in range(3):
        idle = [cell for cell in result.cells if "dies" not in cell and not has_served(untouched.record(cell))]
        if not idle:
            break
        untouched.delete_records(*idle)
        assert untouched.run(study="programs.yaml").ok().cells == set(idle)
    records = {cell.split("/")[1]: untouched.record(cell) for cell in result.cells}
    assert {name: record["status"] for name, record in records.items()} == {
        "served": "ok",
        "chat": "ok",
        "dies": "crashed",
        "turns-bad": "ok",
    }
    well = [*records["served"]["tenants"], *records["chat"]["tenants"], records["turns-bad"]["tenants"][0]]
    assert all(tenant["count"] > 0 and tenant["measured_by"] == "client" for tenant in well)
    for name in ("served", "chat", "turns-bad"):
        assert all(item["holds"] for item in records[name]["evidence"])
    load = records["served"]["tenants"][0]["load"]
    assert (load["arrival"], load["planned_rate_hz"]) == ("constant", 20)

    for tenant in records["chat"]["tenants"]:
        first, gaps = tenant["stages"]["ttft"], tenant["stages"]["itl"]
        assert (first["count"], gaps["count"]) == (tenant["count"], 4 * tenant["count"])
        # The time to the first token and the gaps add up to at most the latency of the answer.
        assert first["sum_seconds"] + gaps["sum_seconds"] <= tenant["sum_seconds"] * (1 + 1e-9)
        assert tenant["requests"]["output_tokens"] == [5] * tenant["count"]

    stages = rows(untouched.results / "tables/stages.csv")
    assert {(row["workload"], row["tenant"], row["stage"]) for row in stages} == {
        ("chat", tenant, stage) for tenant in "01" for stage in ("ttft", "itl", "tpot")
    }

    dead = records["dies"]
    assert dead["reason"] == "1 of 2 tenants crashed: ended by itself with exit code 3"
    assert "out of tokens" in dead["tenants"][1]["exit"]["log_tail"]
    bad = records["turns-bad"]["tenants"][1]
    assert (bad["count"], bad["last_error"]) == (0, "status 500")
    (row,) = [row for row in rows(untouched.results / "tables/summary.csv") if row["workload"] == "turns-bad"]
    reason = f"tenant 1: all of {bad['errors']} requests failed: status 500 ({bad['errors']})"
    assert (row["n"], row["n_excluded"], row["latency_mean_seconds"]) == ("0", "1", "")
    assert reason in row["reason"]
    printed = " ".join(result.out.split())
    assert "1 of 4 cells crashed: dies, mps × 2: 1 of 2 tenants crashed: ended by itself with exit code 3" in printed
    assert "of 4 cells excluded by" in printed
    assert untouched.run(study="programs.yaml").ok().jobs == {}, "an outcome is not re-measured"


def test_a_fast_server_has_a_warning_of_the_time_between_two_requests(untouched: Checkout) -> None:
    """Our client takes about as long between two requests as this server for one."""
    (untouched.root / "fast.yaml").write_text(
        """
node: cpu
strategies: [exclusive]
replicas: [1]
repeats: 1
baseline: none
window_seconds: 1
warmup: {min_iterations: 4, max_seconds: 1, tolerance_percent: 20}
workloads: [fast]
workload_catalogue:
  fast:
    kind: http
    command: ["{python}", "{here}/examples/http_server.py", "{port}"]
    request: {method: GET, path: /health}
    load: {arrival: closed, concurrency: 2}
"""
    )
    # Where each answer waits for a core, the time between two requests is a smaller share.
    for _ in range(5):
        result = untouched.run(study="fast.yaml").ok()
        (tenant,) = untouched.record("exclusive/fast/1/1")["tenants"]
        gap = 1 - tenant["load"]["in_flight_mean"] / 2
        if gap > GENERATOR_GAP_RATIO:
            break
        untouched.delete_records("exclusive/fast/1/1")
    (cell,) = rows(untouched.results / "tables/cells.csv")
    assert "generator_gap" in cell["warnings"].split(";")
    assert "generator_gap: our client made closed loads slower" in " ".join(result.out.split())
    (row,) = rows(untouched.results / "tables/summary.csv")
    if cell["valid"] == "True":
        assert f"took {gap:.1%} of the time, which its rate lacks" in row["notes"]
