"""Cells whose tenants are user programs: real processes on the stand-in, well and badly behaved."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.host.tenants import PATIENCE_SECONDS, cell_of, naps_of, sleeping
from unit.studies import W, study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import logs, processes
from sharebench.measure.nodes.host.programs.tenants import free_port, port_conflict
from sharebench.model.workload import Workload
from sharebench.study.cells import Cell

QUICK = {"warmup": {"min_iterations": 4, "max_seconds": 1, "tolerance_percent": 50}, "window_seconds": 0.5}

# A user program that counts its naps; `extra` runs after each nap.
NAPS = """
import os, sys, time
from prometheus_client import Histogram, start_http_server
naps = Histogram("nap_seconds", "Naps", buckets=(0.001, 0.002, 0.005, 0.01, 0.05, 1))
{before}
start_http_server({port})
print("up", flush=True)
while True:
    with naps.time():
        time.sleep(0.004)
    {extra}
"""
SERVER = """
import http.server, sys, time
asked = []
class Nap(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        {before}
        time.sleep(0.004)
        self.send_response({status})
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Nap).serve_forever()
"""


def naps(port: str = "int(sys.argv[1])", before: str = "", extra: str = "pass") -> str:
    """The text of the napping program."""
    return NAPS.format(port=port, before=before, extra=extra)


def command(text: str, **more: Any) -> dict[str, Any]:
    """A workload entry that runs this Python text."""
    words = ["{python}", "-c", text] + ([] if "port" in more else ["{port}"])
    return {
        "kind": "command",
        "command": words,
        "metrics": {"histogram": "nap_seconds"},
        "min_window_seconds": 0.1,
    } | more


def server(before: str = "pass", status: int | str = 200, **more: Any) -> dict[str, Any]:
    """A workload entry of a server of naps."""
    text = SERVER.format(before=before, status=status)
    return {"kind": "http", "command": ["{python}", "-c", text, "{port}"], "min_window_seconds": 0.1} | more


def run(
    tmp_path: Path,
    entry: dict[str, Any],
    replicas: int = 1,
    strategy: str = "mps",
    start_seconds: float = PATIENCE_SECONDS,
) -> dict[str, Any]:
    """The record of a cell of such tenants, after writing it."""
    planned = study_with({f"{W}.mine": entry, "workloads": ["mine"]} | QUICK)
    return cell_of(tmp_path, planned, Cell(strategy, "mine", replicas, 1), start_seconds)


def failed(measured: dict[str, Any]) -> set[str]:
    """The failed `invalid` gates, without those that fail on a busy machine."""
    broken = {gate["name"] for gate in measured["gates"] if gate["severity"] == "invalid" and not gate["passed"]}
    return broken - {"cpu_stolen", "cpu_throttled", "window_coverage", "scrape_error"}


def test_a_program_with_a_fixed_port_is_measured_alone(tmp_path: Path) -> None:
    port = free_port()
    assert run(tmp_path, command(naps(port=str(port)), port=port))["status"] == "ok"
    two = run(tmp_path, command(naps(port="8000"), port=8000), replicas=2)
    assert (two["status"], two["reason"]) == (
        "infeasible",
        "mine always listens on port 8000, which only one tenant of a host can use; give it a port with {port}",
    )
    assert port_conflict([Workload(name="mine").changed(kind="http")] * 2) is None
    different = [Workload(name=name).changed(kind="http", port=port) for name, port in (("a", 8000), ("b", 9000))]
    assert port_conflict(different) is None


def test_a_port_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Otherwise another program's metrics would be taken for the tenant's."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(NodeError, match=f"port {port} is in use by another program"):
            run(tmp_path, command(naps(port=str(port)), port=port))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"metrics": {"histogram": "nap"}}, "tenant 0: there is no histogram 'nap'; this page has: nap_seconds"),
        ({"metrics": {"histogram": "nap_seconds", "labels": {"a": "b"}}}, "tenant 0: .*no series with metrics.labels"),
        ({"command": ["no-such-program", "{port}"]}, "cannot start 'no-such-program': No such file or directory"),
    ],
    ids=["metric", "labels", "program"],
)
def test_a_wrong_config_is_a_node_error(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(NodeError, match=f"^{line}"):
        # On a busy machine it may not have answered yet.
        for seconds in (2, 8, 32, 128):
            assert run(tmp_path, command(naps()) | changes, start_seconds=seconds)["status"] == "hung"


@pytest.mark.parametrize(
    ("ready", "status"),
    [({"log": "up"}, "ok"), ({"count": 3}, "ok"), ({"path": "/metrics"}, "ok"), ({"log": "never said"}, "hung")],
    ids=str,
)
def test_a_program_has_started_when_its_rule_holds(tmp_path: Path, ready: dict[str, Any], status: str) -> None:
    measured = run(tmp_path, command(naps(), ready=ready), start_seconds=PATIENCE_SECONDS if status == "ok" else 2)
    assert measured["status"] == status


def test_a_server_that_is_not_ready_is_reported_with_its_last_answer(tmp_path: Path) -> None:
    """This is the most common mistake in a user's workload."""
    for seconds in (2, 8, 32, 128):
        measured = run(tmp_path, server(status=404, ready={"path": "/health"}), start_seconds=seconds)
        assert measured["status"] == "hung"
        # On a busy machine it may not have answered yet.
        if "status" in measured["reason"]:
            break
    assert measured["reason"] == f"1 of 1 tenants hung: not ready after {seconds} s: GET /health: status 404"


