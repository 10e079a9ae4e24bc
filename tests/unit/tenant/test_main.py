"""Tenants as the driver uses them: real processes, real HTTP."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenant.contract import TIMELINE_SLOTS

from .conftest import SCRIPTS, Tenant

Launch = Callable[..., Tenant]

SCHEMA = SCRIPTS.parent / "config" / "schemas" / "record.schema.json"
QUICK = ("--warmup", json.dumps({"min_iterations": 4, "max_seconds": 1}))
SMALL = ("--workload", "matmul", "--params", json.dumps({"size": 32}), *QUICK)

WORKLOAD = """
import os, sys, threading, time
assert "numpy" not in sys.modules
assert all(os.environ[name] == "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"))
from tenant.parameters import ParameterError
from tenant.workload import RequestError, Work, Workload

class Planted(Workload):
    work = Work(None, None, 1)
    made = steps = inside = 0
    start_ns = None
    is_captured = {is_captured}
    def on_window(self, start_ns, end_ns):
        self.start_ns = start_ns
    def attach(self):
        self.thread = threading.get_native_id()
    def step(self):
        assert threading.get_native_id() == self.thread
        self.steps += 1
        {step}
    def output_digest(self):
        return [self.steps]
def create(params, device):
    import numpy as np
    {create}
    Planted.made += 1
    planted = Planted()
    planted.number = Planted.made
    return planted
