"""A normalised config as types. Each key is described in config/models.py, which these agree with (a test)."""

from typing import Literal, NamedTuple, TypedDict

from sharebench.core.spec import (
    JobSpec,
    Limit,
    LoadSpec,
    MetricsSpec,
    ModelSpec,
    PodSpec,
    ReadySpec,
    RequestSpec,
    Scalar,
    WarmupSpec,
    runs_to_its_end,
)

Kind = Literal["cpu", "nvidia", "simulated", "kubernetes"]
"""A kind of node."""
Mechanism = Literal["exclusive", "time-slicing", "mps", "mig", "streams", "sequential", "hami-core"]
Access = Literal["device-plugin", "dra", "static"]
Interval = Literal["default", "short", "medium", "long"]
"""How a DRA driver is asked for the length of a time slice."""
SweptKey = Literal["concurrency", "rate_hz", "rate_of_capacity"]
"""A key of a `load` that may be a list."""
# A key that is a keyword.
_From = TypedDict("_From", {"from": str | None})


class StrategyEntry(TypedDict):
    description: str
    mechanism: list[Mechanism]
    replicas: list[int] | None
    access: Access | None
    interval: Interval | None
    claim_per: str | None
    gpus: int | None
    profile: str | None
    profiles: list[str] | None
    instances: int | None
    thread_percent: Limit | list[float] | None
    memory_percent: Limit | list[float] | None
    memory_limit: str | list[str] | None
    priority: list[int] | None
    pod: PodSpec | None


class SweepEntry(TypedDict):
    """Which workload of a sweep an entry is."""

    of: str
    by: SweptKey
    value: float


class WorkloadEntry(TypedDict):
    description: str
    tenants: list[str] | None
    kind: Literal["loop", "job", "command", "http"]
    job: JobSpec | None
    until: Literal["exit"] | None
    module: str | None
    command: list[str] | None
    image: str | None
    manifest: str | None
    url: str | None
    port: int | None
    ready: ReadySpec
    metrics: MetricsSpec
    request: RequestSpec
    start: Literal["together", "staggered"]
    stream: bool
    params: dict[str, Scalar]
    load: LoadSpec
    sweep: SweepEntry | None
    min_window_seconds: float
    output_tolerance: float
    simulated: ModelSpec | None


class StandInOptions(TypedDict):
    """The section `cpu`."""

    cores: Literal["auto"] | list[int]
    devices: int


class Noise(TypedDict):
    """What a simulated device plants."""

    cell_cv: float
    iteration_cv: float
    autocorrelation: float
    drift: float
    straggler_ratio: float
    straggler_factor: float


class SimulatedOptions(TypedDict):
    devices: int
    product: str
    sms: int
    memory_gib: float
    mig_slices: int
    mig_slice_sms: int
    time_slicing_overhead: float
    noise: Noise


class NvidiaOptions(TypedDict):
    gpu: str | list[str]
    python: str
    hami_core: str | None
    may_change: list[Literal["mig"]]


class Resources(TypedDict):
    """Quantities of one tenant; None sets none."""

    cpu: str | None
    memory: str | None


class Toleration(TypedDict):
    """As in a pod; None is any."""

    key: str | None
    operator: Literal["Exists", "Equal"]
    value: str | None
    effect: str | None


class KubernetesOptions(TypedDict):
    context: str | None
    node: str | list[str]
    namespace: str
    access: Access
    image: str
    python: str
    client_image: str | None
    pod: dict[str, object]
    device: Literal["cuda", "cpu"]
    reach: Literal["auto", "pod-ip", "port-forward"]
    resources: Resources
    tolerations: list[Toleration]
    priority_class: str | None
    may_change: list[str]
    switch_seconds: float
    stable_seconds: float
    publish_seconds: float


class ClusterOptions(KubernetesOptions):
    """The section with what a node needs to know of the study."""

    accesses: list[str]
    """Every access that a strategy of the study uses."""
    tenants: dict[str, list[int]]
    """Numbers of tenants under the device plugin, by the inner mechanism."""
    has_pod_monitor: bool
    """Whether the run makes a PodMonitor."""


NodeOptions = StandInOptions | SimulatedOptions | NvidiaOptions | ClusterOptions


