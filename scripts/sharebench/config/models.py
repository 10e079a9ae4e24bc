"""The config of a study: every key with its type, default and meaning.

This is the one source of them. Of a meaning, lines for a person show the first sentence. config/schemas and the tables
of config/README.md are made from it (`make docs`).
"""

# The annotations are what pydantic reads: no `from __future__ import annotations`, which would hand it text.

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from sharebench.config.catalogue_models import Strategy, Workload
from sharebench.config.node_models import Kubernetes, Nvidia, Prometheus, Simulated, StandIn, Survey
from sharebench.config.values import (
    Count,
    Flag,
    Free,
    Matching,
    Maybe,
    Numeric,
    Positive,
    Section,
    Tenants,
    Text,
    Unique,
)
from sharebench.core.study_config import SweptKey

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
    str,
    Matching("[a-z][a-z0-9-]*/[a-z][a-z0-9-]*", "is not a comparison of two strategies such as mps/time-slicing"),
]
PART_OF_A_PATH = "cannot be part of a path: use lower-case letters, digits and -, a letter first, at most 63 in all"
StrategyName = Annotated[str, Matching("[a-z][a-z0-9-]{0,62}", PART_OF_A_PATH)]
SWEPT = rf"-({'|'.join(get_args(SweptKey))})-[0-9.e+-]+"
WorkloadName = Annotated[str, Matching(rf"[a-z][a-z0-9-]{{0,62}}({SWEPT})?", f"{PART_OF_A_PATH} (+ is kept for mixes)")]


class Warmup(Section):
    """When a tenant counts as warm."""

    min_iterations: Count = 20
    """Iterations that every tenant makes before it may count as warm."""
    max_seconds: Positive = 10
    """Time after which a tenant that is not steady goes on, marked as such."""
    tolerance_percent: Numeric[Annotated[float, Field(gt=0, le=100)]] = 5
    """Largest difference between the medians of two consecutive batches that counts as steady."""


class Timeouts(Section):
    """How long the pipeline waits for a tenant before it gives the cell up."""

    start_seconds: Positive = 60
    """Time for a tenant to start, load and warm up."""
    record_seconds: Positive = 30
    """Time for a tenant to deliver its record after the window; more than its longest iteration."""


class Slo(Section):
    """What a request may take, in milliseconds. The advice holds each part against a percentile, goodput against every
    request; a part that a workload does not have (`ttft_ms` of one that streams nothing) asks nothing of it."""

    latency_ms: Maybe[Positive] = None
    """To the end of the answer, from the intended send; of a loop an iteration."""
    ttft_ms: Maybe[Positive] = None
    """Time to the first output token, from the intended send; only of streams."""
    itl_ms: Maybe[Positive] = None
    """Gap between two token events, of a request its longest; only of streams."""
    tpot_ms: Maybe[Positive] = None
    """Time per output token after the first; only of streams."""


