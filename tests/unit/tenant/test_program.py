"""Observing the container next to ours through the pod's shared processes, on a made-up /proc."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenant import program
from tenant.contract import device_digest
from tenant.failures import RefusedError
from tenant.program import ExitingProgram, UserProgram

GRANT = {"SHAREBENCH_GRANTED": "1", "CUDA_MPS_PIPE_DIRECTORY": "/mps", "NVIDIA_VISIBLE_DEVICES": "GPU-1"}
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """A function that adds a process; `environment` is None if it may not be read."""
    monkeypatch.setattr(program, "PROC", tmp_path)

    def add_process(pid: int, parent: int, environment: dict[str, str] | None = None, ticks: int = 0) -> None:
        folder = tmp_path / str(pid)
        (folder / "root" / "dev").mkdir(parents=True)
        fields = ["S", str(parent), *"0" * 9, str(ticks), *"0" * 10]
        (folder / "stat").write_text(f"{pid} (a ) b) {' '.join(fields)}")
        (folder / "comm").write_text("serve\n")
        (folder / "status").write_text("Name: x\nVmHWM:\t  2 kB\n")
        if environment is not None:
            (folder / "environ").write_bytes("\0".join(f"{k}={v}" for k, v in environment.items()).encode())

    add_process(1, 0)
    add_process(os.getpid(), 0, {})
    return add_process


def test_the_program_is_the_container_with_the_grant(add: Add) -> None:
    add(7, 0, {"A": "a sidecar"})
    add(8, 0, GRANT, ticks=100)
    add(9, 8, GRANT, ticks=50)
    user_program = UserProgram()
    assert user_program.pids() == [8, 9]
    assert user_program.cpu_seconds(user_program.pids()) == pytest.approx(150 / os.sysconf("SC_CLK_TCK"))
    assert user_program.peak_resident_bytes() == 4096
    assert user_program.process_view() == {"pids": [8, 9], "names": ["serve", "serve"], "visible_devices": None}
    assert user_program.view is not None
    assert (user_program.view["pid"], user_program.view["device"]) == (8, device_digest("GPU-1"))
    assert (user_program.view["mps_pipe"], user_program.view["is_mig"]) == ("/mps", False)


@pytest.mark.parametrize("count", [1, 2])
def test_another_users_program_is_found_if_it_is_the_only_candidate(add: Add, count: int) -> None:
    for pid in range(7, 7 + count):
        add(pid, 0, None)
    user_program = UserProgram()
    assert (user_program.pid(), user_program.view) == (7 if count == 1 else None, None)


def test_a_container_that_is_being_created_is_not_the_program(add: Add, tmp_path: Path) -> None:
    """As for another user's program, its environment may not be read."""
    add(7, 0, None)
    (tmp_path / "7" / "comm").write_text("runc:[2:INIT]\n")
    assert UserProgram().pid() is None


def test_a_program_without_shared_processes_is_not_visible(add: Add) -> None:
    report = UserProgram().complete_report({"count": 1})  # type: ignore[typeddict-item]
    assert (report["measured_by"], report["cpu"], report["outside"]) == ("client", None, None)


@pytest.mark.parametrize(
    ("files", "device", "is_mig"),
    [
        (["nvidia1"], device_digest("GPU-b"), False),
        (["nvidia1", "nvidia-caps/nvidia-cap3"], None, True),
        ([], None, None),
    ],
)
def test_a_gpu_that_came_by_cdi_is_identified_by_its_device_files(
    add: Add, tmp_path: Path, files: list[str], device: str | None, is_mig: bool | None
) -> None:
    add(8, 0, GRANT | {"NVIDIA_VISIBLE_DEVICES": "void"})
    for name in files:
        path = tmp_path / "8" / "root" / "dev" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for minor, uuid in enumerate(("GPU-a", "GPU-b")):
        folder = tmp_path / "driver" / "nvidia" / "gpus" / str(minor)
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t X\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    user_program = UserProgram()
    user_program.pid()
    assert user_program.view is not None
    assert (user_program.view["device"], user_program.view["is_mig"]) == (device, is_mig)


def test_a_program_that_exits_has_one_window(add: Add) -> None:
    exiting = ExitingProgram()
    with pytest.raises(RefusedError, match="in the past"):
        exiting.set_window(1, 2)
    with pytest.raises(RefusedError, match="no window"):
        exiting.wait_record(1.0)
    exiting.set_window(2**62, 2**62 + 1)
    with pytest.raises(RefusedError, match="another window"):
        exiting.set_window(2**62, 2**62 + 1)


def test_what_a_program_leaves_in_its_container_is_counted_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes, of which the first is taken for the container's."""
    # One child stays in its session, another one has left it; a third one ends before. It ends when it may.
    script = "sleep 600 & echo $!; setsid sleep 600 & echo $!; sleep 0 & wait $!; read end"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    looks: list[list[int]] = []
    look, select_of = UserProgram.process_view, select.select
    with subprocess.Popen(["sh", "-c", script], **pipes) as container:
        end = container.stdin
        assert end is not None and container.stdout is not None
        children = {int(container.stdout.readline()) for _ in range(2)}
        own = psutil.Process(container.pid)

        def noted(self: UserProgram) -> Any:
            view = look(self)
            looks.append(view["pids"])
            return view

        def end_unseen(*arguments: Any) -> Any:
            """Let the container end as soon as its children are known, and the next look at it come before its end."""
            if end.closed or not children <= set(looks[-1]):
                return select_of(*arguments)
            end.close()
            while own.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
            return [], [], []

        monkeypatch.setattr(UserProgram, "process_view", noted)
        monkeypatch.setattr(select, "select", end_unseen)
        exiting = ExitingProgram()
        exiting._pid = container.pid
        # Not of the class, since the threads of earlier tests still look for a program.
        monkeypatch.setattr(exiting, "pid", lambda: container.pid)
        start_ns = time.monotonic_ns() + 60_000_000_000
        exiting.set_window(start_ns, start_ns + 60_000_000_000)
        report = exiting.wait_record(120.0)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    # The look at its end adds no process.
    assert report["left_running"] == 2 and report["outside"] is not None
    assert report["outside"]["pids"] == [container.pid]


def test_peak_memory_is_that_of_the_window() -> None:
    script = "peak = bytearray(200 << 20); del peak; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        user_program = UserProgram(server.pid)
        before = user_program.peak_resident_bytes()
        user_program.watch(0, 0)
        report = user_program.complete_report({"count": 1})  # type: ignore[typeddict-item]
        server.kill()
    assert before is not None and before > 200 << 20
    assert report["memory_bytes"] is not None and 0 < report["memory_bytes"] < 100 << 20
