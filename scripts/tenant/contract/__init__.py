"""All that the driver and a tenant share; the driver imports nothing else of this package.

`gpu.py` has samples of a GPU, `requests.py` what both need to ask servers.

Only the standard library is imported: a measuring job reads this module before its framework, and without numpy.
"""

from __future__ import annotations

import hashlib
import math
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

# Histograms: bucket i holds latencies in (upper(i - 1), upper(i)] with upper(i) = 1e-6 * 2**(i / 64) seconds. Bucket 0
# holds everything up to 1 µs, the last one everything beyond 1000 s.
BUCKETS_PER_DOUBLING = 64
SMALLEST_SECONDS = 1e-6
LAST_FINITE_INDEX = 1914
OVERFLOW_INDEX = 1915
BUCKET_COUNT = 1916
# A quantile that is taken from anywhere in its bucket is off by at most this share of its value.
QUANTILE_ERROR_RATIO = 2 ** (1 / BUCKETS_PER_DOUBLING) - 1
# Equal parts of a window, in its timeline.
TIMELINE_SLOTS = 40


def upper_seconds(index: int) -> float:
    """Upper bound of a bucket in seconds, infinite for the overflow. Raises IndexError outside the layout."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"bucket {index}: the layout has 0 to {OVERFLOW_INDEX}")
    return math.inf if index == OVERFLOW_INDEX else SMALLEST_SECONDS * 2 ** (index / BUCKETS_PER_DOUBLING)


def lower_seconds(index: int) -> float:
    """Lower bound of a bucket in seconds. Raises IndexError outside the layout."""
    return upper_seconds(index - 1) if index else 0.0


def nearest_bucket(seconds: float) -> int:
    """The bucket whose upper bound is nearest to a time above 0, on the log scale and within the finite ones."""
    index = round(BUCKETS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS))
    return min(max(index, 0), LAST_FINITE_INDEX)


# Exit codes; 0 for a tenant that was ended on purpose.
EXIT_FAILURE = 1
EXIT_USAGE = 2
# As errno ENOMEM.
EXIT_OUT_OF_MEMORY = 12

# Environment variables.
TOKEN_VARIABLE = "SHAREBENCH_TOKEN"
# The bytes that `view` tries to allocate.
PROBE_BYTES_VARIABLE = "SHAREBENCH_PROBE_BYTES"
# A file that is locked while a tenant makes its context: of all tenants that are given the same one, only one does.
CONTEXT_LOCK_VARIABLE = "SHAREBENCH_CONTEXT_LOCK"
# Set in pods by the driver: elsewhere the variables of a device plugin mean something else, or nothing.
GRANTED_VARIABLE = "SHAREBENCH_GRANTED"
# Names of variables that the record is to show, with commas between them.
SHOWN_VARIABLE = "SHAREBENCH_SHOWN"
MPS_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
VISIBLE_DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
# Its values where devices come by another way.
NO_DEVICE = ("", "all", "none", "void")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """Names this start of this kernel, and so its monotonic clock; None where the system has no such name."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else None


# Warm-up. A batch spans several time slices of a few tenants, so that a median is not that of one tenant's slice.
BATCH_SECONDS = 0.1


@dataclass(frozen=True)
class SteadinessRule:
    """The numbers of the rule of steadiness (tenant/recorder.py), as the config's `warmup` has them."""

    min_iterations: int = 20
    max_seconds: float = 10.0
    tolerance_percent: float = 5.0


class Steadiness(TypedDict):
    """Whether a tenant became steady, after how many batches, and the difference of the last two medians."""

    is_steady: bool
    batches: int
    change_percent: float | None


class BatchComparison:
    """Applies the rule to batches of iterations, each by its typical latency: the median, or else the mean."""

    def __init__(self, rule: SteadinessRule, since_ns: int) -> None:
        """`since_ns` is when the judgement began, by the monotonic clock."""
        self.rule = rule
        self.since_ns = since_ns
        self.least_iterations = math.ceil(rule.min_iterations / 2)
        self.settled: Steadiness | None = None
        self._typical_ns: float | None = None
        self._so_far: Steadiness = {"is_steady": False, "batches": 0, "change_percent": None}

    def close_batch(self, typical_ns: float) -> None:
        self._so_far["batches"] += 1
        if self._typical_ns is not None:
            # An iteration faster than the clock's tick has a median of 0.
            change_percent = 100 * abs(typical_ns - self._typical_ns) / max(self._typical_ns, 1.0)
            self._so_far["change_percent"] = change_percent
            if change_percent < self.rule.tolerance_percent:
                self.settled = {**self._so_far, "is_steady": True}
        self._typical_ns = typical_ns

    def verdict(self, now_ns: int) -> Steadiness | None:
        """The verdict, once there is one; it does not change afterwards."""
        if self.settled is None and now_ns - self.since_ns >= self.rule.max_seconds * 1e9:
            self.settled = self._so_far.copy()
        return self.settled


Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
Arrival = Literal["closed", "constant", "poisson", "own"]
# The record of a window, as GET /record answers it; config/schemas/record.schema.json explains every key.
Histogram = dict[str, int]
"""Non-empty buckets only: index as text, to count."""


class DeviceView(TypedDict):
    """What a tenant's process saw of the GPU before it loaded its model; the last four in pods only."""

    pid: int
    device: str | None
    sm_count: int | None
    memory_free_bytes: int | None
    memory_total_bytes: int | None
    over_limit_refused: bool | None
    mps_pipe: NotRequired[str | None]
    is_mig: NotRequired[bool | None]
    variables: NotRequired[dict[str, str | None]]
    nodes: NotRequired[list[str]]


