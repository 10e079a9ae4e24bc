"""raw.json as types. Each key is described in config/schemas/record.schema.json, which these agree with (a test)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sharebench.core.spec import Limits
from sharebench.records.prometheus import PrometheusRecord
from sharebench.records.telemetry import Telemetry

TenantStatus = Literal["ok", "oom", "crashed", "killed", "hung", "not-measured"]
Status = Literal["ok", "infeasible", "not-measured", "oom", "crashed", "killed", "hung"]


class CellKey(TypedDict):
    """Which cell of the matrix it is."""

    strategy: str
    workload: str
    replicas: int
    repeat: int
    block: int


class Provenance(TypedDict):
    """What the spec cannot know before the run. It names no host, user or absolute path."""

    run_id: str
    started_epoch_seconds: float
    python: str
    platform: str
    packages: dict[str, str]
    git_commit: str | None
    git_dirty: bool | None


class NodeFacts(TypedDict):
    """The device that was shared. `units` are SMs or cores; `label` is empty on a real GPU."""

    kind: Literal["cpu", "nvidia", "simulated", "kubernetes"]
    device: str
    product: str
    units: int | None
    units_name: Literal["SMs", "cores"]
    memory_bytes: int | None
    is_gpu: bool
    label: str
    details: dict[str, Any]


class EvidenceItem(TypedDict):
    """What a strategy implies, and what the node (`source: node`) or a tenant (`tenant K`) observed."""

    name: str
    expected: Any
    observed: Any
    holds: bool
    source: str


class WorkloadReference(TypedDict):
    """What a workload alone on the device has: its output, and iterations per second."""

    output_digest: list[float] | None
    capacity_hz: float | None


class UsedCalibration(TypedDict):
    """The references that a cell used. A mix has them by workload, and null digest and capacity."""

    workloads: NotRequired[dict[str, WorkloadReference]]
    output_digest: list[float] | None
    capacity_hz: float | None
    roofs: dict[str, float] | None
    idle_power_watts: float | None


# `from` is a keyword.
Switch = TypedDict(
    "Switch",
    {
        "from": str | None,
        "out_seconds": float | None,
        "in_seconds": float,
        "phases": NotRequired[dict[str, float]],
    },
)
"""The change of the node's state that a cell made; `in_seconds` has both parts where `out_seconds` is None."""


class FaultOutcome(TypedDict):
    """An injected fault, and what the node needed afterwards. Times count from the window's start."""

    kind: str
    aggressor: int
    at_seconds: float
    happened: bool
    ended_seconds: list[float | None]
    new_tenant_seconds: float
    recovery_seconds: float
    set_up_again: bool
    refused_tenants: int


class Timing(TypedDict):
    """Wall time of the parts of a cell."""

    configure_seconds: float
    start_seconds: float
    ready_seconds: float
    settle_seconds: float
    window_seconds: float
    stop_seconds: float
    total_seconds: float


class Window(TypedDict):
    """The window that all tenants shared. `turns` are start and end of each job of a queue."""

    start_monotonic_seconds: float
    end_monotonic_seconds: float
    start_epoch_seconds: float
    end_epoch_seconds: float
    clock_error_seconds: float
    turns: NotRequired[list[list[float]]]


class Exit(TypedDict):
    """How a tenant ended that did not end well."""

    code: int | None
    reason: str
    log_tail: str


class View(TypedDict):
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
    """Start-up of a tenant in parts."""

    process_seconds: float
    import_seconds: float
    context_seconds: float
    load_seconds: float
    warmup_seconds: float
    first_iteration_seconds: NotRequired[float | None]


class Steadiness(TypedDict):
    """The verdict on steadiness once all tenants were ready; the change is that of the last two medians."""

    is_steady: bool
    batches: int
    change_percent: float | None


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


class Generator(TypedDict):
    """CPU time of the client that made a server's load."""

    cpu_seconds: float | None
    run_queue_seconds: float | None


