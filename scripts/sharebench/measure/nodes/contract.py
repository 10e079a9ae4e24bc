"""The contract of a kind of node: grants, tenants, endpoints, samplers, and their failures."""

import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NotRequired, Protocol, TypedDict

from sharebench.core.files import Refusal
from sharebench.model.records.telemetry import Row, Telemetry
from sharebench.model.records.types import EvidenceItem, Outcome, TenantStatus
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from tenant.contract import (
    BUCKETS_PER_DOUBLING,
    EXIT_OUT_OF_MEMORY,
    OVERFLOW_INDEX,
    SMALLEST_SECONDS,
    Arrival,
    Environment,
    Outputs,
    Steadiness,
    TenantMeasurement,
    TenantReport,
)

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NodeOptions, PrometheusOptions, Timeouts

Evidence = list[EvidenceItem]
# Out-of-memory messages of CUDA, torch, Python, C++ and the C library.
OUT_OF_MEMORY = re.compile(r"out[ _]of[ _]memory|OutOfMemory|MemoryError|bad_alloc|Cannot allocate memory", re.I)


def item(name: str, expected: object, observed: object, source: str, holds: bool | None = None) -> EvidenceItem:
    """One item of evidence; it holds when `observed` equals `expected`, unless `holds` is given."""
    holds = expected == observed if holds is None else holds
    return {"name": name, "expected": expected, "observed": observed, "holds": holds, "source": source}


def classify_exit(code: int, has_exit_codes: bool = True, last_output: str = "") -> tuple[TenantStatus, str]:
    """Status and reason of a tenant that ended with this exit code before it was stopped.

    Exit codes of a user program (not `has_exit_codes`) have no known meaning: its last output decides.
    """
    if (code == EXIT_OUT_OF_MEMORY) if has_exit_codes else OUT_OF_MEMORY.search(last_output) is not None:
        return "oom", "ran out of memory"
    if code < 0:
        names = {each.value: each.name for each in signal.Signals}
        name = names.get(-code, f"signal {-code}")
        return ("killed" if name in ("SIGKILL", "SIGTERM") else "crashed"), f"ended by {name}"
    return "crashed", f"ended by itself with exit code {code}"


def latency_bucket(seconds: float) -> int:
    """Index of the bucket that holds a latency (like tenant.recorder, without numpy's start-up time)."""
    if seconds <= SMALLEST_SECONDS:
        return 0
    return min(OVERFLOW_INDEX, math.ceil(BUCKETS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS)))


def empty_measurements(index: int, workload: str) -> TenantMeasurement:
    """The measurements of a tenant that has measured nothing."""
    return {
        "index": index,
        "workload": workload,
        "view": None,
        "startup": None,
        "count": 0,
        "sum_seconds": 0.0,
        "min_seconds": None,
        "max_seconds": None,
        "errors": 0,
        "histogram": {},
        "device_histogram": None,
        "stages": {},
        "timeline": None,
        "coverage_ratio": 0.0,
        "drain_seconds": 0.0,
        "cpu": None,
        "memory_bytes": None,
        "work": None,
    }


def own_load_report(index: int, workload: str, achieved_rate_hz: float, environment: Environment) -> TenantReport:
    """The common part of the reports of tenants that generate their own load."""
    return {
        **empty_measurements(index, workload),
        "steady": None,
        "load": {
            "arrival": "own",
            "planned_rate_hz": None,
            "achieved_rate_hz": achieved_rate_hz,
            "delay_p99_seconds": None,
            "in_flight_mean": None,
            "drops": 0,
            "censored": 0,
        },
        "coverage_ratio": 1.0,
        "output_digest": None,
        "outside": None,
        "environment": environment,
    }


class PlannedLoad(TypedDict):
    """How requests arrive at a tenant; `before` is the number of tenants in front of those that share its seed.

    `parts` is the number of tenants that share a trace, `asks` how often a server is asked fixed prompts.
    """

    arrival: Arrival
    concurrency: NotRequired[int]
    rate_hz: NotRequired[float]
    seed: int
    before: int
    parts: NotRequired[int]
    asks: NotRequired[int]


class WatchSettings(TypedDict, total=False):
    """Settings of a cell that Prometheus watches: the config's `prometheus`, and the tenants' name and annotations."""

    prometheus: "PrometheusOptions"
    watched_cell: str
    pod_annotations: Mapping[str, str]


class Settings(WatchSettings):
    """Settings of a cell that are not in its spec; `loads`, one per tenant, are added by `CellRun`.

    `windows` is the number of windows for which the tenants are started, one per load of a sweep.
    """

    timeouts: "Timeouts"
    cell_folder: str
    windows: NotRequired[int]
    loads: NotRequired[list[PlannedLoad]]


