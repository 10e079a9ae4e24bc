"""The loads of a sweep on this host: processes that are started once, and go on under another load."""

from pathlib import Path
from typing import Any, cast

from unit import factories
from unit.nodes.host.tenants import cpu_study, run_of

from sharebench.measure.cell.sweep import measure_sweep
from sharebench.study.cells import Cell

SERVER = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
with open("{starts}", "a") as file:
    print("a start", file=file)
asked = []
class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        asked.append(self.path)
        {note}
        time.sleep(0.005)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def measure(tmp_path: Path, entry: dict[str, Any], names: list[str], replicas: int) -> list[dict[str, Any]]:
    """The records of the loads of a sweep, in this order, with one start."""
    planned = cpu_study(**{"workload_catalogue.swept": entry, "workloads": ["swept"], "replicas": [replicas]})
    cells = [Cell("time-slicing", name, replicas, 1) for name in names]
    records = measure_sweep([run_of(tmp_path, planned, cell) for cell in cells], lambda _: None)
    return [cast(dict[str, Any], factories.write_and_read(tmp_path / "raw.json", record)) for record, _ in records]


def measure_server(tmp_path: Path, *in_flight: int) -> list[dict[str, Any]]:
    """The records of server.py with these numbers of requests in flight."""
    command = ["{python}", str(tmp_path / "server.py"), "{port}"]
    entry = {"command": command, "kind": "http", "min_window_seconds": 0.1, "load": {"concurrency": sorted(in_flight)}}
    return measure(tmp_path, entry, [f"swept-concurrency-{number}" for number in in_flight], 1)


def starts(tmp_path: Path) -> int:
    """How often the server was started."""
    return len((tmp_path / "starts").read_text().splitlines())


def test_built_in_tenants_go_on_at_another_rate(tmp_path: Path) -> None:
    entry = {"module": "matmul", "params": {"size": 32}, "min_window_seconds": 0.1}
    entry |= {"load": {"arrival": "poisson", "rate_hz": [50, 200]}}
    names = ["swept-rate_hz-200", "swept-rate_hz-50"]
    records = measure(tmp_path, entry, names, 2)
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert [record["start"]["position"] for record in records] == [0, 1]
    for record, name, rate_hz in zip(records, names, (200, 50), strict=True):
        assert [tenant["workload"] for tenant in record["tenants"]] == [name] * 2
        assert [tenant["load"]["planned_rate_hz"] for tenant in record["tenants"]] == [rate_hz] * 2
    assert all(tenant["startup"] for tenant in records[0]["tenants"])
    assert all(tenant["startup"] is None for tenant in records[1]["tenants"])


def test_a_server_is_started_once_for_two_numbers_of_requests_in_flight(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER.format(note="pass", starts=tmp_path / "starts"))
    # Where the client waits for a core, fewer are in flight, or none in a whole window; how many may be, others test.
    for _ in range(5):
        (tmp_path / "starts").unlink(missing_ok=True)
        records = measure_server(tmp_path, 4, 1)
        assert [record["status"] for record in records] == ["ok", "ok"]
        assert starts(tmp_path) == 1
        (four,), (one,) = ([tenant["load"] for tenant in record["tenants"]] for record in records)
        if (four["in_flight_mean"] or 0) > 1 and one["in_flight_mean"]:
            break
    assert (four["concurrency"], one["concurrency"]) == (4, 1)
    assert 1 < four["in_flight_mean"] <= 4 and 0 < one["in_flight_mean"] <= 1
    assert records[0]["start"]["id"] == records[1]["start"]["id"]


def test_a_server_that_ends_under_a_load_is_started_again_for_the_next(tmp_path: Path) -> None:
    mark = tmp_path / "has-ended"
    note = f"len(asked) < 9 or os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w'), os._exit(3))"
    (tmp_path / "server.py").write_text(SERVER.format(note=note, starts=tmp_path / "starts"))
    records = measure_server(tmp_path, 1, 2, 4)
    statuses = [record["status"] for record in records]
    assert statuses.count("crashed") == 1 and statuses.count("ok") == 2
    ids = [record["start"]["id"] for record in records]
    crashed = statuses.index("crashed")
    # Loads share a start up to the one under which it ended; where that was the last, nothing was started again.
    assert ids == [ids[0]] * (crashed + 1) + [ids[-1]] * (2 - crashed)
    assert (ids[0] == ids[-1]) == (crashed == 2)
    assert starts(tmp_path) == len(set(ids))
