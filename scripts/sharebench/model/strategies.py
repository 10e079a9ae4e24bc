"""The strategy catalogue as objects: mechanisms, layers and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast, get_args

from sharebench.model.config_catalogues import LIMIT_KEYS, Mechanism, PodTemplate
from sharebench.model.spec import Limit, Limits, StrategySpec, TenantLimits

if TYPE_CHECKING:
    from sharebench.model.study_config import StudyConfig

# The share of the SMs that NVIDIA's device plugin sets for each MPS client, whatever else is asked for.
EVEN_WHOLE_PERCENT = "100//N"
# Pod template that requests a GPU in the usual way, under `access: static`.
WHOLE_GPU: PodTemplate = {
    "scheduler": None,
    "deployment": None,
    "allocated": None,
    "companions": None,
    "resources": {"nvidia.com/gpu": "1"},
    "annotations": {},
    "labels": {},
    "environment": {},
    "shows": {},
}
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
HAMI_CORE = "hami-core"
GREEN_CONTEXTS = "green-contexts"
ONE_PROCESS = ("streams", GREEN_CONTEXTS)
"""Mechanisms whose tenants are threads of one process."""
CONTROL_SUFFIX = "-again"
# Most clients of one MPS server up to CUDA 13.0 (60 from 13.1 on).
MPS_CLIENTS = 48


def control_name(strategy: str) -> str:
    """Name of a strategy's A/A control: the same strategy, set up and measured a second time."""
    return f"{strategy}{CONTROL_SUFFIX}"


def is_control(strategy: str) -> bool:
    """Whether the strategy is an A/A control; the config refuses any other strategy with such a name."""
    return strategy.endswith(CONTROL_SUFFIX)


def _effective(limit: Limit | tuple[float, ...] | None, replicas: int) -> float | list[float] | None:
    if isinstance(limit, tuple):
        return [parse_limit(own, replicas) for own in limit]
    return None if limit is None else parse_limit(limit, replicas)


def parse_limit(limit: Limit, replicas: int) -> float:
    """A tenant's share in percent; `limit` is a number of percent, or a share such as 100/N with N = `replicas`.

    MPS refuses more than 100, so that 200/N with one tenant is the whole device. `100//N` is rounded down.
    """
    if isinstance(limit, str):
        total, _, _ = limit.partition("/")
        share = int(total) // replicas if "//" in limit else int(total) / replicas
        return min(100.0, float(share))
    return min(100.0, float(limit))


def round_down_limit(limit: Limit | tuple[float, ...] | None) -> Limit | tuple[float, ...] | None:
    """The limit rounded down to whole percent, such as 100//N for 100/N."""
    if isinstance(limit, tuple):
        return tuple(float(int(own)) for own in limit)
    if isinstance(limit, str):
        return limit if "//" in limit else limit.replace("/", "//")
    return None if limit is None else float(int(limit))


def _reading_order(strategy: Strategy) -> tuple[bool, int, list[int], str]:
    """Sort key: plain mechanisms before layers, mechanisms before their limited variants, cluster entries last."""
    ranks = [MECHANISMS.index(name) if name in MECHANISMS else len(MECHANISMS) for name in strategy.mechanisms]
    return strategy.access is not None, len(ranks), ranks, strategy.name


def slice_count(profile: str) -> int:
    """Number of slices of a MIG instance: 3 for the profiles `3g` and `3g.40gb`."""
    return int(re.findall(r"(\d+)g", profile)[0])


def profile_matches(name: str, wanted: str) -> bool:
    """Whether `wanted` is this profile, in full (`1g.18gb`, `1g.18gb+me`) or by its slices alone (`1g`).

    Slices alone never match a profile with a suffix (`+me`, `-me`, `+gfx`).
    """
    return name == wanted or re.fullmatch(rf"{re.escape(wanted)}\.\d+gb", name) is not None


