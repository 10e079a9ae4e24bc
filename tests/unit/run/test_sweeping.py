"""What a run sweeps and what it spares, and how signals interrupt it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.host.tenants import is_alive
from unit.run import test_ownership
from unit.run.test_ownership import SCRIPTS

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.run import leftovers, ownership
from sharebench.measure.run.ownership import claim, interruptible

results = test_ownership.results


@pytest.mark.parametrize("planted", ["../../precious/*", "x/../../precious/*", "", "20260101-000000-zzzz"])
def test_a_planted_owner_sweeps_nothing(results: Path, tmp_path: Path, planted: str) -> None:
    precious = tmp_path / "precious" / "thesis"
    precious.mkdir(parents=True)
    lock = tmp_path / "node.lock"
    lock.touch()
    identity = f"{lock.stat().st_dev}:{lock.stat().st_ino}"
    lock.write_text(json.dumps({"run_id": planted, "pid": 1, "lock": identity}))
    claim(results, {}, lock).release()
    assert precious.is_dir()


def test_sweeping_spares_this_process_its_ancestors_and_other_runs(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.3)
    mine = f"unit-test-{os.getpid()}"

    def start(run_id: str, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ | {RUN_ID_VARIABLE: run_id}, stdout=subprocess.PIPE)

    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    ours = [start(mine, "sleep", "60"), start(mine, "sleep", "60"), start(mine, sys.executable, "-c", deaf)]
    spared = start("unit-test-other", "sleep", "60")
    try:
        assert ours[2].stdout is not None
        ours[2].stdout.readline()
        os.kill(ours[1].pid, signal.SIGSTOP)
        leftovers.sweep(mine, grace_seconds=0.3)
        assert not any(is_alive(process.pid) for process in ours)
        assert is_alive(spared.pid)
        # The sweeping process has the run's id itself, like a job that takes over in the same shell.
        script = f"from sharebench.measure.run.leftovers import sweep; sweep({mine!r})"
        environment = os.environ | {RUN_ID_VARIABLE: mine, "PYTHONPATH": str(SCRIPTS)}
        shell = [
            "sh",
            "-c",
            '"$0" -c "$1"; echo alive',
            sys.executable,
            script,
        ]
        sweeping = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
        assert sweeping.stdout.split() == ["alive"]
    finally:
        for process in (*ours, spared):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def handlers() -> list[Any]:
    """The current handlers of SIGINT and SIGTERM."""
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_interrupts_and_later_ones_let_cleanup_finish(number: signal.Signals) -> None:
    before = handlers()
    done: list[str] = []
    with pytest.raises(ownership.Interrupted, match=number.name), interruptible():
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
            done.append("went on")
        except Exception:
            done.append("taken for a failure")
        finally:
            for again in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), again)
                time.sleep(0.01)
            done.append("cleaned up")
    assert done == ["cleaned up"]
    assert handlers() == before
