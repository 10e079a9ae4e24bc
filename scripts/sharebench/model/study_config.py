"""The config of a study: every key with its type, default and meaning.

config/schemas and the tables of config/README.md are generated from this module (`make docs`). Error lines show the
first sentence of a meaning. `sharebench.model.config.load` fills the defaults in and checks the rest.
"""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

from pydantic import BeforeValidator, Field, with_config
from typing_extensions import TypedDict

from sharebench.model.config_nodes import (
    KubernetesOptions,
    NvidiaOptions,
    PrometheusOptions,
    SimulatedOptions,
    StandInOptions,
    Timeouts,
)
from sharebench.model.question import QuestionKeys
from sharebench.model.strategy import Strategy
from sharebench.model.traffic import SweptKey
from sharebench.model.values import (
    CLOSED_MAPPING,
    Concept,
    Count,
    Flag,
    Kind,
    Matching,
    Numeric,
    OpenMapping,
    Positive,
    Section,
    Tenants,
    Text,
    Unique,
    empty_if_none,
    refuse_first,
)
from sharebench.model.workload import Workload

Folder = Annotated[
    str,
    Field(min_length=1),
    Matching(
        r'[^~{}<>*?"\u0000-\u001f][^{}<>*?"\u0000-\u001f]*',
        'cannot be a path: no leading ~ and none of { } < > * ? " in it',
    ),
]
Fault = Literal["oom", "leak", "illegal-address", "assert", "killed", "stopped", "spin"]
Exclusion = Annotated[
    str,
    Matching(
        r"[a-z0-9*?+-]+/[a-z0-9*?+_.-]+(/(n[0-9*?]+|[*])(/(r[0-9*?]+|[*]))?)?",
        "is not a cell such as mps/yolos/n7 or mps/*/n7/r1",
    ),
]
Contrast = Annotated[
    str, Matching("[a-z][a-z0-9-]*/[a-z][a-z0-9-]*", "is not a comparison of two strategies such as mps/time-slicing")
]
NOT_IN_PATHS = "cannot be part of a path: use lower-case letters, digits and -, a letter first, at most 63 in all"
StrategyName = Annotated[str, Matching("[a-z][a-z0-9-]{0,62}", NOT_IN_PATHS)]
SWEEP_SUFFIX = rf"-({'|'.join(get_args(SweptKey))})-[0-9.e+-]+"
WorkloadName = Annotated[
    str, Matching(rf"[a-z][a-z0-9-]{{0,62}}({SWEEP_SUFFIX})?", f"{NOT_IN_PATHS} (+ is kept for mixes)")
]


def named(catalogue: Any) -> Any:
    """The catalogue, with the name of each entry, its key, in the entry."""
    if not isinstance(catalogue, dict):
        return catalogue
    entries = {key: empty_if_none(entry) for key, entry in catalogue.items()}
    mappings = {key: entry for key, entry in entries.items() if isinstance(entry, dict)}
    refuse_first(
        (f"{key}.name", f"{entry['name']!r} is not its key; remove it")
        for key, entry in mappings.items()
        if entry.get("name", key) != key
    )
    return entries | {key: entry | {"name": key} for key, entry in mappings.items()}


class Warmup(TypedDict):
    """Condition by which a tenant counts as warm."""

    min_iterations: Annotated[Count, Field(default=20)]
    """Iterations that every tenant makes before it may count as warm."""
    max_seconds: Annotated[Positive, Field(default=10)]
    """Time after which a tenant that is not steady goes on, marked as such."""
    tolerance_percent: Annotated[Numeric[Annotated[float, Field(gt=0, le=100)]], Field(default=5)]
    """Largest difference between the medians of two consecutive batches that counts as steady."""


FROM_MEANING = (
    "Folder or archive (zip) of a finished data set, whose tables, figures and report are rebuilt; of a list the "
    "first. What the others, folders, measured on the same kind of GPU counts for its advice."
)
Folders = Annotated[Unique[Folder], BeforeValidator(lambda value: [] if value == "null" else value)]
_From = TypedDict("_From", {"from": Annotated[Folders, Field(default=[], description=FROM_MEANING)]})
"""A key that is a keyword."""