"""


@pytest.fixture
def plant(tmp_path: Path, launch: Launch) -> Launch:
    """A function that starts a tenant whose workload has these lines in its `step` and `create`."""

    def start(
        step: str = "time.sleep(0.002)",
        create: str = "pass",
        *arguments: str,
        is_captured: bool = False,
        **options: Any,
    ) -> Tenant:
        shutil.copytree(SCRIPTS / "tenant", tmp_path / "tenant", ignore=shutil.ignore_patterns("__pycache__"))
        text = WORKLOAD.format(step=textwrap.indent(step, " " * 8).strip(), create=create, is_captured=is_captured)
        (tmp_path / "tenant" / "workloads" / "planted.py").write_text(text)
        return launch("--workload", "planted", *QUICK, *arguments, path=tmp_path, **options)

    return start


def validate(record: dict[str, Any]) -> None:
    """Raise if a record does not match the schema."""
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema_rs.validator_for({"$ref": "#/$defs/tenant", "$defs": schema["$defs"]})
    added = {"status": "ok", "exit": None, "output_digest": [1.0]}
    validator.validate({key: record[key] for key in record if key != "environment"} | added)


def test_a_window_from_announcement_to_record(launch: Launch) -> None:
    spawned_ns = time.monotonic_ns()
    tenant = launch(*SMALL, "--name", "small-matmul", "--index", "1", "--spawned-ns", str(spawned_ns))
    tenant.wait_ready()
    # A busy machine may run no batch before the rule's second is over.
    for _ in range(5):
        since_ns = tenant.get("/clock")["monotonic_ns"]
        if (batches := tenant.wait_ready(f"/readyz?since={since_ns}")["steady"]["batches"]) >= 1:
            break
    assert batches >= 1
    assert tenant.get("/healthz") == {"status": "ready"}
    record = tenant.measure(0.3)
    validate(record)
    environment = record.pop("environment")
    assert set(environment) == {"python", "platform", "packages"}
    assert (record["index"], record["workload"]) == (1, "small-matmul")
    assert record["count"] == sum(record["histogram"].values()) == sum(record["timeline"]["count"]) > 0
    assert len(record["timeline"]["count"]) == TIMELINE_SLOTS
    assert sum(record["timeline"]["sum_seconds"]) == pytest.approx(record["sum_seconds"])
    assert record["cpu"]["cpu_seconds"] > 0
    assert record["startup"]["process_seconds"] > 0
    assert record["startup"]["import_seconds"] > 0
    families = list(text_string_to_metric_families(tenant.call("GET", "/metrics", token=None)[1]))
    counts = [s.value for f in families for s in f.samples if s.name == "sharebench_iteration_seconds_count"]
    assert counts and counts[0] > record["count"]


@pytest.mark.parametrize("streams", [(), ("--streams", "[{}, {}]")])
@pytest.mark.parametrize("step", ["time.sleep(3600)", "print('noise')"])
def test_sigterm_ends_a_tenant_cleanly_whatever_it_does(plant: Launch, step: str, streams: tuple[str, ...]) -> None:
    tenant = plant(step, "pass", *streams, is_captured=bool(streams))
    tenant.wait_loaded()
    tenant.process.terminate()
    output, errors = tenant.process.communicate(timeout=120)
    assert (tenant.process.returncode, output) == (0, ""), "standard output has the ports and nothing else"
    assert set(errors) <= set("noise\n")


def test_a_sigterm_that_an_import_swallows_ends_a_tenant_all_the_same(plant: Launch) -> None:
    """As the callback does by which an import gives its lock back: what it raises is ignored."""
    tenant = plant(create="type('Given', (), {'__del__': lambda self: os.kill(os.getpid(), 15)})()")
    _, errors = tenant.process.communicate(timeout=120)
    assert tenant.process.returncode == 0 and errors.startswith("Exception ignored in: ")


TWO = ("--streams", "[{}, {}]")


@pytest.mark.parametrize(
    ("step", "create", "arguments", "code", "message"),
    [
        ("raise MemoryError", "pass", (), 12, "out of memory: the allocation failed\n"),
        ("pass", "np.ones(10**18)", (), 12, "out of memory: Unable to allocate"),
        ("pass", "1 / 0", (), 1, "Traceback"),
        ("pass", "raise ParameterError('size is odd')", (), 2, "size is odd\n"),
        (
            "pass",
            "import no_such.nn",
            (),
            2,
            f"planted needs no_such, which {sys.executable} lacks; run `make gpu-env`",
        ),
        ("pass", "pass", ("--workload", "nonsense"), 2, "unknown workload module 'nonsense'; known: "),
        ("pass", "Planted.is_captured = False", TWO, 2, "planted: only a captured CUDA graph can run in streams"),
        ("if self.steps == 5: raise MemoryError", "pass", TWO, 12, "out of memory"),
        ("if self.steps == 5: 1 / 0", "pass", TWO, 1, "Traceback"),
    ],
)
def test_a_failed_tenant_has_an_exit_code_and_a_message(
    plant: Launch, step: str, create: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    exit_code, errors = plant(step, create, *arguments, is_captured=True).end()
    assert (exit_code, errors[: len(message)]) == (code, message)
    # Two streams may fail at the same time, and print the same line.
    assert len(set(errors.splitlines())) == 1 or message == "Traceback"


def test_a_tenant_without_a_token_does_not_start() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "SHAREBENCH_TOKEN"}
    process = subprocess.run(
        [sys.executable, "-m", "tenant", "--workload", "matmul"],
        env={**environment, "PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (process.returncode, process.stdout, process.stderr) == (2, "", "SHAREBENCH_TOKEN is not set\n")


def test_tenants_on_streams_of_one_process_are_measured_separately(plant: Launch) -> None:
    # As much CPU time on every machine.
    busy = "end = time.thread_time() + 0.001\n    while time.thread_time() < end: pass"
    step = f"time.sleep(0.002)\nif self.number == 2:\n    {busy}"
    tenant = plant(step, "pass", "--streams", "[{}, {}, {}]", "--index", "2", is_captured=True)
    assert len(set(tenant.ports)) == 3
    streams = [tenant.stream(number) for number in range(3)]
    for stream in streams:
        stream.wait_ready()
    records = [stream.measure(0.3) for stream in streams]
    assert [record["index"] for record in records] == [2, 3, 4]
    for record in records:
        seconds = record["timeline"]["slot_seconds"] * TIMELINE_SLOTS
        assert 0 < record["count"] <= seconds / 0.002 + 1
        assert 0 < record["cpu"]["cpu_seconds"] < seconds
    first, busy, last = (record["cpu"]["cpu_seconds"] / record["count"] for record in records)
    assert busy > 2 * max(first, last), "it is the thread's CPU time, not the process's"
    resident = psutil.Process(tenant.process.pid).memory_info().rss
    assert sum(record["memory_bytes"] for record in records) == pytest.approx(resident, rel=0.2)
    tenant.stop()


@pytest.mark.parametrize("streams", [(), ("--streams", "[{}, {}]")])
def test_the_record_has_the_tenants_view_of_cuda(launch: Launch, driver: Path, streams: tuple[str, ...]) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver), "SHAREBENCH_PROBE_BYTES": str(2 << 20)}
    tenant = launch("--workload", "empty", "--device", "cuda", *QUICK, *streams, environment=environment)
    last = tenant.stream(len(tenant.ports) - 1)
    last.wait_ready()
    record = last.measure(0.3)
    validate(record)
    assert record["view"]["pid"] == tenant.process.pid
    assert (record["view"]["sm_count"], record["view"]["over_limit_refused"]) == (132, True)
    assert record["startup"]["context_seconds"] > 0
    # The stub synchronises for 1 ms, so every iteration is sampled. A sample begins a moment after its iteration,
    # so that the window's start can lie between the two.
    assert 0 < record["device_histogram"]["count"] <= record["count"] + 1
    tenant.stop()


def test_tenants_of_one_process_have_parts_and_workloads_of_their_own(plant: Launch, driver: Path) -> None:
    each = [{"workload": "empty", "name": "first", "sms": 92}, {"name": "second", "sms": 39}]
    environment = {"LD_LIBRARY_PATH": str(driver)}
    arguments = ("--device", "cuda", "--streams", json.dumps(each))
    tenant = plant("time.sleep(0.002)", "pass", *arguments, is_captured=True, environment=environment)
    records = []
    for number in range(2):
        tenant.stream(number).wait_ready()
        records.append(tenant.stream(number).measure(0.2))
        validate(records[-1])
    assert [(record["index"], record["workload"]) for record in records] == [(0, "first"), (1, "second")]
    assert [record["view"]["sm_count"] for record in records] == [88, 32]
    assert [record["view"]["sm_ids"] for record in records] == [[*range(88)], [*range(88, 120)]]
    tenant.stop()


def test_no_tenant_of_a_process_runs_before_all_have_loaded(plant: Launch) -> None:
    """Or it would disturb the capture of a neighbour's graph."""
    tenant = plant("assert Planted.made == 3", "time.sleep(0.2)", "--streams", "[{}, {}, {}]", is_captured=True)
    for number in range(3):
        tenant.stream(number).wait_ready()
    tenant.stop()