def is_external_server(report: TenantReport) -> bool:
    """Whether the tenant is a server that runs elsewhere, without a grant and invisible to the host."""
    return report.get("measured_by") == "client" and report.get("outside") is None


class NodeError(Refusal):
    """The node could not do what was requested; a harness failure."""


class WorkloadError(NodeError):
    """The workload cannot run at all, by its own fault: its image, its init container, its program or its arguments."""


class UnrecoverableNodeError(NodeError):
    """The node cannot run any later cell, so the run ends."""


class TenantUnreachable(Exception):
    """A living tenant did not answer, or gave an invalid answer; a harness failure."""


@dataclass(frozen=True)
class State:
    """A node's state: a strategy, the number of replicas where it matters, and the block of the study."""

    strategy: Strategy
    replicas: int | None
    block: int

    @property
    def setting(self) -> str:
        """The device's setting, without the block: `mps`, or `mps-limited n4`."""
        return self.strategy.name if self.replicas is None else f"{self.strategy.name} n{self.replicas}"

    @property
    def key(self) -> str:
        return f"{self.setting} block {self.block}"


@dataclass(frozen=True)
class Grant:
    """A tenant's access to its share: environment, CPUs, and the group of tenants that shares a device or instance.

    Consecutive grants with the same `process` are tenants of one process, each on its own stream; with `sm_count`, in a
    green context of at most that number of SMs. A process that is not `is_forkable` is started with its environment.
    """

    index: int
    group: int
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] | None = None
    process: int | None = None
    sm_count: int | None = None
    is_forkable: bool = True


class DeviceOptions(NamedTuple):
    """One of several devices: a config section that names it alone, and its host cores (None: not pinned)."""

    options: "NodeOptions"
    cores: list[int] | None


class Sampler(Protocol):
    """Telemetry around a window."""

    def start(self) -> None:
        """Begin to sample."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        """Stop; returns the rows of telemetry.csv and the record's summary of the window (monotonic seconds)."""


class Endpoint(Protocol):
    """The driver's view of one tenant (docs/method.md, the window)."""

    def steadiness(self, since_ns: int | None) -> Steadiness | None:
        """The verdict on steadiness since that time, or the first verdict (None); None while there is no verdict."""

    def clock(self) -> tuple[int, int, float]:
        """Monotonic and real time in ns, and the round trip in seconds."""

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        """Announce the window; False when the tenant refused it because it has begun already.

        With `iterations` it is a job: that number of iterations from the start, with the end as their deadline.
        """

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The tenant's report of the window; waits for the window's end and up to the deadline after it.

        A job's report comes when the job is done; `ahead_seconds` is how far ahead the window's end may be.
        """

    def outputs(self, deadline_seconds: float) -> Outputs:
        """Digest of the last output, None where it is not available within the deadline, and a server's answers.

        It is work for the device, so call this only when no tenant measures any more.
        """


class Tenants(Protocol):
    """The tenants of one cell.

    `are_local` is true without a network in between: then a living tenant that does not answer is hung.
    """

    are_local: bool

    def sweep(self) -> None:
        """Remove what earlier cells left behind."""

    def start(self, grants: Sequence[Grant]) -> None:
        """Launch one tenant per grant."""

    def wait_ready(self) -> None:
        """Wait until all are warm. Raises TenantsFailed when one does not get there."""

    def change_load(self, spec: Spec, settings: Settings) -> None:
        """Have all go on under the loads of another cell of their sweep; `wait_ready` waits until all are warm again.

        Raises TenantUnreachable.
        """

    def endpoints(self) -> Sequence[Endpoint]:
        """One per tenant, in order."""

    def outcomes(self) -> list[Outcome]:
        """`status` and `exit` of each tenant so far, in order."""

    def now_ns(self) -> int:
        """The node's monotonic clock."""

    def sleep_until(self, monotonic_ns: int) -> None:
        """Wait in the node's clock; raises TenantsFailed early when a tenant dies."""

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait in the node's clock, even if tenants end; returns their ends in ns, by index."""

    def pids(self) -> list[int]:
        """The process id of each on this host, in order; empty where they are elsewhere."""

    def sampler(self) -> Sampler:
        """Telemetry of their device; call it when all are warm. Raises NodeError."""

    def metrics_addresses(self) -> list[str]:
        """The addresses where Prometheus can scrape them, as `host:port`, in order. Raises NodeError."""

    def stop(self) -> None:
        """Remove all tenants, in whatever state they are."""


class TenantsFailed(Exception):
    """A tenant ended, hung or never got ready: a measured outcome."""