def test_the_log_of_a_program_that_prints_much_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 1 << 20)
    cuts = []

    def truncate_log(log: Path, search: logs.LogSearch | None) -> None:
        before = log.stat().st_size
        logs.truncate_log(log, search)
        if before > logs.MAX_LOG_BYTES:
            cuts.append(log.read_bytes())

    monkeypatch.setattr(processes, "truncate_log", truncate_log)
    much = "print('x' * (1 << 20), flush=True)"
    measured = run(tmp_path, command(naps(extra=much), ready={"log": "up"}))
    assert measured["status"] == "ok"
    assert cuts
    assert all(b"[more than 1 MiB were printed: what came before was cut]" in each for each in cuts)
    assert len(capfd.readouterr().err) < 2 * logs.KEPT_BYTES


@pytest.mark.parametrize("more", ["", ", env={}"], ids=["its environment", "no environment"])
def test_processes_in_a_session_of_their_own_end_with_the_program(tmp_path: Path, more: str) -> None:
    started = f"['sleep', '{naps_of(tmp_path)}'], executable={shutil.which('sleep')!r}, start_new_session=True{more}"
    daemon = f"import subprocess; subprocess.Popen({started})"
    assert run(tmp_path, command(naps(before=daemon)))["status"] == "ok"
    assert sleeping(naps_of(tmp_path)) == []


def test_a_program_does_not_get_the_environment_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    seen = """
import os, sys
own = os.environ
print(own.get("PYTHONPATH"), own.get("SHAREBENCH_TOKEN"), own["SHAREBENCH_INDEX"])
print(own["SHAREBENCH_PORT"] == sys.argv[1], own["TMPDIR"] == os.getcwd(), os.listdir())
sys.exit(1)
"""
    measured = run(tmp_path, command(seen))
    assert measured["tenants"][0]["exit"]["log_tail"].strip() == "/theirs None 0\nTrue True []"


def test_a_secret_is_only_in_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_key = {"request": {"headers": {"X-Api-Key": "{env:MY_KEY}"}}}
    keyed = server(status="200 if self.headers['X-Api-Key'] == os.environ['MY_KEY'] else 401", before="import os")
    with pytest.raises(NodeError, match=r"^mine: \{env:MY_KEY\} is not set in the environment; export MY_KEY$"):
        run(tmp_path, keyed | with_key)
    monkeypatch.setenv("MY_KEY", "hunter2-SECRET")
    seen = []
    start = subprocess.Popen.__init__
    monkeypatch.setattr(
        subprocess.Popen, "__init__", lambda self, argv, **more: (seen.append(argv), start(self, argv, **more))[1]
    )
    measured = run(tmp_path, keyed | with_key)
    assert (measured["status"], measured["tenants"][0]["errors"]) == ("ok", 0)
    assert len(seen) == 2
    assert "hunter2" not in json.dumps(seen) + (tmp_path / "raw.json").read_text()


def test_an_external_server_is_measured(tmp_path: Path) -> None:
    port = free_port()
    theirs = subprocess.Popen([sys.executable, "-c", SERVER.format(before="pass", status=200), str(port)])
    try:
        measured = run(
            tmp_path, {"kind": "http", "url": f"http://127.0.0.1:{port}", "min_window_seconds": 0.1}, replicas=2
        )
        assert theirs.poll() is None, "it is left alone"
    finally:
        theirs.kill()
        theirs.wait()
    assert measured["status"] == "ok"
    assert measured["evidence"] == []
    assert [tenant["cpu"] for tenant in measured["tenants"]] == [None, None]
    gates = {gate["name"]: gate for gate in measured["gates"]}
    assert "evidence" not in gates
    assert not gates["server_elsewhere"]["passed"]
