"""Types of raw.json; config/schemas/record.schema.json has their form (`make docs`), and the meaning of each key."""

from typing import Any, Literal, NotRequired, TypedDict

from sharebench.model.prometheus_options import Discovery
from sharebench.model.records.telemetry import Telemetry
from sharebench.model.strategy import Limits
from sharebench.model.values import Kind
from tenant.contract import AchievedLoad, Answer, Histogram, Steadiness, TenantMeasurement

TenantStatus = Literal["ok", "oom", "crashed", "killed", "hung", "not-measured"]
Status = Literal["ok", "infeasible", "not-measured", "oom", "crashed", "killed", "hung"]


class CellKey(TypedDict):
    strategy: str
    workload: str
    replicas: int
    repeat: int
    block: int


class Provenance(TypedDict):
    """Facts of the run that the spec cannot know. They name no host, user or absolute path."""

    run_id: str
    started_epoch_seconds: float
    python: str
    platform: str
    packages: dict[str, str]
    git_commit: str | None
    git_dirty: bool | None


class NodeFacts(TypedDict):
    """The shared device. `units` are SMs or cores; `label` is empty on a real GPU."""

    kind: Kind
    device: str
    product: str
    units: int | None
    units_name: Literal["SMs", "cores"]
    memory_bytes: int | None
    is_gpu: bool
    label: str
    details: dict[str, Any]


class Host(TypedDict):
    """The machine of the device, as far as the node knows it; `machine` and `boot` are hashes."""

    machine: str | None
    boot: str | None
    cpu: str | None
    topology: str | None


class EvidenceItem(TypedDict):
    """A fact that a strategy implies, and the observation by the node (`source: node`) or a tenant (`tenant K`)."""

    name: str
    expected: Any
    observed: Any
    holds: bool
    source: str


class Conditions(TypedDict):
    """What may have disturbed the run that gave a capacity; None where a node does not know it."""

    halves_change_ratio: float | None
    foreign_processes: int | None
    gpu_slowdown_percent: float | None
    cpu_throttled_percent: float | None
    cpu_steal_percent: float | None


class Calibration(TypedDict):
    """The part of calibration/{workload}.json that cells use."""

    node: NodeFacts
    workload: str
    output_digest: list[float] | None
    capacity_hz: float
    conditions: Conditions
    answers: NotRequired[list[list[Answer]] | None]
    roofs: dict[str, float] | None
    idle_power_watts: float | None


class WorkloadReference(TypedDict):
    """The output of a workload alone on the device, and its iterations per second where a load is a share of them."""

    output_digest: list[float] | None
    capacity_hz: float | None
    conditions: NotRequired[Conditions]
    answers: NotRequired[list[list[Answer]]]


class UsedCalibration(TypedDict):
    """The references that a cell used. A mix has them by workload, and both its digest and capacity are null."""

    workloads: NotRequired[dict[str, WorkloadReference]]
    output_digest: list[float] | None
    capacity_hz: float | None
    conditions: NotRequired[Conditions]
    answers: NotRequired[list[list[Answer]]]
    roofs: dict[str, float] | None
    idle_power_watts: float | None


# `from` is a keyword.
Switch = TypedDict(
    "Switch",
    {"from": str | None, "out_seconds": float | None, "in_seconds": float, "phases": NotRequired[dict[str, float]]},
)
"""The change of the node's state for a cell; `in_seconds` includes both parts where `out_seconds` is None."""


class FaultOutcome(TypedDict):
    """An injected fault, and the recovery of the node. Times count from the window's start."""

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
    configure_seconds: float
    start_seconds: float
    ready_seconds: float
    settle_seconds: float
    window_seconds: float
    stop_seconds: float
    total_seconds: float


class Window(TypedDict):
    """The window that all tenants shared. `turns` are the start and end of each job of a queue."""

    start_monotonic_seconds: float
    end_monotonic_seconds: float
    start_epoch_seconds: float
    end_epoch_seconds: float
    clock_error_seconds: float
    turns: NotRequired[list[list[float]]]


class Exit(TypedDict):
    code: int | None
    reason: str
    log_tail: str


class TenantRecord(TenantMeasurement):
    """One tenant in a record: its own measurements, and the driver's observations of it."""

    status: TenantStatus
    exit: Exit | None
    steady: Steadiness | None
    load: AchievedLoad | None
    output_digest: list[float | None] | None


class Outcome(TypedDict):
    """The end of a tenant; `ok` if it has not ended."""

    status: TenantStatus
    exit: Exit | None


class GateVerdict(TypedDict):
    """Verdict of a gate on the cell; `message` is a line about a failure."""

    name: str
    value: float | None
    limit: float | None
    severity: Literal["invalid", "warning"]
    passed: bool
    message: str


class PrometheusTenant(TypedDict):
    """Prometheus's numbers of one tenant in the window."""

    index: int
    scrapes: int
    longest_gap_seconds: float | None
    resets: int
    count: float | None
    sum_seconds: float | None
    quantiles_seconds: dict[str, float | None]


class PrometheusRecord(TypedDict):
    """Prometheus's numbers of the window."""

    discovery: Discovery
    scrape_seconds: float
    error: str | None
    tenants: list[PrometheusTenant]


class VisibleProcess(TypedDict):
    """A tenant's process as the device's driver lists it."""

    memory_bytes: int | None
    utilisation_percent: float | None


class PhaseTenant(TypedDict):
    count: int
    sum_seconds: float
    histogram: Histogram


class PhaseWindow(TypedDict):
    """A short window of a conformance cell, with the tenants in order."""

    seconds: float
    tenants: list[PhaseTenant]


class Promises(TypedDict):
    """Measurements of what the strategy promises; nothing is judged.

    `visible` has the tenants' processes after the window, `holding` while each held memory; None where nothing lists
    processes, and for a process that is not listed. `tasks` has a result for each tenant that did the task.
    """

    granted: list[EvidenceItem]
    visible: list[VisibleProcess | None] | None
    holding: NotRequired[list[VisibleProcess | None] | None]
    windows: dict[str, PhaseWindow]
    tasks: dict[str, list[dict[str, Any]]]
    failure: str | None


class Start(TypedDict):
    """The start of the cell's tenants. Loads of a sweep with one `id` share it; `position` counts those before."""

    id: str
    position: int


class CellRecord(TypedDict):
    """The measurement of one cell, as the driver has it in memory."""

    schema: Literal[1]
    spec: str
    cell: CellKey
    status: Status
    reason: str | None
    node: NodeFacts
    host: NotRequired[Host]
    limits: Limits
    evidence: list[EvidenceItem]
    calibration: UsedCalibration | None
    switch: NotRequired[Switch | None]
    start: NotRequired[Start | None]
    fault: NotRequired[FaultOutcome | None]
    timing: Timing
    window: Window | None
    tenants: list[TenantRecord]
    prometheus: NotRequired[PrometheusRecord | None]
    telemetry: Telemetry | None
    promises: NotRequired[Promises | None]


class Record(CellRecord):
    """raw.json: a cell's record with the code and the run that made it."""

    code: str
    provenance: Provenance
    gates: NotRequired[list[GateVerdict]]
    """Verdicts of the gates when the record was read; in a file, of the older code that measured it."""
