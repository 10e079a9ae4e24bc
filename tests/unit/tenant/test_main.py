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
from typing import Any

import jsonschema_rs
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenant.recorder import SLOTS

from .conftest import MS, SCRIPTS, Tenant

Launch = Callable[..., Tenant]

SCHEMA = SCRIPTS.parent / "config" / "schemas" / "record.schema.json"
QUICK = ("--warmup", json.dumps({"min_iterations": 4, "max_seconds": 1}))
SMALL = ("--workload", "matmul", "--params", json.dumps({"size": 32}), *QUICK)

WORKLOAD = """
import os, sys, threading, time
assert "numpy" not in sys.modules
assert all(os.environ[name] == "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"))
from tenant.workload import RequestError, Work, Workload

class Planted(Workload):
    work = Work(None, None, 1)
    made = steps = 0
    captured = {captured}
    def attach(self):
        self.thread = threading.get_native_id()
    def step(self):
        assert threading.get_native_id() == self.thread
        self.steps += 1
        {step}
    def output_digest(self):
        return [self.steps]
def create(params, device):
    {create}
    Planted.made += 1
    planted = Planted()
    planted.number = Planted.made
    return planted
"""


@pytest.fixture
def plant(tmp_path: Path, launch: Launch) -> Launch:
    """A tenant with a workload of one file, whose `step` and `create` are given."""

    def start(step: str = "time.sleep(0.002)", create: str = "pass", *arguments: str, captured: bool = False) -> Tenant:
        shutil.copytree(SCRIPTS / "tenant", tmp_path / "tenant", ignore=shutil.ignore_patterns("__pycache__"))
        text = WORKLOAD.format(step=textwrap.indent(step, " " * 8).strip(), create=create, captured=captured)
        (tmp_path / "tenant" / "workloads" / "planted.py").write_text(text)
        return launch("--workload", "planted", *QUICK, *arguments, path=tmp_path)

    return start


def validate(record: dict[str, Any]) -> None:
    """Raise where a record is not as the schema says."""
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema_rs.validator_for({"$ref": "#/$defs/tenant", "$defs": schema["$defs"]})
    added = {"status": "ok", "exit": None, "output_digest": [1.0]}
    validator.validate({key: record[key] for key in record if key != "environment"} | added)


def test_a_window_from_announcement_to_record(launch: Launch) -> None:
    spawned_ns = time.monotonic_ns()
    tenant = launch(*SMALL, "--name", "small-matmul", "--index", "1", "--spawned-ns", str(spawned_ns))
    tenant.wait_ready()
    since_ns = tenant.get("/clock")["monotonic_ns"]
    assert tenant.wait_ready(f"/readyz?since={since_ns}")["steady"]["batches"] >= 1
    assert tenant.get("/healthz") == {"status": "ready"}
    record = tenant.measure(0.3)
    validate(record)
    environment = record.pop("environment")
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


def test_a_tenant_keeps_its_neighbours_company_until_it_is_told_to_sum_up(plant: Launch) -> None:
    tenant = plant("time.sleep(0.002)", "pass", "--streams", "2", captured=True)
    early, late = tenant.stream(0), tenant.stream(1)
    for stream in (early, late):
        stream.wait_ready()
    late_start_ns = late.announce(0.8)
    early.announce(0.1)
    # As long as the other one measures, however long this machine takes.
    ran = early.get("/record?deadline_seconds=10")["count"]
    measured = late.get("/record?deadline_seconds=10")
    assert time.monotonic_ns() >= late_start_ns + 800 * MS
    (steps,) = early.get("/digest?deadline_seconds=10")["output_digest"]
    assert steps > ran + measured["count"] / 2


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
    tenant.stop()


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
    tenant.wait_loaded()
    tenant.stop()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--workload", "matmul", "--params", '{"sise": 3}'],
            "matmul: unknown parameter sise; known: size, dtype, graph",
        ),
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
    tenant.stop()