class _MeasuringKeys(TypedDict):
    results: Annotated[Folder, Field(default="results")]
    """Folder that receives everything the study makes; give every study its own."""
    node: Annotated[Literal["auto", "cpu", "nvidia", "simulated", "kubernetes"], Field(default="auto")]
    """Kind of node that is shared: `cpu` (stand-in on this machine's cores), `nvidia` (a GPU of this machine),
    `kubernetes` (a node of a cluster) or `simulated`. `auto` takes `nvidia` where there is one, else `cpu`."""
    strategies: Annotated[Unique[Text], Field(min_length=1, default=["exclusive", "time-slicing", "mps", "mig"])]
    """Sharing strategies to measure, by their names in `strategy_catalogue`."""
    replicas: Annotated[Unique[Tenants], Field(min_length=1, default=[1, 2, 4])]
    """Numbers of tenants to measure; a strategy with `replicas` of its own keeps those."""
    workloads: Annotated[Unique[Text], Field(default=["matmul", "detector"])]
    """Workloads to measure, by their names in `workload_catalogue`; the name of a [sweep](#sweeps) stands for all its
    workloads. The list may be empty with `interference`."""
    interference: Annotated[Unique[Text], Field(default=[])]
    """Workloads that are also measured in [pairs](#mixes-and-pairs), each with each and with itself."""
    faults: Annotated[Unique[Fault], Field(default=[])]
    """[Faults](../docs/faults.md) that a tenant has in mid-window next to a victim."""
    fault_victims: Annotated[Unique[Text], Field(default=[])]
    """Workloads next to which the faults happen, one at a time; empty takes those of `interference`, else those of
    `workloads`."""
    fault_repeats: Annotated[Tenants, Field(default=1)]
    """Number of repeats of every cell with a fault; which tenants die is seldom random."""
    allow_faults: Annotated[Flag, Field(default=False)]
    """Whether faults may happen on a real GPU, where they can harm other programs and the driver."""
    repeats: Annotated[Tenants, Field(default=3)]
    """Number of repeats of every cell; intervals are taken over repeats, so one repeat has none."""
    window_seconds: Annotated[Positive, Field(default=1.5)]
    """Length of the window in which all tenants of a cell are measured, in seconds; a p99 needs 299 iterations."""
    baseline: Annotated[Literal["exclusive", "none"], Field(default="exclusive")]
    """Reference of every slowdown: the cells of `exclusive`, even if not in `strategies`; `none` measures none."""
    null_cells: Annotated[Flag, Field(default=True)]
    """Whether the baseline is measured twice in each block, the second time as the strategy with `-again`. An effect no
    larger than their difference is marked *not separable*."""
    exclude: Annotated[Unique[Exclusion], Field(default=[])]
    """Cells that are left out: `STRATEGY/WORKLOAD`, also with `/nREPLICAS`, and then `/rREPEAT`, with `*` for any, such
    as `[time-slicing/yolos/n7, "*/bert/n5/r1"]`."""
    contrasts: Annotated[Unique[Contrast], Field(default=[])]
    """Comparisons that the study is for, as `strategy/reference`, at the largest common number of tenants, in
    `tables/contrasts.csv`; if empty, every sharing strategy against the first one."""
    order: Annotated[Literal["auto", "blocks", "strategy"], Field(default="auto")]
    """Order of the cells: `blocks` repeats all node states in fresh random order, `strategy` sets each state once;
    `auto` takes `blocks` unless a switch of the node is slow. Under `strategy`, time and strategy are confounded."""
    seed: Annotated[Numeric[Annotated[int, Field(ge=0)]], Field(default=1)]
    """Seed of the random order of cells and of the simulated node."""
    measured_elsewhere: Annotated[Flag, Field(default=False)]
    """Whether other machines have measured this study, as where
    [`sharebench join`](../docs/gpu-host.md#on-a-host-with-several-gpus) has made it: whether this one could is not
    checked, its tables may be made here, and its blocks may differ in calibrations, driver and packages. `sharebench
    plan` plans it for another host."""
    timeslice_tenants: Annotated[Tenants, Field(default=2)]
    """Number of tenants that [`snakemake probe_timeslice`](../docs/timeslice.md) watches; no cell depends on it."""
    warmup: Section[Warmup]
    timeouts: Section[Timeouts]
    cpu: Section[StandInOptions]
    simulated: Section[SimulatedOptions]
    nvidia: Section[NvidiaOptions]
    kubernetes: Section[KubernetesOptions]
    prometheus: Section[PrometheusOptions]
    strategy_catalogue: Annotated[OpenMapping[StrategyName, Strategy], BeforeValidator(named), Field(default={})]
    """[Strategies](#strategies) by name, added to those of `strategies.yaml`, or changed."""
    workload_catalogue: Annotated[OpenMapping[WorkloadName, Workload], BeforeValidator(named), Field(default={})]
    """[Workloads](#workloads) by name, added to those of `workloads.yaml`, or changed."""