class PrometheusOptions(TypedDict):
    url: str | None
    discovery: Literal["auto", "file", "pod-monitor", "annotations"]
    folder: str | None
    labels: dict[str, str]
    scrape_seconds: float
    buckets: list[float] | None
    dcgm: dict[str, str] | None


class SurveyOptions(TypedDict):
    """The section `survey`."""

    url: str | None
    labels: dict[str, str]
    namespaces: list[str]
    hours: float | None
    empty_percent: float
    filled_percent: float
    memory_percent: float
    tenants: int


class Timeouts(TypedDict):
    start_seconds: float
    record_seconds: float


class Slo(TypedDict):
    """The section `slo`: what a request may take, None for no limit."""

    latency_ms: float | None
    ttft_ms: float | None
    itl_ms: float | None
    tpot_ms: float | None


class QuestionKeys(TypedDict):
    """What the advice is asked; nothing that is measured depends on it."""

    slo: Slo
    tenants: int | None
    isolation: Literal["none", "performance", "fault"]
    price_per_hour: float | None


class Question(QuestionKeys, total=False):
    """What it is asked, and about which workloads where not all are meant."""

    workloads: list[str]


class StudyConfig(_From, QuestionKeys):
    """All of a normalised config. That of an old data set may lack keys until it is loaded."""

    results: str
    node: Literal["auto", "cpu", "nvidia", "simulated", "kubernetes"]
    strategies: list[str]
    replicas: list[int]
    workloads: list[str]
    interference: list[str]
    faults: list[str]
    fault_victims: list[str]
    fault_repeats: int
    allow_faults: bool
    repeats: int
    window_seconds: float
    baseline: Literal["exclusive", "none"]
    null_cells: bool
    exclude: list[str]
    contrasts: list[str]
    order: Literal["auto", "blocks", "strategy"]
    seed: int
    timeslice_tenants: int
    parts: list[str]
    datasets: list[str]
    warmup: WarmupSpec
    timeouts: Timeouts
    cpu: StandInOptions
    simulated: SimulatedOptions
    nvidia: NvidiaOptions
    kubernetes: KubernetesOptions
    prometheus: PrometheusOptions
    survey: SurveyOptions
    strategy_catalogue: dict[str, StrategyEntry]
    workload_catalogue: dict[str, WorkloadEntry]


def is_on_several(config: StudyConfig, kind: Kind) -> bool:
    """Whether the config names devices that measure at the same time, in place of one."""
    if kind == "nvidia":
        return config["nvidia"]["gpu"] == "all" or isinstance(config["nvidia"]["gpu"], list)
    if kind == "kubernetes":
        node = config["kubernetes"]["node"]
        return isinstance(node, list) or "=" in node
    return kind in ("cpu", "simulated") and config[kind]["devices"] > 1


def is_job(config: StudyConfig, workload: str) -> bool:
    """Whether all tenants of an entry of the config's workload catalogue run jobs."""
    catalogue = config["workload_catalogue"]
    entries = (catalogue[name] for name in catalogue[workload].get("tenants") or [workload])
    return all(entry["kind"] == "job" or runs_to_its_end(entry) for entry in entries)


def has_jobs(config: StudyConfig) -> bool:
    return any(is_job(config, workload) for workload in config["workloads"])


def is_stream(config: StudyConfig, workload: str) -> bool:
    """Whether a tenant of an entry of the config's workload catalogue answers in pieces."""
    catalogue = config["workload_catalogue"]
    return any(catalogue[name].get("stream") for name in catalogue[workload].get("tenants") or [workload])


def has_streams(config: StudyConfig) -> bool:
    return any(is_stream(config, workload) for workload in (*config["workloads"], *config["interference"]))


class Sweep(NamedTuple):
    """A sweep of the load: the key that it varies, and the value that each of its workloads has."""

    by: str
    values: dict[str, float]


def sweeps(config: StudyConfig) -> dict[str, Sweep]:
    """The sweeps of the study by their names."""
    found: dict[str, Sweep] = {}
    for name in config["workloads"]:
        if sweep := config["workload_catalogue"][name].get("sweep"):
            found.setdefault(sweep["of"], Sweep(sweep["by"], {})).values[name] = sweep["value"]
    return found
