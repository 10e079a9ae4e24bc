"""A fake clock, a fake workload that advances it, and real tenants in processes."""

from __future__ import annotations

import copy
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenant.workload import RequestError, Work, Workload

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
MS = 1_000_000
TOKEN = "secret"


class FakeClock:
    """A clock in ns that advances only by `advance_ns` and `sleep`."""

    def __init__(self, now_ns: int = 10**15) -> None:
        self.now_ns = now_ns
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.now_ns

    def advance_ns(self, ns: int) -> None:
        self.now_ns += ns

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += round(seconds * 1e9)


class FakeWorkload(Workload):
    """Each step takes the next of `durations_ns` and then always the last; it calls `before` first."""

    work = Work(1.0, None, 1)

    def __init__(self, clock: FakeClock, durations_ns: Sequence[int]) -> None:
        self.clock = clock
        self.durations_ns = list(durations_ns)
        self.steps = 0
        self.drain_ns = 0
        self.failing: set[int] = set()
        self.before: Callable[[], None] = lambda: None

    def step(self) -> None:
        number = self.steps
        self.steps += 1
        self.before()
        self.clock.advance_ns(self.durations_ns[min(number, len(self.durations_ns) - 1)])
        if number in self.failing:
            raise RequestError("planted")

    def synchronize(self) -> None:
        self.clock.advance_ns(self.drain_ns)

    def output_digest(self) -> list[float]:
        return [float(self.steps)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def http_request(
    port: int, method: str, path: str, body: str | None = None, authorization: str | None = None
) -> tuple[int, str]:
    """Send a request on a new connection; returns status and text of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body, {"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Tenant:
    """A tenant process and its HTTP side."""

    def __init__(
        self,
        arguments: Sequence[str],
        path: Path = SCRIPTS,
        program: Sequence[str] = ("-m", "tenant"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            env={**os.environ, "PYTHONPATH": str(path), "SHAREBENCH_TOKEN": TOKEN, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ports: list[int] = json.loads(line)["ports"] if line else []
        # Which of the process's tenants requests go to.
        self.number = 0

    def stream(self, number: int) -> Tenant:
        """Another tenant of the same process."""
        tenant = copy.copy(self)
        tenant.number = number
        return tenant

    def call(self, method: str, path: str, body: Any = None, token: str | None = TOKEN) -> tuple[int, str]:
        text = None if body is None else json.dumps(body)
        return http_request(self.ports[self.number], method, path, text, None if token is None else f"Bearer {token}")

    def get(self, path: str) -> Any:
        status, text = self.call("GET", path)
        assert status == 200, text
        return json.loads(text)

    def wait_ready(self, path: str = "/readyz") -> Any:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            status, text = self.call("GET", path)
            if status == 200:
                return json.loads(text)
            time.sleep(0.02)
        raise AssertionError(f"not ready: {text}")

    def wait_loaded(self) -> None:
        while self.get("/healthz")["status"] == "loading":
            time.sleep(0.02)

    def announce(self, seconds: float, **job: int) -> int:
        """Set a window of that length as early as this machine can; returns its start in monotonic ns."""
        for lead_ms in (100, 1000, 10_000):
            start_ns: int = self.get("/clock")["monotonic_ns"] + lead_ms * MS
            window = {"start_ns": start_ns, "end_ns": start_ns + int(seconds * 1e9)}
            status, text = self.call("POST", "/window", window | job)
            if status == 200:
                return start_ns
        raise AssertionError(text)

    def measure(self, seconds: float, least: int = 1) -> dict[str, Any]:
        """The record of a window of that length; of a longer one where a busy machine runs fewer iterations in it."""
        for longer in (1, 10, 100):
            self.announce(longer * seconds)
            record: dict[str, Any] = self.get("/record?deadline_seconds=120")
            if record["count"] >= least:
                break
        return record

    def stop(self) -> None:
        """Stop the tenant and check that it ends cleanly and silently."""
        self.process.terminate()
        assert self.end() == (0, "")

    def end(self) -> tuple[int, str]:
        """Wait for the tenant's end; returns exit code and stderr."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in of the CUDA driver's library."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler here for the stand-in of the CUDA driver")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("libcuda_stub.c")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def launch() -> Iterator[Callable[..., Tenant]]:
    """A function that starts tenants, which are killed at the end of the test."""
    started: list[Tenant] = []

    def start(*arguments: str, **options: Any) -> Tenant:
        started.append(Tenant(arguments, **options))
        return started[-1]

    yield start
    for tenant in started:
        tenant.process.kill()
        tenant.process.communicate()
