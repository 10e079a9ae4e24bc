"""Tenants as processes of this host: the real tenant where it matters, small programs that misbehave elsewhere."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.host.tenants import CORES, FOREVER, PATIENCE_SECONDS, command_of, is_alive, wait_for

from sharebench.measure.cell.window import measure_window, settle
from sharebench.measure.nodes.contract import Grant, NodeError, TenantsFailed, classify_exit
from sharebench.measure.nodes.host import processes, template
from sharebench.measure.nodes.host.launch import grant_environment
from sharebench.measure.nodes.host.processes import ProcessTenants
from tenant.contract.forking import ForkRequest

NS = 1_000_000_000
OUT_OF_MEMORY = "import sys; print('out of memory: 728 TiB', file=sys.stderr); sys.exit(12)"
CRASHES = "raise SystemExit('it broke')"


def test_tenants_run_from_start_to_stop(
    launch: Callable[..., ProcessTenants], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = launch(None, None)
    assert len(tenants.pids()) == 2
    tenants.wait_ready()
    assert [outcome["status"] for outcome in tenants.outcomes()] == ["ok", "ok"]
    verdicts = settle(tenants, PATIENCE_SECONDS)
    assert len(verdicts) == 2

    class NoSampler:
        def start(self) -> None: ...
        def stop(self, *_: float) -> Any:
            return [], {}

    began_epoch_seconds = time.time()
    window, records, *_ = measure_window(tenants, NoSampler(), 0.2, PATIENCE_SECONDS)
    assert window["end_monotonic_seconds"] < time.monotonic()
    error = window["clock_error_seconds"]
    assert 0 <= error < time.time() - began_epoch_seconds, "half of a round trip"
    assert began_epoch_seconds + 0.2 - error <= window["end_epoch_seconds"] <= time.time() + error
    assert [one["index"] for one in records] == [0, 1]
    assert all(is_alive(pid) for pid in tenants.pids()), "load goes on until all records are there"
    monkeypatch.setattr(processes, "GRACE_SECONDS", 300.0)
    began = time.monotonic()
    tenants.stop()
    assert time.monotonic() - began < processes.GRACE_SECONDS, "they end when they are asked to"
    assert not any(is_alive(pid) for pid in tenants.pids())
    assert not tenants.scratch.exists()
    assert capfd.readouterr().err == ""


def test_affinity_is_inherited_and_that_of_the_driver_is_restored(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(FOREVER, FOREVER, cores=(CORES[-1],))
    assert sorted(os.sched_getaffinity(0)) == CORES
    # Pinned before its first instruction, not by its own call.
    assert [os.sched_getaffinity(pid) for pid in tenants.pids()] == [{CORES[-1]}] * 2
    free = launch(FOREVER)
    assert sorted(os.sched_getaffinity(free.pids()[0])) == CORES


def test_a_forked_tenant_runs_on_the_cores_of_the_jobs_device(
    launch: Callable[..., ProcessTenants], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template has all cores of its run."""
    asked: list[ForkRequest] = []
    monkeypatch.setattr(template, "fork", lambda _python, request, *_files: asked.append(request))
    os.sched_setaffinity(0, CORES[-1:])
    try:
        launch(None)
    finally:
        os.sched_setaffinity(0, CORES)
    assert [request["cores"] for request in asked] == [CORES[-1:]]