@dataclass(frozen=True)
class Strategy:
    """One way to share a device, an entry of the strategy catalogue."""

    name: str
    mechanisms: tuple[str, ...]
    """One mechanism, or two layers, the outer one first."""
    profile: str | None = None
    instances: int | None = None
    thread_percent: Limit | tuple[float, ...] | None = None
    """A tuple, here and below, has one value for each tenant."""
    memory_percent: Limit | tuple[float, ...] | None = None
    memory_limit: str | tuple[str, ...] | None = None
    priority: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    """Numbers of tenants for this strategy; None takes the study's."""
    profiles: tuple[str, ...] | None = None
    """MIG profiles of an unequal layout, in place of `profile`."""
    access: str | None = None
    """How its tenants reach the GPU of a cluster; None on every other kind of node."""
    pod: PodTemplate | None = None
    """Pod template where another scheduler shares the GPU (core/pod_template.py)."""
    interval: str | None = None
    """Length of a time slice that a DRA driver is asked for; None does not ask."""
    claim_per: str | None = None
    """`instance` makes a resource claim for each MIG instance, `tenant` one for each pod by a template; None makes one
    claim, which all tenants of a cell name."""
    gpus: int | None = None
    """Number of whole GPUs of a claim, all of which its tenants use; None for one."""

    def limits(self, replicas: int) -> Limits:
        """Effective limits of `replicas` tenants; keys that old specs lack are present only where they are set."""
        limits: Limits = {
            "thread_percent": _effective(self.thread_percent, replicas),
            "memory_percent": _effective(self.memory_percent, replicas),
        }
        if self.memory_limit is not None:
            limits["memory_limit"] = (
                list(self.memory_limit) if isinstance(self.memory_limit, tuple) else self.memory_limit
            )
        if self.priority is not None:
            limits["priority"] = list(self.priority)
        return limits

    def shared_limits(self, replicas: int) -> TenantLimits:
        """The limits that are the same for all tenants."""
        shared = {key: limit for key, limit in self.limits(replicas).items() if not isinstance(limit, list)}
        return TenantLimits(**cast(dict[str, Any], shared))

    @property
    def is_unequal(self) -> bool:
        """Whether each tenant has limits or a priority of its own."""
        return any(isinstance(getattr(self, name), tuple) for name in LIMIT_KEYS)

    @property
    def is_one_process(self) -> bool:
        """Whether all tenants are threads of one process."""
        return self.mechanisms[-1] in ONE_PROCESS

    def group_count(self, replicas: int) -> int:
        """Number of parts of the device for `replicas` tenants: one, or the number of MIG instances.

        With a claim for each tenant a part is a whole device.
        """
        if self.mechanisms[0] != "mig":
            return replicas if self.claim_per == "tenant" else 1
        if len(self.mechanisms) > 1:
            return self.instances or len(self.profiles or ())
        return replicas

    def layout(self, replicas: int) -> tuple[str, ...]:
        """MIG profile of each group's instance, for a possible number of tenants; empty without MIG."""
        if self.mechanisms[0] != "mig":
            return ()
        return self.profiles or (str(self.profile),) * self.group_count(replicas)

    def tenant_slices(self) -> int:
        """Number of slices of the first tenant's MIG instance; 0 without MIG."""
        layout = self.layout(1)
        return slice_count(layout[0]) if layout else 0

    def profile_shortage(self, replicas: int) -> str | None:
        """The reason why a list of profiles is too short for this number of tenants; None if it is not."""
        if self.profiles is None or self.group_count(replicas) <= len(self.profiles):
            return None
        return f"{replicas} tenants need {replicas} MIG instances, the strategy has {len(self.profiles)}"

    @property
    def is_queue(self) -> bool:
        """Whether its tenants run one after another on the exclusive device, instead of sharing it."""
        return self.mechanisms == ("sequential",)

    @property
    def depends_on_replicas(self) -> bool:
        """Whether the node state depends on the number of tenants; other schedulers look at the pods only."""
        return self.pod is None and (isinstance(self.thread_percent, str) or isinstance(self.memory_percent, str))


def effective_strategy(strategy: Strategy) -> Strategy:
    """The strategy as its access enforces it: most kinds of access know whole percent only.

    NVIDIA's device plugin caps every MPS client at an even share. Under `static`, a bare `exclusive` is one whole GPU.
    """
    threads, memory = round_down_limit(strategy.thread_percent), round_down_limit(strategy.memory_percent)
    match strategy.access, strategy.mechanisms:
        case "device-plugin", ("mps",):
            return replace(strategy, thread_percent=EVEN_WHOLE_PERCENT, memory_percent="100/N")
        case "static", mechanisms:
            pod = WHOLE_GPU if strategy.pod is None and mechanisms == ("exclusive",) else strategy.pod
            return replace(strategy, thread_percent=threads, memory_percent=memory, pod=pod)
        case ("dra", _) | (None, ("hami-core",)):
            return replace(strategy, thread_percent=threads)
    return strategy


def strategy_from_entry(name: str, entry: Mapping[str, Any]) -> Strategy:
    """The strategy of a normalised catalogue entry, which in an old data set may lack keys."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    options: dict[str, Any] = {field.name: values.get(field.name) for field in fields(Strategy)}
    return Strategy(**options | {"name": name, "mechanisms": values["mechanism"]})


def strategy_from_spec(spec: StrategySpec) -> Strategy:
    """The strategy of a cell's spec, with the limits of the cell."""
    return strategy_from_entry(spec["name"], {**spec, **spec["limits"], "mechanism": spec["mechanisms"], "pod": None})


def all_strategies(config: StudyConfig) -> dict[str, Strategy]:
    """All strategies of a normalised config (`sharebench.model.config.load.load`) by name, in the order of tables.

    The strategies are sorted because the order of a mapping's keys does not survive Snakemake's merging.
    """
    strategies = (strategy_from_entry(name, entry) for name, entry in config["strategy_catalogue"].items())
    return {strategy.name: strategy for strategy in sorted(strategies, key=_reading_order)}


def node_strategies(config: StudyConfig, kind: str) -> dict[str, Strategy]:
    """All strategies of a normalised config, as this kind of node enforces them."""
    strategies = all_strategies(config)
    if kind == "kubernetes":
        default = config["kubernetes"]["access"]
        strategies = {name: replace(each, access=each.access or default) for name, each in strategies.items()}
    return {name: effective_strategy(strategy) for name, strategy in strategies.items()}
