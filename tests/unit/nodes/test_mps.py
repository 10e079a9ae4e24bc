"""Our MPS daemons with a stand-in of NVIDIA's control program: started, queried, and always ended."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from unit.nodes.host.tenants import HIDES, hidden_child

from sharebench.core.files import SCRIPTS
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import mps
from sharebench.measure.nodes.host.mps import MpsDaemon
from sharebench.measure.nodes.limits import CLIENT_VARIABLES
from tenant.contract import MPS_PIPE_VARIABLE

pytestmark = pytest.mark.usefixtures("mps_control")


@pytest.fixture
def daemon(tmp_path: Path) -> MpsDaemon:
    """A daemon that has not been started."""
    return MpsDaemon(tmp_path / "mps" / "0")


@pytest.mark.parametrize("percent, memory_bytes, seen", [(25.0, 10 << 30, (25.0, "10240M")), (None, None, (100.0, ""))])
def test_limits_are_set_before_the_server_starts(
    daemon: MpsDaemon, percent: float | None, memory_bytes: int | None, seen: tuple[float, str]
) -> None:
    daemon.start("GPU-1", percent, memory_bytes)
    server = daemon.server()
    assert server is not None
    assert (daemon.thread_percent(server), daemon.memory_limit(server)) == seen


def test_a_stopped_daemon_leaves_nothing(daemon: MpsDaemon, tmp_path: Path) -> None:
    daemon.start("GPU-1", None, None)
    pid, server = daemon.pid, daemon.server()
    assert pid is not None and server is not None
    daemon.stop()
    assert not mps.is_running(pid) and not mps.is_running(server)
    assert not daemon.folder.exists()


def test_a_daemon_that_ignores_quit_is_killed(daemon: MpsDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.start("GPU-1", None, None)
    (daemon.pipe / "deaf").touch()
    pid, server = daemon.pid, daemon.server()
    assert pid is not None and server is not None
    # In vain for its own end; what is killed has the fixture's time, since it may wait for a core to end.
    wait_for, times = mps._wait_for, iter([0.2])
    monkeypatch.setattr(mps, "_wait_for", lambda condition, seconds: wait_for(condition, next(times, seconds)))
    daemon.stop()
    assert not mps.is_running(pid) and not mps.is_running(server)


def test_the_next_run_ends_the_daemon_of_a_killed_run(daemon: MpsDaemon, tmp_path: Path) -> None:
    daemon.start("GPU-1", None, None)
    pid = daemon.pid
    assert pid is not None
    assert mps.kill_leftovers(tmp_path / "mps") == 2
    assert not mps.is_running(pid)
    assert mps.kill_leftovers(tmp_path / "mps") == 0


def test_a_daemon_elsewhere_is_foreign_and_stays(daemon: MpsDaemon, tmp_path: Path) -> None:
    daemon.start("GPU-1", None, None)
    pid = daemon.pid
    line = mps.foreign_daemon(tmp_path / "ours", {"GPU-1"})
    assert line is not None and "not ours" in line and "echo quit" in line
    assert mps.kill_leftovers(tmp_path / "ours") == 0
    assert pid is not None and mps.is_running(pid)
    assert mps.foreign_daemon(tmp_path, {"GPU-1"}) is None
    # It is bound to GPU-1, so that a study on another GPU need not mind.
    assert mps.foreign_daemon(tmp_path / "ours", {"GPU-2"}) is None


def test_a_command_line_that_asks_a_daemon_is_not_a_daemon(mps_control: Path, tmp_path: Path) -> None:
    # It names no GPU, and a study next to this one asks often.
    mps_control.write_text(
        mps_control.read_text().replace("def main() -> None:", "def main() -> None:\n    time.sleep(60)")
    )
    elsewhere = os.environ | {MPS_PIPE_VARIABLE: str(tmp_path / "elsewhere")}
    with subprocess.Popen([mps_control], env=elsewhere) as asking:
        name = psutil.Process(asking.pid).name
        deadline = time.monotonic() + 60
        while not name().startswith("nvidia-cuda-mps") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert name().startswith("nvidia-cuda-mps")
        assert mps.foreign_daemon(tmp_path / "ours", {"GPU-1"}) is None
        asking.kill()


def test_a_daemon_does_not_inherit_cuda_settings_or_the_run_id(
    daemon: MpsDaemon, mps_control: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("SHAREBENCH_RUN_ID", "20260101-000000-abcd")
    monkeypatch.setenv("SHAREBENCH_RUN_OWNER", "1:2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    mps_control.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\nexit 1\n")
    with pytest.raises(NodeError):
        daemon.start("GPU-1", None, None)
    seen = (tmp_path / "seen").read_text()
    assert "CUDA_VISIBLE_DEVICES=GPU-1\n" in seen
    assert "THREAD_PERCENTAGE" not in seen and "SHAREBENCH_RUN_ID" not in seen
    assert "SHAREBENCH_RUN_OWNER=1:2\n" in seen, "so that it does not count as left by a killed job"


def test_a_reused_pid_in_a_stale_pid_file_is_not_a_daemon(daemon: MpsDaemon) -> None:
    daemon.pipe.mkdir(parents=True)
    (daemon.pipe / f"{mps.CONTROL}.pid").write_text(str(os.getpid()))
    assert daemon.pid is None
    daemon.stop()
    assert not daemon.folder.exists()


def test_variables_are_those_that_a_process_was_started_with() -> None:
    ours = {"CUDA_MPS_CLIENT_PRIORITY": "1", "OTHER": "2"}
    # Until its first word, /proc may show no variables yet.
    process = subprocess.Popen(
        ["/bin/sh", "-c", "echo; read end"], env=ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert mps.process_variables(process.pid, CLIENT_VARIABLES) == {"CUDA_MPS_CLIENT_PRIORITY": "1"}
    finally:
        process.kill()
        process.communicate()
    assert mps.process_variables(process.pid, CLIENT_VARIABLES) == {}


def test_variables_of_a_process_that_hides_its_environment_are_those_of_its_parent() -> None:
    """But not those of the driver, which has other variables."""
    with hidden_child(CUDA_MPS_CLIENT_PRIORITY="1", OTHER="2") as (_, pid):
        assert mps.process_variables(pid, CLIENT_VARIABLES) == {"CUDA_MPS_CLIENT_PRIORITY": "1"}
    driver = f"""
import subprocess, sys
from sharebench.measure.nodes.host import mps
hidden = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(mps.process_variables(int(hidden.stdout.readline()), {CLIENT_VARIABLES!r}))
hidden.kill()
"""
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "CUDA_MPS_CLIENT_PRIORITY": "1"}
    command = [sys.executable, "-c", driver, HIDES]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "{}\n"
