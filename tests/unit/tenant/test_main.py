"""Tenants as the driver meets them: real processes, real HTTP."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipapp
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenant.recorder import SLOTS

from .conftest import MS, SCRIPTS, TOKEN, Tenant

Launch = Callable[..., Tenant]

SCHEMA = SCRIPTS.parent / "config" / "schemas" / "record.schema.json"
QUICK = ("--warmup", json.dumps({"min_iterations": 4, "max_seconds": 1}))
SMALL = ("--workload", "matmul", "--params", json.dumps({"size": 32}), *QUICK)

WORKLOAD = """
import os, sys, time
assert "numpy" not in sys.modules
assert all(os.environ[name] == "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"))
from tenant.workloads import RequestError, Work, Workload

class Planted(Workload):
    work = Work(None, None, 1)
    steps = 0
    def step(self):
        self.steps += 1
        {step}
    def output_digest(self):
        return [1.0]
    def packages(self):
        return {{}}

def create(params):
    {create}
    return Planted()
"""


@pytest.fixture
def plant(tmp_path: Path, launch: Launch) -> Launch:
    """A tenant with a workload of one file, whose `step` and `create` are given."""

    def start(step: str = "time.sleep(0.002)", create: str = "pass", *arguments: str) -> Tenant:
        shutil.copytree(SCRIPTS / "tenant", tmp_path / "tenant", ignore=shutil.ignore_patterns("__pycache__"))
        text = WORKLOAD.format(step=textwrap.indent(step, " " * 8).strip(), create=create)
        (tmp_path / "tenant" / "workloads" / "planted.py").write_text(text)
        return launch("--workload", "planted", *QUICK, *arguments, path=tmp_path)

    return start


def test_a_window_from_announcement_to_record(launch: Launch) -> None:
    spawned_ns = time.monotonic_ns()
    tenant = launch(*SMALL, "--name", "small-matmul", "--index", "1", "--spawned-ns", str(spawned_ns))
    tenant.wait_ready()
    since_ns = tenant.get("/clock")["monotonic_ns"]
    assert tenant.wait_ready(f"/readyz?since={since_ns}")["steady"]["batches"] >= 1
    assert tenant.get("/healthz") == {"status": "ready"}
    record = tenant.measure(0.3)
    environment = record.pop("environment")
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema_rs.validator_for({"$ref": "#/$defs/tenant", "$defs": schema["$defs"]})
    validator.validate({**record, "status": "ok", "exit": None})
    assert set(environment) == {"python", "platform", "packages"}
    assert (record["index"], record["workload"]) == (1, "small-matmul")
    assert record["count"] == sum(record["histogram"].values()) == sum(record["timeline"]["count"]) > 100
    assert len(record["timeline"]["count"]) == SLOTS
    assert sum(record["timeline"]["sum_seconds"]) == pytest.approx(record["sum_seconds"])
    assert 0.5 < record["coverage_ratio"] <= 1
    assert record["cpu"]["cpu_seconds"] > 0
    assert record["startup"]["process_seconds"] > 0
    assert record["startup"]["import_seconds"] > 0
    families = list(text_string_to_metric_families(tenant.call("GET", "/metrics", token=None)[1]))
    counts = [s.value for f in families for s in f.samples if s.name == "sharebench_iteration_seconds_count"]
    assert counts and counts[0] > record["count"]


def test_open_load_over_http(launch: Launch) -> None:
    tenant = launch(*SMALL, "--load", json.dumps({"arrival": "poisson", "rate_hz": 200, "seed": 1}))
    tenant.wait_ready()
    load = tenant.measure(0.5)["load"]
    assert load["arrival"] == "poisson"
    assert load["planned_rate_hz"] == 200
    assert 40 < load["achieved_rate_hz"] < 400
    assert load["delay_p99_seconds"] > 0


def test_a_hung_step_gives_a_record_at_the_deadline(plant: Launch, tmp_path: Path) -> None:
    tenant = plant(f"time.sleep(0.002)\nwhile os.path.exists({str(tmp_path / 'hang')!r}): time.sleep(3600)")
    tenant.wait_ready()
    start_ns = tenant.announce(0.4)
    time.sleep((start_ns - time.monotonic_ns()) / 1e9 + 0.1)
    (tmp_path / "hang").touch()
    record = tenant.get("/record?deadline_seconds=0.1")
    assert time.monotonic_ns() >= start_ns + 500 * MS
    assert record["load"]["censored"] == 1
    assert 0 < record["count"] == sum(record["histogram"].values()) < 150
    assert record["coverage_ratio"] > 0.9
    tenant.process.terminate()
    assert tenant.end()[0] == 0


def test_failed_requests_are_errors(plant: Launch) -> None:
    tenant = plant("time.sleep(0.001)\nif self.steps % 3 == 0: raise RequestError('planted')")
    tenant.wait_ready()
    record = tenant.measure(0.2)
    assert record["errors"] == pytest.approx(record["count"] / 2, abs=1)


def test_standard_output_has_the_port_and_nothing_else(plant: Launch) -> None:
    tenant = plant("print('noise'); time.sleep(0.01)")
    tenant.wait_ready()
    tenant.process.terminate()
    output, errors = tenant.process.communicate(timeout=20)
    assert (tenant.process.returncode, output) == (0, "")
    assert "noise" in errors


@pytest.mark.parametrize("step", ["time.sleep(3600)", "pass"])
def test_told_to_stop_it_ends_well_even_in_a_long_iteration(plant: Launch, step: str) -> None:
    tenant = plant(step)
    while tenant.get("/healthz")["status"] == "loading":
        time.sleep(0.02)
    tenant.process.terminate()
    assert tenant.end() == (0, "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--workload", "matmul", "--params", '{"sise": 3}'], "matmul: unknown parameter sise; known: size, dtype"),
        (["--workload", "nonsense"], "unknown workload module 'nonsense'; known: "),
        (
            ["--workload", "matmul", "--load", '{"arrival": "poisson"}'],
            "load rate_hz must be a number above 0, not None",
        ),
        (["--workload", "matmul", "--warmup", '{"n": 1}'], "warmup: unknown parameter n; known: min_iterations, "),
    ],
)
def test_wrong_parameters_end_it_with_one_line(launch: Launch, arguments: list[str], line: str) -> None:
    code, errors = launch(*arguments).end()
    assert code == 2
    assert errors.startswith(line) and errors.count("\n") == 1


def test_without_a_token_it_does_not_start() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "SHAREBENCH_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", "tenant", "--workload", "matmul"],
        env={**environment, "PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "SHAREBENCH_TOKEN is not set\n")


def test_out_of_memory_has_its_own_exit_code(launch: Launch) -> None:
    code, errors = launch("--workload", "memcopy", "--params", '{"mebibytes": 1000000000}').end()
    assert code == 12
    assert errors.startswith("out of memory: ") and errors.count("\n") == 1


def test_out_of_memory_in_an_iteration_too(plant: Launch) -> None:
    code, errors = plant("raise MemoryError").end()
    assert (code, errors) == (12, "out of memory: the allocation failed\n")


@pytest.mark.parametrize(("step", "create"), [("1 / 0", "pass"), ("pass", "1 / 0")])
def test_any_other_failure_is_a_traceback_and_exit_1(plant: Launch, step: str, create: str) -> None:
    code, errors = plant(step, create).end()
    assert code == 1
    assert "ZeroDivisionError" in errors


def test_it_runs_as_a_zipapp(launch: Launch, tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS / "tenant", tmp_path / "app" / "tenant", ignore=shutil.ignore_patterns("__pycache__"))
    archive = tmp_path / "tenant.pyz"
    zipapp.create_archive(tmp_path / "app", archive, main="tenant.__main__:main")
    tenant = launch(*SMALL, program=[str(archive)], path=tmp_path / "nowhere")
    tenant.wait_ready()
    assert tenant.measure(0.1)["count"] > 0
    tenant.process.terminate()
    assert tenant.end() == (0, "")


def test_the_token_is_asked_for(launch: Launch) -> None:
    tenant = launch(*SMALL)
    window = {"start_ns": time.monotonic_ns() + 500 * MS, "end_ns": time.monotonic_ns() + 600 * MS}
    for token in (None, TOKEN + "x"):
        assert tenant.call("POST", "/window", window, token)[0] == 401
        assert tenant.call("GET", "/clock", token=token)[0] == 401
        assert tenant.call("GET", "/record?deadline_seconds=1", token=token)[0] == 401


def test_the_http_thread_does_not_wake_up_by_itself(plant: Launch) -> None:
    tenant = plant("time.sleep(3600)")
    while tenant.get("/healthz")["status"] == "loading":
        time.sleep(0.02)

    def switches() -> list[int]:
        tasks = sorted(Path(f"/proc/{tenant.process.pid}/task").iterdir())
        lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        return [int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")]

    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc here")
    time.sleep(0.2)
    before = switches()
    time.sleep(0.8)
    assert switches() == before
