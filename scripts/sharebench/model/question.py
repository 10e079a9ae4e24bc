"""The keys of a config that only ask, of the advice and of a survey. No measurement depends on them."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from typing import Annotated, Literal, get_args

from pydantic import Field
from typing_extensions import TypedDict

from sharebench.model.config_nodes import Percent, Url
from sharebench.model.values import Count, Matching, Maybe, Name, Numeric, OpenMapping, Positive, Section, Text, Unique

IsolationKind = Literal["none", "performance", "fault"]
ISOLATIONS: tuple[IsolationKind, ...] = get_args(IsolationKind)
PrometheusLabel = Annotated[str, Matching("[A-Za-z_][A-Za-z0-9_]*", "cannot be a label of Prometheus")]


class Slo(TypedDict):
    """Limits of a request, in milliseconds. The advice compares each part with a percentile, goodput with every
    request; a part that a workload does not have (`ttft_ms` without a stream) does not apply to it."""

    latency_ms: Maybe[Positive]
    """Time to the end of the answer, from the intended send; of a loop the time of an iteration."""
    ttft_ms: Maybe[Positive]
    """Time to the first output token, from the intended send; only of streams."""
    itl_ms: Maybe[Positive]
    """Gap between two token events, of a request its longest; only of streams."""
    tpot_ms: Maybe[Positive]
    """Time per output token after the first; only of streams."""


class QuestionKeys(TypedDict):
    slo: Section[Slo]
    tenants: Maybe[Count]
    """Number of tenants that the advice is for; `null` is the largest number of the study."""
    isolation: Annotated[IsolationKind, Field(default="none")]
    """Isolation that the advice requires: neighbours cannot slow a tenant down (`performance`), or end it
    (`fault`)."""
    price_per_hour: Maybe[Positive]
    """Price of one device per hour, in dollars; without it no costs are given."""


class Question(QuestionKeys, total=False):
    """The question, with the workloads that it is about where not all are meant."""

    workloads: list[str]


class SurveyOptions(TypedDict):
    """Scope of [`snakemake survey`](../docs/survey.md), and the activity below which it calls a GPU empty."""

    url: Maybe[Url]
    """Prometheus that scrapes dcgm-exporter, such as `http://localhost:9090`; `null` watches this host by NVML."""
    labels: Annotated[OpenMapping[PrometheusLabel, Text], Field(default={})]
    """Labels of the series that count, such as `{cluster: eu-1}`."""
    namespaces: Annotated[Unique[Name], Field(default=[])]
    """Namespaces whose workloads are judged; empty takes all."""
    hours: Maybe[Positive]
    """Hours of the past to ask Prometheus for (`null`: 24), or hours to watch this host (`null`: 1)."""
    empty_percent: Annotated[Percent, Field(default=40)]
    """Largest mean activity, of SMs and of memory, of a workload that leaves its GPU empty: two of them fit below
    `filled_percent`."""
    filled_percent: Annotated[Percent, Field(default=80)]
    """Largest sum of the mean activities of workloads on one GPU, of SMs and of memory each; a fifth is left
    for moments in which all have work."""
    memory_percent: Annotated[Percent, Field(default=90)]
    """Largest sum of their memory, in percent of the GPU's: each process has a context in addition."""
    tenants: Annotated[Numeric[Annotated[int, Field(ge=2, le=48)]], Field(default=4)]
    """Most workloads on one GPU. Every workload can be harmed by the faults of all others."""