class Startup(TypedDict):
    process_seconds: float
    import_seconds: float
    context_seconds: float
    load_seconds: float
    warmup_seconds: float
    first_iteration_seconds: NotRequired[float | None]


class ForeignBuckets(TypedDict):
    """Buckets of a program that measures itself; an upper bound of None is infinity."""

    upper_seconds: list[float | None]
    count: list[int]


class Scrape(TypedDict):
    """How well the two scrapes of a program that measures itself stand for the window."""

    offset_seconds: float
    seconds: float
    seconds_error: float
    longest_seconds: float | None
    rate_error_ratio: float | None
    mean_error_ratio: float | None


class LoadGenerator(TypedDict):
    """What the client that made a server's load used, and how much later than due it sent its requests."""

    cpu_seconds: float | None
    run_queue_seconds: float | None
    lateness_p99_seconds: NotRequired[float | None]


class OutputTokens(TypedDict):
    """Tokens that arrived in the window, as the server counted them, or else events that carried one or more."""

    count: int
    source: Literal["usage", "chunks"]


class RequestColumns(TypedDict):
    """Columns: the good requests whose intended send lies in the window, in its order; starts count from its start.

    A request of one token has neither a gap nor a time per further token.
    """

    start_seconds: list[float]
    ttft_seconds: list[float]
    tpot_seconds: list[float | None]
    itl_max_seconds: list[float | None]
    latency_seconds: list[float]
    output_tokens: list[int]


class TimedHistogram(TypedDict):
    """Times that a workload took itself; the histogram is sparse, bucket index to count."""

    count: int
    sum_seconds: float
    histogram: Histogram


class Timeline(TypedDict):
    """The window in equal slots, by the start of the iteration."""

    slot_seconds: float
    count: list[int]
    sum_seconds: list[float]
    max_seconds: list[float]


class AchievedLoad(TypedDict):
    arrival: Arrival
    concurrency: NotRequired[int | None]
    planned_rate_hz: float | None
    achieved_rate_hz: float
    delay_p99_seconds: float | None
    in_flight_mean: float | None
    drops: int
    censored: int


class CompletedJob(TypedDict):
    iterations: int
    completed: int
    start_delay_seconds: float | None
    completion_seconds: float | None


class CpuUse(TypedDict):
    """CPU time in the window; `affinity` are the cores as seen from inside."""

    cpu_seconds: float
    run_queue_seconds: float | None
    affinity: list[int] | None


class DeclaredWork(TypedDict):
    flop: float | None
    bytes: float | None
    items: float
    precision: Precision | None


class TenantMeasurement(TypedDict):
    """What a tenant itself measured in a window. Times are seconds, histograms sparse: bucket index to count."""

    index: int
    workload: str
    view: DeviceView | None
    startup: Startup | None
    count: int
    sum_seconds: float
    sum_squares_seconds2: NotRequired[float]
    min_seconds: float | None
    max_seconds: float | None
    errors: int
    last_error: NotRequired[str | None]
    histogram: Histogram
    measured_by: NotRequired[Literal["scrape", "client", "exit"]]
    foreign_histogram: NotRequired[ForeignBuckets | None]
    scrape: NotRequired[Scrape]
    generator: NotRequired[LoadGenerator]
    device_histogram: TimedHistogram | None
    stages: dict[str, TimedHistogram]
    requests: NotRequired[RequestColumns]
    output_tokens: NotRequired[OutputTokens]
    timeline: Timeline | None
    job: NotRequired[CompletedJob | None]
    coverage_ratio: float
    drain_seconds: float
    cpu: CpuUse | None
    memory_bytes: int | None
    work: DeclaredWork | None


class Environment(TypedDict):
    python: str
    platform: str
    packages: dict[str, str]


def environment(packages: dict[str, str]) -> Environment:
    # Not platform.platform(): it starts a process.
    uname = "-".join((platform.system(), platform.release(), platform.machine()))
    return {"python": platform.python_version(), "platform": uname, "packages": packages}


class ProcessView(TypedDict):
    """What the host sees of a user program: its processes, and the GPUs that its environment shows it (None: all)."""

    pids: list[int]
    names: list[str]
    visible_devices: str | None


class ExitReport(TypedDict):
    """What the container next to a program that runs to its end saw of it, times by the node's monotonic clock."""

    started_ns: int | None
    ended_ns: int | None
    cpu: CpuUse | None
    memory_bytes: int | None
    outside: ProcessView | None
    view: DeviceView | None
    environment: Environment


class TenantReport(TenantMeasurement):
    """What a tenant delivers at the end of a window: GET /record, and for a user program what the driver saw.

    `steady` is the verdict of its warm-up. `outside` is None for a server that runs elsewhere. The driver asks for
    `output_digest` later.
    """

    load: AchievedLoad
    steady: Steadiness | None
    environment: Environment
    outside: NotRequired[ProcessView | None]
    output_digest: NotRequired[list[float | None] | None]


OutputDigest = list[float | None]
"""What sums up an output: None for what JSON has no number for."""


def device_digest(uuid: str) -> str:
    """Hash of a UUID as NVML writes it (`GPU-…`, `MIG-…`): distinguishes devices without naming them."""
    return hashlib.sha256(uuid.lower().encode()).hexdigest()[:16]


# The kinds of faults that a tenant may have on purpose, each with the status that it ends with.
FAULTS = {
    "oom": "oom",
    "leak": "oom",
    "illegal-address": "crashed",
    "assert": "crashed",
    "killed": "killed",
    "stopped": "hung",
    "spin": "hung",
}