class Config(Section):
    """What config.yaml, strategies.yaml, workloads.yaml and any study file may say, taken together.

    No key is required in a file: what is not given takes its default.
    """

    @model_validator(mode="before")
    @classmethod
    def _of_older_data(cls, value: Any) -> Any:
        """Without what older data sets say in keys that were withdrawn, where it is that the key was not used."""
        if not isinstance(value, Mapping):
            return value
        kept = {key: given for key, given in value.items() if (key, given) != ("slo_ms", None)}
        if isinstance(section := kept.get("kubernetes"), Mapping) and section.get("drain") is False:
            kept["kubernetes"] = {key: given for key, given in section.items() if key != "drain"}
        return kept

    results: Folder = "results"
    """Folder that receives everything the study makes; give every study its own."""
    node: Literal["auto", "cpu", "nvidia", "simulated", "kubernetes"] = "auto"
    """Kind of node that is shared: `cpu` (stand-in on this machine's cores), `nvidia` (a GPU of this machine),
    `kubernetes` (a node of a cluster) or `simulated`. `auto` takes `nvidia` where there is one, else `cpu`."""
    strategies: Annotated[Unique[Text], Field(min_length=1)] = ["exclusive", "time-slicing", "mps", "mig"]
    """Sharing strategies to measure, by their names in `strategy_catalogue`."""
    replicas: Annotated[Unique[Tenants], Field(min_length=1)] = [1, 2, 4]
    """Numbers of tenants to measure; a strategy with `replicas` of its own keeps those."""
    workloads: Unique[Text] = ["matmul", "detector"]
    """What the tenants run, by names in `workload_catalogue`; that of a [sweep](#sweeps) stands for all its workloads.
    May be empty with `interference`."""
    interference: Unique[Text] = []
    """Workloads that are measured in [pairs](#mixes-and-pairs), each next to each and to itself, besides those of
    `workloads`."""
    faults: Unique[Fault] = []
    """[Faults](../docs/faults.md) that a tenant has in mid-window next to a victim."""
    fault_victims: Unique[Text] = []
    """Workloads next to which the faults happen, one at a time; empty takes those of `interference`, else those of
    `workloads`."""
    fault_repeats: Tenants = 1
    """How often every cell with a fault is measured; who dies is seldom a matter of chance."""
    allow_faults: Flag = False
    """Whether faults may happen on a real GPU, where they can harm other programs and the driver."""
    repeats: Tenants = 3
    """How often every cell is measured; intervals are taken over repeats, so one repeat has none."""
    window_seconds: Positive = 1.5
    """Length of the window in which all tenants of a cell are measured, in seconds. A p99 needs 299 iterations
    in it."""
    baseline: Literal["exclusive", "none"] = "exclusive"
    """What every slowdown refers to: the cells of `exclusive`, measured even when `strategies` leaves it out; `none`
    measures none."""
    null_cells: Flag = True
    """Whether the baseline is measured twice in each block, the second time as the strategy with `-again`. An effect no
    larger than their difference is marked *not separable*."""
    exclude: Unique[Exclusion] = []
    """Cells that are left out: `STRATEGY/WORKLOAD`, also with `/nREPLICAS`, and then `/rREPEAT`, with `*` for any, such
    as `[time-slicing/yolos/n7, "*/bert/n5/r1"]`."""
    contrasts: Unique[Contrast] = []
    """Comparisons that the study is for, as `strategy/reference`, at the largest common number of tenants, in
    `tables/contrasts.csv`; if empty, every sharing strategy against the first one."""
    order: Literal["auto", "blocks", "strategy"] = "auto"
    """Order of the cells: `blocks` repeats all node states in fresh random order, `strategy` sets each state once;
    `auto` takes `blocks` unless a switch of the node is slow. Under `strategy`, time and strategy are confounded."""
    seed: Numeric[Annotated[int, Field(ge=0)]] = 1
    """Seed of the random order of cells and of the simulated node."""
    from_: Maybe[Folder] = Field(default=None, alias="from")
    """Folder or archive (zip) of a finished data set, whose tables, figures and report are rebuilt."""
    parts: Unique[Folder] = []
    """Folders with parts of this study, for [`snakemake join`](../docs/gpu-host.md#on-a-host-with-several-gpus)."""
    timeslice_tenants: Tenants = 2
    """How many tenants [`snakemake probe_timeslice`](../docs/timeslice.md) watches at once; no cell depends on it."""
    datasets: Annotated[Unique[Folder], Field(max_length=2)] = []
    """Two finished data sets for [`snakemake compare`](#compare-two-data-sets): before, then after."""
    slo: Slo = Field(default_factory=Slo)
    tenants: Maybe[Count] = None
    """How many tenants the advice is for; `null` is the largest number of the study."""
    isolation: Literal["none", "performance", "fault"] = "none"
    """What neighbours must not be able to do, for the advice: slow a tenant down (`performance`), or end it
    (`fault`)."""
    price_per_hour: Maybe[Positive] = None
    """Price of one device per hour, in dollars; without it no costs are given."""
    warmup: Warmup = Field(default_factory=Warmup)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    cpu: StandIn = Field(default_factory=StandIn)
    simulated: Simulated = Field(default_factory=Simulated)
    nvidia: Nvidia = Field(default_factory=Nvidia)
    kubernetes: Kubernetes = Field(default_factory=Kubernetes)
    prometheus: Prometheus = Field(default_factory=Prometheus)
    survey: Survey = Field(default_factory=Survey)
    strategy_catalogue: Free[StrategyName, Strategy] = {}
    """[Strategies](#strategies) by name, added to those of `strategies.yaml`, or changed."""
    workload_catalogue: Free[WorkloadName, Workload] = {}
    """[Workloads](#workloads) by name, added to those of `workloads.yaml`, or changed."""