def test_a_tenant_that_is_killed_ends_the_wait_at_once(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(FOREVER, FOREVER)
    os.kill(tenants.pids()[1], signal.SIGKILL)
    until = tenants.now_ns() + 600 * NS
    with pytest.raises(TenantsFailed):
        tenants.sleep_until(until)
    assert tenants.now_ns() < until
    outcomes = tenants.outcomes()
    assert [outcome["status"] for outcome in outcomes] == ["ok", "killed"]
    assert outcomes[1]["exit"]["code"] == -9
    assert "SIGKILL" in outcomes[1]["exit"]["reason"]


def test_the_end_of_a_watched_tenant_is_timed_to_the_moment(launch: Callable[..., ProcessTenants]) -> None:
    # A busy machine may notice nothing in two seconds. No longer ones: who looks every few seconds would pass in them.
    for _ in range(5):
        tenants = launch(FOREVER)
        began = tenants.now_ns()
        os.kill(tenants.pids()[0], signal.SIGKILL)
        ended = tenants.watch_until(began + 2 * NS)
        assert tenants.now_ns() >= began + 2 * NS, "nor does watching end early"
        if ended and ended[0] < began + 2 * NS:
            break
    assert began < ended[0] < began + 2 * NS


TEMPORARY = """
import os, tempfile, time
handle, name = tempfile.mkstemp()
print(name, os.getcwd(), oct(os.stat(os.getcwd()).st_mode), flush=True)
time.sleep(60)
"""


def test_each_tenant_has_a_private_folder_that_is_removed_with_it(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(TEMPORARY, TEMPORARY)
    said = []
    for number in range(2):
        wait_for(lambda: tenants.units[number].out.read_text().endswith("\n"))  # noqa: B023
        said.append(tenants.units[number].out.read_text().split())
    folders = [Path(home) for _, home, _ in said]
    assert len(set(folders)) == 2
    for (temporary, home, mode), folder in zip(said, folders, strict=True):
        assert Path(temporary).parent == folder == Path(home)
        assert folder.parent == tenants.scratch
        assert mode == oct(0o40700)
    assert tenants.scratch.stat().st_mode & 0o777 == 0o700
    tenants.stop()
    assert not tenants.scratch.exists()


def test_tenants_that_fit_into_memory_are_waited_for(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(OUT_OF_MEMORY, None, OUT_OF_MEMORY)
    with pytest.raises(TenantsFailed):
        tenants.wait_ready()
    outcomes = tenants.outcomes()
    assert [outcome["status"] for outcome in outcomes] == ["oom", "ok", "oom"]
    assert outcomes[0]["exit"]["code"] == 12
    assert outcomes[0]["exit"]["log_tail"].strip() == "out of memory: 728 TiB"


def test_a_crash_at_the_start_ends_the_wait(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(FOREVER, CRASHES, start_seconds=300.0)
    began = time.monotonic()
    with pytest.raises(TenantsFailed):
        tenants.wait_ready()
    assert time.monotonic() - began < 300
    outcomes = tenants.outcomes()
    assert [outcome["status"] for outcome in outcomes] == ["ok", "crashed"]
    assert outcomes[1]["exit"]["log_tail"].strip() == "it broke"


@pytest.mark.parametrize("program", [FOREVER, "print('{\"ports\": [1]}', flush=True); " + FOREVER])
def test_a_tenant_that_never_answers_hangs(launch: Callable[..., ProcessTenants], program: str) -> None:
    began = time.monotonic()
    tenants = launch(program, start_seconds=0.5)
    with pytest.raises(TenantsFailed):
        tenants.wait_ready()
    assert time.monotonic() - began >= 0.5
    outcome = tenants.outcomes()[0]
    assert outcome["status"] == "hung"
    assert outcome["exit"]["reason"] == "not ready after 0.5 s"


@pytest.mark.parametrize(
    "code, status, words",
    [
        (12, "oom", "memory"),
        (0, "crashed", "exit code 0"),
        (1, "crashed", "exit code 1"),
        (-9, "killed", "SIGKILL"),
        (-15, "killed", "SIGTERM"),
        (-11, "crashed", "SIGSEGV"),
        (-6, "crashed", "SIGABRT"),
        (-40, "crashed", "signal 40"),
    ],
)
def test_an_exit_code_gives_status_and_reason(code: int, status: str, words: str) -> None:
    assert classify_exit(code)[0] == status
    assert words in classify_exit(code)[1]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("CUDA error: CUDA_ERROR_OUT_OF_MEMORY", "oom"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "oom"),
        ("no data", "crashed"),
    ],
)
def test_the_last_output_of_a_program_shows_that_it_ran_out_of_memory(said: str, status: str) -> None:
    assert classify_exit(1, False, said)[0] == status
    assert classify_exit(1, True, said)[0] == "crashed", "ours say it by their code"


def test_a_tenant_that_refuses_its_arguments_is_a_node_error(launch: Callable[..., ProcessTenants]) -> None:
    refuses = "import sys; print('a warning', file=sys.stderr); print('bert needs torch', file=sys.stderr); sys.exit(2)"
    tenants = launch(FOREVER, refuses)
    with pytest.raises(NodeError, match=r"^bert needs torch$"):
        tenants.wait_ready()


def test_grants_of_one_process_are_its_streams(launch: Callable[..., ProcessTenants]) -> None:
    tenants = launch(FOREVER, FOREVER, FOREVER, FOREVER, process_of={1: 0, 2: 0})
    pids = tenants.pids()
    assert len(pids) == 4
    assert pids[1] == pids[2]
    assert len(set(pids)) == 3
    command = command_of(tenants, *tenants.units[1].grants)
    streams = json.loads(command[command.index("--streams") + 1])
    assert [(each["workload"], each["sms"]) for each in streams] == [("matmul", None)] * 2
    assert command[command.index("--index") + 1] == "1"
    assert "--streams" not in command_of(tenants, *tenants.units[0].grants)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(TenantsFailed):
        tenants.sleep_until(tenants.now_ns() + 600 * NS)
    assert [outcome["status"] for outcome in tenants.outcomes()] == ["ok", "killed", "killed", "ok"]


def test_all_streams_of_a_process_are_waited_for(launch: Callable[..., ProcessTenants]) -> None:
    answers = """
import http.server, json, sys, threading, time
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        late = self.server is servers[1] and time.monotonic() < begin + 0.5
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"status": "%s"}' % (b"" if late else b"ready"))
    def log_message(self, *_): pass
servers = [http.server.HTTPServer(("127.0.0.1", 0), Ready) for _ in range(2)]
begin = time.monotonic()
print(json.dumps({"ports": [server.server_port for server in servers]}), flush=True)
for server in servers: threading.Thread(target=server.serve_forever).start()
"""
    began = time.monotonic()
    tenants = launch(answers, answers, process_of={0: 7, 1: 7})
    tenants.wait_ready()
    assert time.monotonic() > began + 0.5
    assert len({endpoint.port for endpoint in tenants.endpoints()}) == 2


def test_cuda_settings_come_from_the_grant_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/someone/elses")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/kept")
    environment = grant_environment(Grant(0, 0, {"CUDA_VISIBLE_DEVICES": "GPU-1"}))
    given = {key: value for key, value in environment.items() if key.startswith("CUDA_")}
    assert given == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert environment["LD_LIBRARY_PATH"] == "/kept"
