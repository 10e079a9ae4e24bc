"""A strategy: one way to share a device, from a study's file to a record's spec."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict, cast, get_args

from pydantic import Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from sharebench.model.pod_template import PodTemplate
from sharebench.model.values import (
    Concept,
    Count,
    Each,
    Matching,
    Maybe,
    Numeric,
    Tenants,
    Text,
    UniqueEach,
    as_number,
    is_list,
)
from sharebench.model.words import quoted

Mechanism = Literal["exclusive", "time-slicing", "mps", "mig", "streams", "sequential", "hami-core", "green-contexts"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
HAMI_CORE = "hami-core"
GREEN_CONTEXTS = "green-contexts"
ONE_PROCESS = ("streams", GREEN_CONTEXTS)
"""Mechanisms whose tenants are threads of one process."""
# The possible layers, outer first: only MIG partitions a device into parts that can be shared again.
KNOWN_LAYERS = (("mig", "time-slicing"), ("mig", "mps"))
Access = Literal["device-plugin", "dra", "static"]
Interval = Literal["default", "short", "medium", "long"]
"""How a DRA driver is asked for the length of a time slice."""
# Most clients of one MPS server up to CUDA 13.0 (60 from 13.1 on).
MPS_CLIENTS = 48
# Names that are taken by files next to nodes/{strategy}.json.
RESERVED_NAMES = {
    "device": "nodes/device.json exists already",
    "timeslice": "nodes/timeslice.json is the probe's own file",
}
LIMIT_KEYS = ("thread_percent", "memory_percent", "memory_limit", "priority")

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
    `exclusive` tenant, `null` one that all tenants name. With `access: dra` ([what
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

    def problems(self) -> Iterator[tuple[str, str]]:
        """Problems of the strategy on any kind of node, each with the key that has it."""
        if self.name in RESERVED_NAMES:
            yield "", f"the name {self.name!r} is reserved ({RESERVED_NAMES[self.name]}); choose another"
        if len(self.mechanism) == 2 and self.mechanism not in KNOWN_LAYERS:
            known = " or ".join(quoted(layers) for layers in sorted(KNOWN_LAYERS, reverse=True))
            yield "mechanism", f"{quoted(self.mechanism)} are not layers, outer first; use {known}"
        if "exclusive" in self.mechanism and self.own_replicas != (1,) and self.claim_per != "tenant":
            yield "replicas", f"{quoted(self.replicas)} is not possible, exclusive means one tenant; set [1]"
        yield from self._useless_options()
        for name, number in self._lengths().items():
            if (own := self.own_replicas) != (number,):
                limits = f"{quoted(getattr(self, name))} is for {number} tenants, replicas are {quoted(own)}"
                yield name, f"{limits}; give each tenant one, as in all lists of the entry"
        if self.memory_limit is not None and self.memory_percent is not None:
            yield "memory_limit", f"{quoted(self.memory_limit)} has no effect next to memory_percent; remove one"
        if self.pod is not None:
            yield from self._pod_problems(self.pod)
        for option in ("interval", "gpus"):
            if (own := getattr(self, option)) is not None and "mig" in self.mechanism:
                yield option, f"{own!r} has no effect on MIG instances; remove it"
        if self.profiles is not None:
            for option in ("profile", "instances"):
                if (own := getattr(self, option)) is not None:
                    yield option, f"{own!r} has no effect next to profiles, which has both; remove it"
            return
        if "mig" in self.mechanism and self.profile is None:
            yield "profile", "null is not enough for mig; give a profile such as 1g, or several as profiles"
        if len(self.mechanism) == 2 and self.instances is None:
            yield "instances", "null is not enough for layers; set the number that the tenants share, such as 2"

    def _useless_options(self) -> Iterator[tuple[str, str]]:
        needs = dict.fromkeys(("profile", "profiles", "instances"), "mig")
        needs["claim_per"] = "exclusive" if self.claim_per == "tenant" else "mig"
        needs |= dict.fromkeys(LIMIT_KEYS, "mps") | {"interval": "time-slicing"}
        for option, mechanism in needs.items():
            is_limited = self.pod is not None or (HAMI_CORE in self.mechanism and option != "priority")
            is_limited |= GREEN_CONTEXTS in self.mechanism and option == "thread_percent"
            has_effect = mechanism in self.mechanism or (mechanism == "mps" and is_limited)
            if (own := getattr(self, option)) is not None and not has_effect:
                yield option, f"{quoted(own)} has no effect without {mechanism}; remove it"

        if GREEN_CONTEXTS in self.mechanism and self.thread_percent is None:
            yield "thread_percent", f"null is not enough for {GREEN_CONTEXTS}; give a share of the SMs, such as 100/N"

    def _pod_problems(self, pod: PodTemplate) -> Iterator[tuple[str, str]]:
        """Placeholders in the template without a limit, and limits without a placeholder."""
        for where, name, limit in pod.limits():
            if getattr(self, limit) is None:
                yield f"pod.{where}", f"${name} has nothing to stand for; give {limit}, such as 100/N"
        used = {limit for _, _, limit in pod.limits()}
        for limit in ("thread_percent", "memory_percent"):
            if (share := getattr(self, limit)) is not None and limit not in used:
                yield limit, f"{share!r} reaches no pod; use ${limit} in pod.resources, or remove it"

    def _lengths(self) -> dict[str, int]:
        """The limits that are given as a list, with the number of tenants in it."""
        return {name: len(limits) for name in LIMIT_KEYS if isinstance(limits := getattr(self, name), tuple)}

    @property
    def own_replicas(self) -> tuple[int, ...] | None:
        """Numbers of tenants for this strategy: one if exclusive, as many as a list of limits has; None for any."""
        if self.replicas is None and "exclusive" in self.mechanism and self.claim_per != "tenant":
            return (1,)
        return self.replicas or tuple(self._lengths().values())[:1] or None

    # Limits.

    def for_tenants(self, replicas: int) -> "Strategy":
        """The strategy in the spec of a cell of `replicas` tenants, with its limits in percent."""
        shares = {name: _percent(getattr(self, name), replicas) for name in ("thread_percent", "memory_percent")}
        return self.changed(**shares, replicas=None, description="")

    def limits(self, replicas: int) -> Limits:
        """The limits as in a record; keys that old records lack are present only where they are set."""
        limits = self.for_tenants(replicas).model_dump(mode="json", include=set(LIMIT_KEYS))
        kept = {key: limit for key, limit in limits.items() if limit is not None or key.endswith("_percent")}
        return cast(Limits, kept)

    def tenant_limits(self, replicas: int, index: int) -> TenantLimits:
        """The limits of one of `replicas` tenants."""
        strategy = self.for_tenants(replicas)
        limits = {name: getattr(strategy, name) for name in LIMIT_KEYS}
        return TenantLimits(**{name: own[index] if isinstance(own, tuple) else own for name, own in limits.items()})

    def shared_limits(self, replicas: int) -> TenantLimits:
        """The limits that are the same for all tenants."""
        return self.changed(**dict.fromkeys(self._lengths())).tenant_limits(replicas, 0)

    @property
    def is_unequal(self) -> bool:
        """Whether each tenant has limits or a priority of its own."""
        return bool(self._lengths())

    @property
    def is_one_process(self) -> bool:
        """Whether all tenants are threads of one process."""
        return self.mechanism[-1] in ONE_PROCESS

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
        return self.pod is None and (isinstance(self.thread_percent, str) or isinstance(self.memory_percent, str))
