"""A strategy: one way to share a device, from a study's file to a record's spec."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NotRequired, TypedDict, cast, get_args

from pydantic import Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from sharebench.model.pod_template import PodTemplate
from sharebench.model.values import (
    Concept,
    Count,
    Each,
    Kind,
    Matching,
    Maybe,
    Numeric,
    Tenants,
    Text,
    UniqueEach,
    as_number,
    is_list,
)

Mechanism = Literal["exclusive", "time-slicing", "mps", "mig", "streams", "sequential", "hami-core", "green-contexts"]
HAMI_CORE: Final = "hami-core"
GREEN_CONTEXTS: Final = "green-contexts"
Access = Literal["device-plugin", "dra", "static"]
Interval = Literal["default", "short", "medium", "long"]
"""How a DRA driver is asked for the length of a time slice."""
# Most clients of one MPS server up to CUDA 13.0 (60 from 13.1 on).
MPS_CLIENTS = 48

Profile = Annotated[str, Matching(r"[1-9]g(\.[0-9]+gb)?(\+me)?", "is not a MIG profile such as 1g, 3g or 1g.10gb")]
Percent = Numeric[Annotated[float, Field(gt=0, le=100)]]
NON_EMPTY = Field(min_length=1)
Share = Annotated[
    Annotated[Percent, Tag("number")]
    # A share that is rounded down to whole percent, 100//N, is only made by `effective_strategy`.
    | Annotated[
        str, Matching("[1-9][0-9]{0,3}/N", "is neither a number of percent nor a share such as 100/N"), Tag("text")
    ]
    | Annotated[tuple[Percent, ...], NON_EMPTY, Tag("each")],
    Discriminator(
        lambda value: (
            "each"
            if is_list(value)
            else "text"
            if isinstance(value, str) and isinstance(as_number(value), str)
            else "number"
        )
    ),
]
Amount = Annotated[str, Matching("[1-9][0-9]{0,6}(Mi|Gi)", "is not an amount of memory such as 5Gi or 512Mi")]
Memory = Annotated[
    Annotated[Amount, Tag("amount")] | Annotated[tuple[Amount, ...], NON_EMPTY, Tag("each")],
    Discriminator(lambda value: "each" if is_list(value) else "amount"),
]


class Limits(TypedDict):
    """Limits of a cell's tenants: one value for all, a list with one for each tenant, or None for no limit.

    Percentages are of the device; `memory_limit` is an amount such as 5Gi, `priority` is that of MPS clients.
    """

    thread_percent: float | list[float] | None
    memory_percent: float | list[float] | None
    memory_limit: NotRequired[str | list[str]]
    priority: NotRequired[list[int]]


@dataclass(frozen=True)
class TenantLimits:
    """Limits of one tenant; None for no limit."""

    thread_percent: float | None = None
    memory_percent: float | None = None
    memory_limit: str | None = None
    priority: int | None = None

    def memory_bytes(self, whole_bytes: int | None) -> int | None:
        """Memory that the tenant may use, on a device with `whole_bytes`; None without a limit, or where not known."""
        if self.memory_limit is not None:
            return int(self.memory_limit[:-2]) << {"Mi": 20, "Gi": 30}[self.memory_limit[-2:]]
        if self.memory_percent is None or whole_bytes is None:
            return None
        return int(whole_bytes * self.memory_percent / 100)

    def excluding(self, others: "TenantLimits") -> "TenantLimits":
        """The limits without those that `others` has with the same value."""
        return TenantLimits(**{key: limit for key, limit in vars(self).items() if limit != getattr(others, key)})


LIMIT_KEYS = tuple(vars(TenantLimits()))
SHARE_KEYS = tuple(key for key in LIMIT_KEYS if key.endswith("_percent"))


@dataclass(frozen=True)
class Traits:
    """What holds for a mechanism on all kinds of node."""

    keys: tuple[str, ...] = ()
    """Keys of a strategy that have an effect with it, and not with every mechanism."""
    nodes: Set[Kind] = frozenset(get_args(Kind))
    """The kinds of node that have code for it."""
    is_one_process: bool = False
    is_time_sliced: bool = False
    """Whether the device alternates between its tenants."""


IN_CUDA: Set[Kind] = {"nvidia", "simulated"}
MECHANISMS: Mapping[Mechanism, Traits] = {
    "exclusive": Traits(),
    "time-slicing": Traits(("interval",), is_time_sliced=True),
    "mps": Traits(("thread_percent", "memory_percent", "memory_limit", "priority")),
    "mig": Traits(("profile", "profiles", "instances", "claim_per")),
    "streams": Traits(nodes=IN_CUDA, is_one_process=True),
    "sequential": Traits(nodes={*IN_CUDA, "cpu"}),
    HAMI_CORE: Traits(("thread_percent", "memory_percent", "memory_limit"), {"nvidia"}, is_time_sliced=True),
    GREEN_CONTEXTS: Traits(("thread_percent",), IN_CUDA, is_one_process=True),
}
"""All mechanisms, in the order of tables."""


def _percent(share: Share | None, replicas: int) -> Share | None:
    if isinstance(share, tuple):
        return tuple(parse_limit(own, replicas) for own in share)
    return None if share is None else parse_limit(share, replicas)


def parse_limit(limit: float | str, replicas: int) -> float:
    """A tenant's share in percent; `limit` is a number of percent, or a share such as 100/N with N = `replicas`.

    MPS refuses more than 100, so that 200/N with one tenant is the whole device. `100//N` is rounded down.
    """
    if isinstance(limit, str):
        total, _, _ = limit.partition("/")
        share = int(total) // replicas if "//" in limit else int(total) / replicas
        return min(100.0, float(share))
    return min(100.0, float(limit))


def slice_count(profile: str) -> int:
    """Number of slices of a MIG instance: 3 for the profiles `3g` and `3g.40gb`."""
    return int(re.findall(r"(\d+)g", profile)[0])


def profile_matches(name: str, wanted: str) -> bool:
    """Whether `wanted` is this profile, in full (`1g.18gb`, `1g.18gb+me`) or by its slices alone (`1g`).

    Slices alone never match a profile with a suffix (`+me`, `-me`, `+gfx`).
    """
    return name == wanted or re.fullmatch(rf"{re.escape(wanted)}\.\d+gb", name) is not None


class Strategy(Concept):
    """One way to share a device."""

    name: SkipJsonSchema[str] = ""
    description: Text = ""
    """One sentence for a person."""
    mechanism: Annotated[UniqueEach[Mechanism], Field(min_length=1, max_length=2)]
    """How the device is shared; two mechanisms are layers, the outer one first. `exclusive`, `time-slicing`,
    `hami-core`, `mps`, `mig`, `streams`, `green-contexts`, `sequential`, `[mig, time-slicing]` or `[mig, mps]`."""
    replicas: Maybe[Annotated[UniqueEach[Tenants], NON_EMPTY]] = None
    """Numbers of tenants for this strategy, in place of the study's; `[1]` for `exclusive`."""
    access: Maybe[Access] = None
    """Access in place of `kubernetes.access`; an entry that has one is for clusters only."""
    interval: Maybe[Interval] = None
    """Length of a time slice under `time-slicing` with `access: dra`: `default`, `short`, `medium` or `long`; `null`
    does not ask."""
    claim_per: Maybe[Literal["instance", "tenant"]] = None
    """`instance` makes a resource claim for each MIG instance, `tenant` has a ResourceClaimTemplate make one for each
    tenant under `exclusive` or `time-slicing`, `null` one that all tenants name. With `access: dra` ([what
    differs](../docs/strategies/dra.md#several-claims))."""
    gpus: Maybe[Count] = None
    """Whole GPUs of a claim, all of which its tenants have; `null` is one. With `access: dra`."""
    profile: Maybe[Profile] = None
    """MIG profile of each instance, such as `1g`, `3g` or `1g.10gb`."""
    profiles: Maybe[Annotated[Each[Profile], Field(min_length=1, max_length=7)]] = None
    """MIG profiles of an unequal layout, in place of `profile` and `instances`, from the first tenant on, such as
    `[3g, 2g, 1g, 1g]`."""
    instances: Maybe[Count] = None
    """MIG instances that the tenants share; `null` makes one per tenant. Layers need it."""
    thread_percent: Maybe[Share] = None
    """Share of the SMs that a tenant may use under `mps` or `green-contexts`, of their time under `hami-core`, or
    `100/N` where N is the number of tenants; at most 100. A list such as `[60, 20, 20]` has each tenant's own, and
    sets the number of tenants."""
    memory_percent: Maybe[Share] = None
    """Share of the memory that a tenant may use, likewise."""
    memory_limit: Maybe[Memory] = None
    """Memory of a tenant under `mps` or `hami-core`, such as `5Gi`, in place of `memory_percent`; or a list."""
    priority: Maybe[Annotated[Each[Numeric[Annotated[int, Field(ge=0, le=1)]]], NON_EMPTY]] = None
    """Priority of each tenant under `mps`: 0 is normal, 1 below normal."""
    pod: Maybe[PodTemplate] = None

    def lengths(self) -> dict[str, int]:
        """The limits that are given as a list, with the number of tenants in it."""
        return {name: len(limits) for name in LIMIT_KEYS if isinstance(limits := getattr(self, name), tuple)}

    @property
    def own_replicas(self) -> tuple[int, ...] | None:
        """Numbers of tenants for this strategy: one if exclusive, as many as a list of limits has; None for any."""
        if self.replicas is None and "exclusive" in self.mechanism and self.claim_per != "tenant":
            return (1,)
        return self.replicas or tuple(self.lengths().values())[:1] or None

    # Limits.

    def for_tenants(self, replicas: int) -> "Strategy":
        """The strategy in the spec of a cell of `replicas` tenants, with its limits in percent."""
        shares = {name: _percent(getattr(self, name), replicas) for name in SHARE_KEYS}
        return self.changed(**shares, replicas=None, description="")

    def limits(self, replicas: int) -> Limits:
        """The limits as in a record; keys that old records lack are present only where they are set."""
        limits = self.for_tenants(replicas).model_dump(mode="json", include=set(LIMIT_KEYS))
        kept = {key: limit for key, limit in limits.items() if limit is not None or key in Limits.__required_keys__}
        return cast(Limits, kept)

    def tenant_limits(self, replicas: int, index: int) -> TenantLimits:
        """The limits of one of `replicas` tenants."""
        strategy = self.for_tenants(replicas)
        limits = {name: getattr(strategy, name) for name in LIMIT_KEYS}
        return TenantLimits(**{name: own[index] if isinstance(own, tuple) else own for name, own in limits.items()})

    def shared_limits(self, replicas: int) -> TenantLimits:
        """The limits that are the same for all tenants."""
        return self.changed(**dict.fromkeys(self.lengths())).tenant_limits(replicas, 0)

    @property
    def is_unequal(self) -> bool:
        """Whether each tenant has limits or a priority of its own."""
        return bool(self.lengths())

    @property
    def is_one_process(self) -> bool:
        """Whether all tenants are threads of one process."""
        return MECHANISMS[self.mechanism[-1]].is_one_process

    # Parts of the device.

    def group_count(self, replicas: int) -> int:
        """Number of parts of the device for `replicas` tenants: one, or the number of MIG instances.

        With a claim for each tenant a part is a whole device.
        """
        if self.mechanism[0] != "mig":
            return replicas if self.claim_per == "tenant" else 1
        if len(self.mechanism) > 1:
            return self.instances or len(self.profiles or ())
        return replicas

    def layout(self, replicas: int) -> tuple[str, ...]:
        """MIG profile of each group's instance, for a possible number of tenants; empty without MIG."""
        if self.mechanism[0] != "mig":
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
        return self.mechanism == ("sequential",)

    @property
    def depends_on_replicas(self) -> bool:
        """Whether the node state depends on the number of tenants; other schedulers look at the pods only."""
        return self.pod is None and any(isinstance(getattr(self, name), str) for name in SHARE_KEYS)
