"""The contract between the driver and its tenants. The driver imports nothing else of the package `tenant`.

`gpu.py` defines samples of a GPU, `requests.py` what both sides need to send HTTP requests.

Only the standard library is imported: a tenant imports this before its framework, and the driver without numpy.
"""

from __future__ import annotations

import hashlib
import math
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

# Histograms: bucket i holds latencies in (upper(i - 1), upper(i)] with upper(i) = 1e-6 * 2**(i / 64) seconds. Bucket 0
# holds all latencies up to 1 µs, the last bucket all beyond 1000 s.
BUCKETS_PER_DOUBLING = 64
SMALLEST_SECONDS = 1e-6
LAST_FINITE_INDEX = 1914
OVERFLOW_INDEX = 1915
BUCKET_COUNT = 1916
# Relative error of a quantile that may lie anywhere in its bucket.
QUANTILE_ERROR_RATIO = 2 ** (1 / BUCKETS_PER_DOUBLING) - 1
# A window's timeline has this number of equal slots.
TIMELINE_SLOTS = 40


def upper_seconds(index: int) -> float:
    """Upper bound of a bucket in seconds, infinite for the overflow bucket. Raises IndexError outside the layout."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"bucket {index}: the layout has 0 to {OVERFLOW_INDEX}")
    return math.inf if index == OVERFLOW_INDEX else SMALLEST_SECONDS * 2 ** (index / BUCKETS_PER_DOUBLING)


def lower_seconds(index: int) -> float:
    """Lower bound of a bucket in seconds. Raises IndexError outside the layout."""
    return upper_seconds(index - 1) if index else 0.0


# Exit codes; a tenant that was stopped on purpose exits with 0. The last one is errno ENOMEM.
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_OUT_OF_MEMORY = 12

# Environment variables.
TOKEN_VARIABLE = "SHAREBENCH_TOKEN"
# Bytes that the tenant tries to allocate, to test its memory limit.
PROBE_BYTES_VARIABLE = "SHAREBENCH_PROBE_BYTES"
# A file that a tenant locks while it creates its context, so that tenants with the same file do so one after another.
CONTEXT_LOCK_VARIABLE = "SHAREBENCH_CONTEXT_LOCK"
# Set in pods by the driver. Only with it do the device plugin's variables describe the tenant's device.
GRANTED_VARIABLE = "SHAREBENCH_GRANTED"
# Comma-separated names of the environment variables that the record shows.
SHOWN_VARIABLE = "SHAREBENCH_SHOWN"
MPS_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
VISIBLE_DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
# Values of NVIDIA_VISIBLE_DEVICES that name no device, for example where devices come by CDI.
NO_DEVICE = ("", "all", "none", "void")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """Id of this boot, and so of the monotonic clock; None on a system without one."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else None


# Warm-up. A batch spans several time slices of a few tenants, so its median does not depend on a single slice.
BATCH_SECONDS = 0.1


@dataclass(frozen=True)
class SteadinessRule:
    """Parameters of the steadiness rule (SteadinessJudge in tenant/recorder.py), from the config's `warmup`."""

    min_iterations: int = 20
    max_seconds: float = 10.0
    tolerance_percent: float = 5.0


class Steadiness(TypedDict):
    """Verdict: whether the tenant became steady, after how many batches, and the change between the last two."""

    is_steady: bool
    batches: int
    change_percent: float | None


class BatchComparison:
    """Applies the rule to batches of iterations, each with a typical latency: its median, or else its mean."""

    def __init__(self, rule: SteadinessRule, since_ns: int) -> None:
        """`since_ns` is the start of the judgement, in monotonic ns."""
        self.rule = rule
        self.since_ns = since_ns
        self.batch_iterations = math.ceil(rule.min_iterations / 2)
        self.final_verdict: Steadiness | None = None
        self._typical_ns: float | None = None
        self._progress: Steadiness = {"is_steady": False, "batches": 0, "change_percent": None}

    def close_batch(self, typical_ns: float) -> None:
        self._progress["batches"] += 1
        if self._typical_ns is not None:
            # The median is 0 if iterations are faster than the clock's tick.
            change_percent = 100 * abs(typical_ns - self._typical_ns) / max(self._typical_ns, 1.0)
            self._progress["change_percent"] = change_percent
            if change_percent < self.rule.tolerance_percent:
                self.final_verdict = {**self._progress, "is_steady": True}
        self._typical_ns = typical_ns

    def verdict(self, now_ns: int) -> Steadiness | None:
        """The verdict, None before there is one; it never changes."""
        if self.final_verdict is None and now_ns - self.since_ns >= self.rule.max_seconds * 1e9:
            self.final_verdict = self._progress.copy()
        return self.final_verdict


Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
Arrival = Literal["closed", "constant", "poisson", "trace", "own"]
# A window's record, as GET /record returns it; config/schemas/record.schema.json explains every key.
Histogram = dict[str, int]
"""Counts by bucket index as text; empty buckets are left out."""


class DeviceView(TypedDict):
    """A tenant's view of its GPU before it loaded its model; the last four keys exist in pods only.

    `sm_ids` are the SMs that kernels ran on, in a green context.
    """

    pid: int
    device: str | None
    sm_count: int | None
    memory_free_bytes: int | None
    memory_total_bytes: int | None
    over_limit_refused: bool | None
    sm_ids: NotRequired[list[int]]
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
    """Histogram of a program that measures itself; an upper bound of None is infinite."""

    upper_seconds: list[float | None]
    count: list[int]


class Scrape(TypedDict):
    """How well the two scrapes of a program that measures itself represent the window."""

    offset_seconds: float
    seconds: float
    seconds_error: float
    longest_seconds: float | None
    rate_error_ratio: float | None
    mean_error_ratio: float | None