def test_the_http_thread_does_not_wake_up_by_itself(plant: Launch) -> None:
    tenant = plant("time.sleep(3600)")
    tenant.wait_loaded()

    def switches() -> list[int]:
        tasks = sorted(Path(f"/proc/{tenant.process.pid}/task").iterdir())
        lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        return [int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")]

    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc here")
    for _ in range(20):
        before = switches()
        time.sleep(0.5)
        if switches() == before:
            return
    pytest.fail("it woke up in every half second")


def test_a_missing_framework_is_one_line_with_what_to_type(plant: Launch) -> None:
    code, errors = plant(create="import no_such_framework.nn").end()
    assert code == 2
    assert errors == f"planted needs no_such_framework, which {sys.executable} lacks; run `make gpu-env`\n"


def test_device_times_and_stages_are_those_of_the_window(plant: Launch) -> None:
    tenant = plant(
        "begin = time.monotonic_ns(); time.sleep(0.002)\n"
        "self.samples.add('pre', begin, 500_000)\n"
        "if self.steps % 2: self.samples.add('device', begin, 1_500_000)"
    )
    tenant.wait_ready()
    record = tenant.measure(0.2)
    assert record["stages"].keys() == {"pre"}
    # A stage begins a moment after its iteration: at each edge of the window the two can lie on different sides.
    assert abs(record["stages"]["pre"]["count"] - record["count"]) <= 1
    device = record["device_histogram"]
    assert device["count"] == pytest.approx(record["count"] / 2, abs=1)
    assert device["sum_seconds"] == pytest.approx(device["count"] * 0.0015)
    assert sum(device["histogram"].values()) == device["count"]


def test_tenants_on_streams_of_one_process_are_measured_apart(plant: Launch) -> None:
    step = "time.sleep(0.002)\nif self.number == 2: [None for _ in range(20000)]"
    tenant = plant(step, "pass", "--streams", "3", "--index", "2", captured=True)
    assert len(set(tenant.ports)) == 3
    streams = [tenant.stream(number) for number in range(3)]
    for stream in streams:
        stream.wait_ready()
    start_ns = tenant.get("/clock")["monotonic_ns"] + 200 * MS
    for stream in streams:
        window = {"start_ns": start_ns, "end_ns": start_ns + 300 * MS}
        assert stream.call("POST", "/window", window)[0] == 200
    records = [stream.get("/record?deadline_seconds=10") for stream in streams]
    assert [record["index"] for record in records] == [2, 3, 4]
    for record in records:
        assert 20 < record["count"] < 160
        assert 0 < record["cpu"]["cpu_seconds"] < 0.3
    first, busy, last = (record["cpu"]["cpu_seconds"] for record in records)
    assert busy > 2 * max(first, last), "it is the thread's CPU time, not the process's"
    resident = psutil.Process(tenant.process.pid).memory_info().rss
    assert sum(record["memory_bytes"] for record in records) == pytest.approx(resident, rel=0.2)
    tenant.stop()


def test_a_stream_needs_a_captured_graph(plant: Launch) -> None:
    code, errors = plant("pass", "pass", "--streams", "1").end()
    assert code == 2
    assert errors == "planted: only a captured CUDA graph can run in streams of one process; set graph: true\n"


@pytest.mark.parametrize(("step", "code", "words"), [("raise MemoryError", 12, "out of memory"), ("1 / 0", 1, "Zero")])
def test_one_failing_stream_ends_the_process(plant: Launch, step: str, code: int, words: str) -> None:
    tenant = plant(f"time.sleep(0.002)\nif self.steps == 5: {step}", "pass", "--streams", "2", captured=True)
    ended, errors = tenant.end()
    assert ended == code
    assert words in errors


def test_streams_end_well_while_they_are_within_a_step(plant: Launch) -> None:
    tenant = plant("time.sleep(3600)", "pass", "--streams", "2", captured=True)
    tenant.wait_loaded()
    tenant.stop()


@pytest.mark.parametrize("streams", [(), ("--streams", "2")])
def test_on_cuda_the_record_says_what_the_tenant_saw(launch: Launch, driver: Path, streams: tuple[str, ...]) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver), "SHAREBENCH_PROBE_BYTES": str(2 << 20)}
    tenant = launch("--workload", "empty", "--device", "cuda", *QUICK, *streams, environment=environment)
    last = tenant.stream(len(tenant.ports) - 1)
    last.wait_ready()
    record = last.measure(0.3)
    validate(record)
    assert record["view"]["pid"] == tenant.process.pid
    assert (record["view"]["sm_count"], record["view"]["over_limit_refused"]) == (132, True)
    assert record["startup"]["context_seconds"] > 0
    # The stub's synchronisation takes a millisecond, so every iteration is asked.
    assert 0 < record["device_histogram"]["count"] <= record["count"]
    tenant.stop()


def test_without_a_driver_cuda_fails_with_a_reason(launch: Launch) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    code, errors = launch("--workload", "empty", "--device", "cuda").end()
    assert code == 1
    assert "no CUDA driver: libcuda.so.1" in errors
