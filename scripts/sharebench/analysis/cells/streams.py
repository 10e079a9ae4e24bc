"""What streams add to a cell: percentiles of TTFT, ITL and TPOT, and what their samples are worth.

TTFT and TPOT have one value per request, and the record has them one by one: their effective sample size is found as
that of latencies. Gaps of a request are alike, and those of requests that a server decodes together are one and the
same step. So the sample of ITL is taken to be worth no more than the requests are, by their TPOT.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sharebench.analysis.slo import columns
from sharebench.analysis.statistics.effective import Series, effective_count, of_values
from sharebench.records.histogram import Histogram, merged
from sharebench.records.types import TenantRecord

WORTH_OF = {"ttft": "ttft", "itl": "tpot", "tpot": "tpot"}
"""The stages that are metrics, each with the one whose sample size counts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Times of one stage: their histogram, the number of requests that have any, and what these are worth."""

    histogram: Histogram
    count: int
    effective_count: float


def samples(tenants: Sequence[TenantRecord], window_seconds: float) -> Mapping[str, Sample]:
    """The stages of these tenants together; none where none of them streams."""
    worth = {name: _series(tenants, name, window_seconds) for name in set(WORTH_OF.values())}
    found = {}
    for stage, by in WORTH_OF.items():
        stored = [timed["histogram"] for tenant in tenants if (timed := tenant["stages"].get(stage))]
        if stored and worth[by]:
            together = merged(map(Histogram.from_sparse, stored))
            found[stage] = Sample(together, sum(each.count for each in worth[by]), effective_count(worth[by]))
    return found


def _series(tenants: Sequence[TenantRecord], name: str, window_seconds: float) -> list[Series]:
    known = [(requests, columns(requests)[name]) for tenant in tenants if (requests := tenant.get("requests"))]
    found = []
    for requests, times in known:
        pairs = [(start, t) for start, t in zip(requests["start_seconds"], times, strict=True) if t is not None]
        starts, seconds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        found.append(of_values(starts, seconds, window_seconds))
    return found
