"""The end of tenants that are processes: stopped, killed, interrupted, swept."""

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from unit.nodes.host.tenants import CORES, FOREVER, hidden_child, is_alive, no_sampler, wait_for

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.host import processes
from sharebench.measure.nodes.host.processes import TENANT_VARIABLE, ProcessTenants

IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
HAS_A_CHILD = "import subprocess; subprocess.Popen(['sleep', '60']); print('born', flush=True); " + FOREVER


def test_a_stopped_tenant_ends_by_itself(
    launch: Callable[..., ProcessTenants], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 600)
    # Like the real tenant it handles SIGTERM, for which it has to run.
    tenants = launch(
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit()); print(1, flush=True); time.sleep(60)"
    )
    wait_for(lambda: (tenants.scratch / "0.out").read_text())
    os.kill(tenants.pids()[0], signal.SIGSTOP)
    tenants.stop()
    assert tenants.units[0].popens[0].returncode == 0, "not by SIGKILL"
    assert not is_alive(tenants.pids()[0])


def test_stop_kills_tenants_that_ignore_the_signal(
    launch: Callable[..., ProcessTenants], capfd: pytest.CaptureFixture[str]
) -> None:
    tenants = launch(IGNORES_SIGTERM, HAS_A_CHILD)
    wait_for(lambda: all((tenants.scratch / name).read_text() for name in ("0.out", "1.out")))
    child = psutil.Process(tenants.pids()[1]).children()[0]
    (tenants.scratch / "0.log").write_text("a warning\n")
    tenants.stop()
    assert tenants.units[0].popens[0].returncode == -signal.SIGKILL
    wait_for(lambda: not is_alive(child.pid))
    assert not any(is_alive(pid) for pid in tenants.pids())
    assert not tenants.scratch.exists()
    assert "tenant 0: a warning" in capfd.readouterr().err


class Asked(BaseException):
    """The test's own interrupt."""


def interrupt(*_: object) -> None:
    """A signal handler that raises, like the driver's."""
    raise Asked


def test_an_interrupt_waits_until_all_are_stopped(
    launch: Callable[..., ProcessTenants], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = launch(FOREVER, FOREVER)
    before = signal.signal(signal.SIGTERM, interrupt)
    real = ProcessTenants._signal

    def signalled(process: subprocess.Popen[bytes], number: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(process, number)

    monkeypatch.setattr(ProcessTenants, "_signal", staticmethod(signalled))
    try:
        with pytest.raises(Asked):
            tenants.stop()
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not any(is_alive(pid) for pid in tenants.pids())
    assert not tenants.scratch.exists()


def test_an_interrupt_at_the_start_of_a_tenant_does_not_forget_it(
    launch: Callable[..., ProcessTenants], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGTERM, interrupt)
    started: list[int] = []

    class Interrupting(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    made: list[ProcessTenants] = []
    real = ProcessTenants.__init__
    monkeypatch.setattr(ProcessTenants, "__init__", lambda self, *given: (made.append(self), real(self, *given))[1])
    try:
        with pytest.raises(Asked):
            launch(FOREVER, FOREVER)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert made[0].pids() == started
    assert len(started) == 1
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_sweeping_ends_only_tenants_of_this_run(this_run: str) -> None:
    def sleeper(**variables: str) -> subprocess.Popen[bytes]:
        bare = {key: value for key, value in os.environ.items() if key not in (RUN_ID_VARIABLE, TENANT_VARIABLE)}
        return subprocess.Popen(["sleep", "60"], env=bare | variables)

    left_over = sleeper(**{RUN_ID_VARIABLE: this_run, TENANT_VARIABLE: "0"})
    others = [
        sleeper(**{RUN_ID_VARIABLE: "another-run", TENANT_VARIABLE: "0"}),
        sleeper(**{TENANT_VARIABLE: "0"}),
        sleeper(**{RUN_ID_VARIABLE: this_run}),  # a driver of this run
    ]
    os.kill(left_over.pid, signal.SIGSTOP)
    tenants = ProcessTenants({"warmup": {}}, {"loads": [], "timeouts": {"start_seconds": 1}}, no_sampler)
    try:
        tenants.sweep()
        assert not is_alive(left_over.pid)
        assert [process.poll() for process in others] == [None] * 3
    finally:
        tenants.stop()
        for process in (left_over, *others):
            process.kill()
            process.wait()


def test_sweeping_ends_a_tenants_process_that_hides_its_environment(this_run: str) -> None:
    tenants = ProcessTenants({"warmup": {}}, {"loads": [], "timeouts": {"start_seconds": 1}}, no_sampler)
    with hidden_child(**{RUN_ID_VARIABLE: this_run, TENANT_VARIABLE: "0"}) as (parent, pid):
        tenants.sweep()
        assert not is_alive(parent.pid) and not is_alive(pid)
    tenants.stop()