@with_config(CLOSED_MAPPING)
class StudyConfig(_MeasuringKeys, _From, QuestionKeys):
    """All keys of config.yaml, strategies.yaml, workloads.yaml and any study file.

    No key is required in a file; a missing one takes its default.
    """


CATALOGUES: dict[str, type[Concept]] = {"strategy_catalogue": Strategy, "workload_catalogue": Workload}


def to_json(config: StudyConfig) -> dict[str, Any]:
    """The config as a file holds it."""
    entries: Any = {key: config[key] for key in CATALOGUES}  # type: ignore[literal-required]
    return {**config} | {
        key: {name: entry.model_dump(mode="json", exclude={"name"}) for name, entry in catalogue.items()}
        for key, catalogue in entries.items()
    }


def from_json(config: Mapping[str, object]) -> StudyConfig:
    """The config in a file that a run wrote, which was checked then; older ones may lack keys."""
    catalogues = {
        key: {name: concept.model_validate(entry) for name, entry in named(config.get(key, {})).items()}
        for key, concept in CATALOGUES.items()
    }
    return cast(StudyConfig, {**config, **catalogues})


def uses_several_devices(config: StudyConfig, kind: Kind) -> bool:
    """Whether the config names several devices, which measure at the same time."""
    if kind == "nvidia":
        return config["nvidia"]["gpu"] == "all" or isinstance(config["nvidia"]["gpu"], list)
    if kind == "kubernetes":
        node = config["kubernetes"]["node"]
        return isinstance(node, list) or "=" in node
    return kind in ("cpu", "simulated") and config[kind]["devices"] > 1


def tenants_of(config: StudyConfig, workload: str) -> list[Workload]:
    """The entry of each tenant of a mix, or that of a plain workload."""
    catalogue = config["workload_catalogue"]
    return [catalogue[name] for name in catalogue[workload].tenants or [workload]]


def is_job(config: StudyConfig, workload: str) -> bool:
    """Whether all tenants of a workload of the catalogue run jobs."""
    return all(entry.is_job for entry in tenants_of(config, workload))


def has_jobs(config: StudyConfig) -> bool:
    return any(is_job(config, workload) for workload in config["workloads"])


def is_stream(config: StudyConfig, workload: str) -> bool:
    """Whether any tenant of a workload of the catalogue streams its answers."""
    return any(entry.stream for entry in tenants_of(config, workload))


def has_streams(config: StudyConfig) -> bool:
    return any(is_stream(config, workload) for workload in (*config["workloads"], *config["interference"]))


class Sweep(NamedTuple):
    """A sweep of the load: the key that varies, its value by workload, and whether it is a rate of all tenants."""

    by: str
    values: dict[str, float]
    is_for_all: bool = False


def sweeps_by_entry(config: StudyConfig) -> dict[str, Sweep]:
    sweeps: dict[str, Sweep] = {}
    for name in config["workloads"]:
        entry = config["workload_catalogue"][name]
        if sweep := entry.sweep:
            is_for_all = entry.load.rate_for == "all"
            sweeps.setdefault(sweep.of, Sweep(sweep.by, {}, is_for_all)).values[name] = sweep.value
    return sweeps


def has_conformance(config: StudyConfig) -> bool:
    """Whether the study tests what strategies promise."""
    return any(config["workload_catalogue"][name].module == "conformance" for name in config["workloads"])