class Timed(TypedDict):
    """Times that a workload took itself; the histogram is sparse, bucket index to count."""

    count: int
    sum_seconds: float
    histogram: dict[str, int]


class Timeline(TypedDict):
    """The window in equal slots, by the start of the iteration."""

    slot_seconds: float
    count: list[int]
    sum_seconds: list[float]
    max_seconds: list[float]


class AchievedLoad(TypedDict):
    """The load that was planned, and what the tenant did of it."""

    arrival: Literal["closed", "constant", "poisson", "own"]
    planned_rate_hz: float | None
    achieved_rate_hz: float
    delay_p99_seconds: float | None
    in_flight_mean: float | None
    drops: int
    censored: int


class CompletedJob(TypedDict):
    """Fixed work: how much of it was done, and when."""

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
    """What one iteration does, as the workload declares it."""

    flop: float | None
    bytes: float | None
    items: float
    precision: Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"] | None


class Measured(TypedDict):
    """What a tenant itself measured in a window. Times are seconds, histograms sparse: bucket index to count."""

    index: int
    workload: str
    view: View | None
    startup: Startup | None
    count: int
    sum_seconds: float
    sum_squares_seconds2: NotRequired[float]
    min_seconds: float | None
    max_seconds: float | None
    errors: int
    last_error: NotRequired[str | None]
    histogram: dict[str, int]
    measured_by: NotRequired[Literal["scrape", "client"]]
    foreign_histogram: NotRequired[ForeignBuckets | None]
    scrape: NotRequired[Scrape]
    generator: NotRequired[Generator]
    device_histogram: Timed | None
    stages: dict[str, Timed]
    timeline: Timeline | None
    job: NotRequired[CompletedJob | None]
    coverage_ratio: float
    drain_seconds: float
    cpu: CpuUse | None
    memory_bytes: int | None
    work: DeclaredWork | None


class TenantRecord(Measured):
    """The entry of one tenant in a record: what it measured, and what the driver knows of it."""

    status: TenantStatus
    exit: Exit | None
    steady: Steadiness | None
    load: AchievedLoad | None
    output_digest: list[float | None] | None


class Environment(TypedDict):
    """What a tenant ran in."""

    python: str
    platform: str
    packages: dict[str, str]


class TenantReport(Measured):
    """What a tenant delivers at the end of a window.

    `steady` is the verdict of its warm-up. `outside` is what the host sees of a user program and all that it started:
    None for a server that is not ours. The driver asks for `output_digest` later.
    """

    load: AchievedLoad
    steady: Steadiness | None
    environment: Environment
    outside: NotRequired[dict[str, Any] | None]
    output_digest: NotRequired[list[float | None] | None]


class Outcome(TypedDict):
    """How a tenant ended, or that it has not ended (`ok`)."""

    status: TenantStatus
    exit: Exit | None


class GateVerdict(TypedDict):
    """What a gate said of the cell: the value, the limit it was held against, and a line on a failure."""

    name: str
    value: float | None
    limit: float | None
    severity: Literal["invalid", "warning"]
    passed: bool
    message: str


class CellRecord(TypedDict):
    """What the measurement of one cell left behind, as the driver has it in memory."""

    schema: Literal[1]
    spec: str
    cell: CellKey
    status: Status
    reason: str | None
    node: NodeFacts
    limits: Limits
    evidence: list[EvidenceItem]
    calibration: UsedCalibration | None
    switch: NotRequired[Switch | None]
    fault: NotRequired[FaultOutcome | None]
    timing: Timing
    window: Window | None
    tenants: list[TenantRecord]
    prometheus: NotRequired[PrometheusRecord | None]
    telemetry: Telemetry | None
    gates: list[GateVerdict]


class Record(CellRecord):
    """raw.json: a cell's record with the code and the run that made it."""

    code: str
    provenance: Provenance
