"""The keys of a config that only ask for advice. No measurement depends on them."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from typing import Annotated, Literal, get_args

from pydantic import Field
from typing_extensions import TypedDict

from sharebench.model.values import Count, Flag, Matching, Maybe, Numeric, OpenMapping, Part, Positive, Section

IsolationKind = Literal["none", "performance", "fault"]
ISOLATIONS: tuple[IsolationKind, ...] = get_args(IsolationKind)
Deployment = Literal["auto", "host", "device-plugin", "claims"]
MARGIN_PERCENT = 5.0
Named = Annotated[str, Matching("[a-z][a-z0-9_.+-]*", "cannot be a workload; name one of workload_catalogue")]


class Limits(TypedDict):
    """Limits of a request of this workload, in place of all of the study's."""

    latency_ms: Maybe[Positive]
    """Time to the end of the answer, from the intended send; of a loop the time of an iteration."""
    ttft_ms: Maybe[Positive]
    """Time to the first output token, from the intended send; only of streams."""
    itl_ms: Maybe[Positive]
    """Gap between two token events, of a request its longest; only of streams."""
    tpot_ms: Maybe[Positive]
    """Time per output token after the first; only of streams."""


class Slo(Limits):
    """Limits of a request, in milliseconds. The advice compares each part with a percentile, goodput with every
    request; a part that a workload does not have (`ttft_ms` without a stream) does not apply to it."""

    workloads: Annotated[OpenMapping[Named, Part[Limits]], Field(default={})]
    """Limits of single workloads by name, each in place of those of the study; advice holds the tenants of a mix to
    these."""


class QuestionKeys(TypedDict):
    slo: Section[Slo]
    tenants: Maybe[Count]
    """Number of tenants that the advice is for; `null` is the largest number of the study."""
    isolation: Annotated[IsolationKind, Field(default="none")]
    """Isolation that the advice requires: neighbours cannot slow a tenant down (`performance`), or end it
    (`fault`)."""
    price_per_hour: Maybe[Positive]
    """Price of one device per hour, in dollars; without it no costs are given."""
    margin_percent: Annotated[Numeric[Annotated[float, Field(gt=0, le=100)]], Field(default=MARGIN_PERCENT)]
    """Difference in percent that counts: plans nearer to the best are ordered by effort, and sharing that gains less
    brings nothing."""
    deploy: Annotated[Deployment, Field(default="auto")]
    """What the tenants can have: all that a `host` can do, what NVIDIA's `device-plugin` can, or resource `claims`;
    `auto` is what was measured."""
    one_process: Annotated[Flag, Field(default=False)]
    """Whether the tenants can become threads of one process, which `streams` and green contexts need."""


class Question(QuestionKeys, total=False):
    """The question, with the workloads that it is about where not all are meant."""

    workloads: list[str]
