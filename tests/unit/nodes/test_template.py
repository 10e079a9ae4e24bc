"""Forked tenants behave as started ones, and none outlives its job, its template or its run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sharebench.core.files import SCRIPTS
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.host import template
from tenant.contract import EXIT_USAGE, TOKEN_VARIABLE
from tenant.contract.forking import ForkRequest

PYTHON = Path(sys.executable)
PATIENCE_SECONDS = 300


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A run with a template; returns what ends the template."""
    monkeypatch.setenv(RUN_ID_VARIABLE, f"test-{os.getpid()}-{time.monotonic_ns()}")
    end = template.start(PYTHON)
    assert end is not None and template.start(PYTHON) is None, "one for all devices"
    yield end
    end()


def forked(folder: Path, *arguments: str, module: str = "empty", **variables: str) -> template.ForkedProcess | None:
    """A tenant in `folder`; what it prints is in out and errors there."""
    request: ForkRequest = {
        "module": module,
        "device": "cpu",
        "arguments": ["--workload", module, "--load", '{"arrival": "closed", "seed": 0, "before": 0}', *arguments],
        "environment": {"PATH": os.environ["PATH"], TOKEN_VARIABLE: "secret", **variables},
        "cores": sorted(os.sched_getaffinity(0))[:1],
        "folder": str(folder),
    }
    with (folder / "out").open("ab") as out, (folder / "errors").open("ab") as errors:
        return template.fork(PYTHON, request, out, errors)


def tenant(folder: Path, *arguments: str, module: str = "empty") -> template.ForkedProcess:
    """A tenant that has announced its port."""
    process = forked(folder, *arguments, module=module)
    assert process is not None
    wait_for(lambda: (folder / "out").read_text().endswith("\n") or process.poll() is not None)
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_forked_tenant_has_its_own_session_folder_cores_and_environment(
    run: Callable[[], None], tmp_path: Path
) -> None:
    process = tenant(tmp_path)
    assert json.loads((tmp_path / "out").read_text())["ports"]
    seen = psutil.Process(process.pid)
    assert seen.cwd() == str(tmp_path) and seen.cpu_affinity() == sorted(os.sched_getaffinity(0))[:1]
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0 and process.poll() == 0


def test_exit_codes_and_messages_are_those_of_a_started_tenant(run: Callable[[], None], tmp_path: Path) -> None:
    refused = tenant(tmp_path, "--params", '{"size": "huge"}', module="matmul")
    assert refused.wait(PATIENCE_SECONDS) == EXIT_USAGE
    assert "size" in (tmp_path / "errors").read_text()
    unknown = tenant(tmp_path, module="unheard")
    assert unknown.wait(PATIENCE_SECONDS) == EXIT_USAGE
    assert "unknown workload module 'unheard'" in (tmp_path / "errors").read_text()
    killed = tenant(tmp_path)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_imports_are_done_once(run: Callable[[], None], tmp_path: Path) -> None:
    first, second = (tenant(tmp_path) for _ in range(2))
    parents = {psutil.Process(process.pid).ppid() for process in (first, second)}
    assert len(parents) == 1, "one process per workload"
    assert psutil.Process(tenant(tmp_path, module="matmul").pid).ppid() not in parents


def test_a_tenant_ends_with_the_job_that_asked_for_it(run: Callable[[], None], tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from unit.nodes.test_template import tenant
process = tenant(Path({str(tmp_path)!r}))
print(process.pid, flush=True)
time.sleep(600)
"""
    path = {"PYTHONPATH": f"{SCRIPTS}:{Path(__file__).parents[2]}"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ | path) as job:
        assert job.stdout is not None
        pid = int(job.stdout.readline())
        was_there = not is_gone(pid)
        job.kill()
        assert was_there
        wait_for(lambda: is_gone(pid))


def test_a_tenant_ends_with_its_template_and_counts_as_killed(run: Callable[[], None], tmp_path: Path) -> None:
    process = tenant(tmp_path)
    run()
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    wait_for(lambda: is_gone(process.pid))
    assert forked(tmp_path) is None, "it is started by other means"


def test_everything_ends_with_the_run(tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from sharebench.measure.nodes.host import template
from unit.nodes.test_template import PYTHON, tenant
template.start(PYTHON)
process = tenant(Path({str(tmp_path)!r}))
print(process.pid, flush=True)
time.sleep(600)
"""
    path = {"PYTHONPATH": f"{SCRIPTS}:{Path(__file__).parents[2]}", RUN_ID_VARIABLE: f"test-{time.monotonic_ns()}"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ | path) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        above = [parent.pid for parent in psutil.Process(pid).parents()]
        family = [pid, *above[: above.index(owner.pid)]]
        owner.kill()
        assert len(family) == 3, "the tenant, the process of its workload, the template"
        wait_for(lambda: all(map(is_gone, family)))


@pytest.mark.parametrize(("name", "value"), [("LD_PRELOAD", "libvgpu.so"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "75")])
def test_a_tenant_whose_start_decides_or_proves_its_share_is_not_forked(
    run: Callable[[], None], tmp_path: Path, name: str, value: str
) -> None:
    assert forked(tmp_path, **{name: value}) is None