class LoadGenerator(TypedDict):
    """CPU use of the client that loaded a server, how much later than due it sent requests, and new connections."""

    cpu_seconds: float | None
    run_queue_seconds: float | None
    lateness_p99_seconds: NotRequired[float | None]
    connections: NotRequired[int]


class OutputTokens(TypedDict):
    """Tokens that arrived in the window as the server counted them, or else the events that carried tokens.

    Of the answers with usage, `reported` is its sum, and `counted` what the client counted.
    """

    count: int
    source: Literal["usage", "chunks"]
    reported: NotRequired[int]
    counted: NotRequired[int]


class RequestColumns(TypedDict):
    """Columns with a row per successful request whose intended send lies in the window, in the order of these sends.

    `start_seconds` counts from the window's start. A request of one token has no TPOT and no ITL.
    """

    start_seconds: list[float]
    ttft_seconds: list[float]
    tpot_seconds: list[float | None]
    itl_max_seconds: list[float | None]
    latency_seconds: list[float]
    output_tokens: list[int]


class TimedHistogram(TypedDict):
    """Distribution of a time that a workload measured itself."""

    count: int
    sum_seconds: float
    histogram: Histogram


class Timeline(TypedDict):
    """Iterations of a window by the slot of their start; TIMELINE_SLOTS values per list."""

    slot_seconds: float
    count: list[int]
    sum_seconds: list[float]
    max_seconds: list[float]
    errors: NotRequired[list[int]]


class AchievedLoad(TypedDict):
    arrival: Arrival
    concurrency: NotRequired[int | None]
    planned_rate_hz: float | None
    achieved_rate_hz: float
    served_rate_hz: NotRequired[float]
    delay_p99_seconds: float | None
    in_flight_mean: float | None
    drops: int
    censored: int


class CompletedJob(TypedDict):
    """`left_running` counts the processes of a program's container that lived at its end, and ended with it."""

    iterations: int
    completed: int
    start_delay_seconds: float | None
    completion_seconds: float | None
    left_running: NotRequired[int]


class CpuUse(TypedDict):
    """CPU time in the window; `affinity` lists the cores that the process may use."""

    cpu_seconds: float
    run_queue_seconds: float | None
    affinity: list[int] | None


class DeclaredWork(TypedDict):
    flop: float | None
    bytes: float | None
    items: float
    precision: Precision | None


class Answer(TypedDict):
    """A server's answer to a fixed prompt; `status` is None where there was none.

    `logprobs` has the log-probability of each token in nat, None where it is not finite. Both are empty without any.
    """

    status: int | None
    tokens: list[str]
    logprobs: list[float | None]


class TenantMeasurement(TypedDict):
    """A tenant's own measurements in one window."""

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
    errors_by_reason: NotRequired[dict[str, int]]
    histogram: Histogram
    measured_by: NotRequired[Literal["scrape", "client", "exit"]]
    foreign_histogram: NotRequired[ForeignBuckets | None]
    scrape: NotRequired[Scrape]
    generator: NotRequired[LoadGenerator]
    device_histogram: TimedHistogram | None
    stages: dict[str, TimedHistogram]
    requests: NotRequired[RequestColumns]
    output_tokens: NotRequired[OutputTokens]
    answers: NotRequired[list[list[Answer]]]
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
    # platform.platform() would start a process.
    uname = "-".join((platform.system(), platform.release(), platform.machine()))
    return {"python": platform.python_version(), "platform": uname, "packages": packages}


class ProcessView(TypedDict):
    """The host's view of a user program: its processes, and the GPUs visible to it (None for all)."""

    pids: list[int]
    names: list[str]
    visible_devices: str | None


class ExitReport(TypedDict):
    """Observations of a program that exits, by the client next to it; times are monotonic ns of the node.

    `left_running` counts the processes that it left behind: on a host those that had not ended at its deadline, in a
    pod those that lived when its container ended.
    """

    started_ns: int | None
    ended_ns: int | None
    left_running: int
    cpu: CpuUse | None
    memory_bytes: int | None
    outside: ProcessView | None
    view: DeviceView | None
    environment: Environment


class TenantReport(TenantMeasurement):
    """A tenant's report on a window: the answer to GET /record, for a user program completed by the driver.

    `steady` is the verdict of the warm-up. `outside` is None for a server that runs elsewhere. The driver adds
    `output_digest` later.
    """

    load: AchievedLoad
    steady: Steadiness | None
    environment: Environment
    outside: NotRequired[ProcessView | None]
    output_digest: NotRequired[list[float | None] | None]


OutputDigest = list[float | None]
"""Summary of an output; NaN and infinity, which JSON cannot represent, are None."""


class Outputs(TypedDict):
    """What a tenant computed last, the answer to GET /digest; `answers` are those to fixed prompts, by when asked."""

    output_digest: OutputDigest | None
    answers: NotRequired[list[list[Answer]]]


NO_OUTPUTS: Outputs = {"output_digest": None}
"""Outputs that are not known: those of a program, or late ones."""


def device_digest(uuid: str) -> str:
    """Hash of a device's UUID as NVML writes it (`GPU-…`, `MIG-…`), so that records do not name devices."""
    return hashlib.sha256(uuid.lower().encode()).hexdigest()[:16]


# Kinds of injected faults, each with the status that the tenant ends with.
FAULTS = {
    "oom": "oom",
    "leak": "oom",
    "illegal-address": "crashed",
    "assert": "crashed",
    "killed": "killed",
    "stopped": "hung",
    "spin": "hung",
}
