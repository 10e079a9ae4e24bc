import numpy as np
import pytest

from tenant.contract import Steadiness, SteadinessRule
from tenant.recorder import IntArray, SteadinessJudge

MS = 1_000_000
RULE = SteadinessRule(min_iterations=20, max_seconds=10, tolerance_percent=5)


def feed(judge: SteadinessJudge, durations: list[int], begin: int = 0, chunk: int = 7) -> int:
    """Add back-to-back iterations, a few at a time; returns the end of the last."""
    times: IntArray = begin + np.cumsum([0, *durations])
    for low in range(0, len(durations), chunk):
        high = min(low + chunk, len(durations))
        judge.add(times[low:high], times[low + 1 : high + 1])
    return int(times[-1])


STEADY = Steadiness(is_steady=True, batches=2, change_percent=0.0)


@pytest.mark.parametrize(
    ("durations", "last", "verdict"),
    [
        ([20 * MS] * 19, 20 * MS, STEADY),
        # A batch lasts 0.1 s, however fast the iterations are.
        ([MS] * 199, MS, STEADY),
        # The slow first batches are waited out.
        ([40 * MS] * 10 + [30 * MS] * 10 + [20 * MS] * 19, 20 * MS, {**STEADY, "batches": 4}),
        # A few stalls do not move a median.
        ([20 * MS] * 17 + [500 * MS] * 2, 500 * MS, STEADY),
    ],
    ids=["similar batches", "fast", "slow first", "stalls"],
)
@pytest.mark.parametrize("chunk", [7, 50])
def test_two_similar_batches_are_steady(durations: list[int], last: int, verdict: Steadiness, chunk: int) -> None:
    judge = SteadinessJudge(RULE, since_ns=0)
    end = feed(judge, durations, chunk=chunk)
    assert judge.verdict(0) is None
    feed(judge, [last], begin=end)
    assert judge.verdict(0) == verdict


@pytest.mark.parametrize(("second", "is_steady"), [(10_490_000, True), (10_510_000, False), (9_490_000, False)])
def test_the_tolerance_is_relative_to_the_earlier_median(second: int, is_steady: bool) -> None:
    judge = SteadinessJudge(RULE, since_ns=0)
    verdict = judge.verdict(feed(judge, [10 * MS] * 10 + [second] * 11))
    assert (verdict is not None) is is_steady


def test_drift_beyond_the_tolerance_runs_into_the_time_limit() -> None:
    judge = SteadinessJudge(RULE, since_ns=0)
    now = 0
    duration = 20.0 * MS
    while (verdict := judge.verdict(now)) is None:
        now = feed(judge, [int(duration)] * 10, begin=now)
        duration *= 1.06
    assert not verdict["is_steady"]
    assert verdict["change_percent"] == pytest.approx(6, rel=0.01)
    assert 10e9 <= now < 12e9


def test_the_time_limit_gives_a_verdict_without_iterations() -> None:
    judge = SteadinessJudge(RULE, since_ns=5)
    assert judge.verdict(5 + 10**10 - 1) is None
    assert judge.verdict(5 + 10**10) == Steadiness(is_steady=False, batches=0, change_percent=None)


def test_a_verdict_does_not_change() -> None:
    judge = SteadinessJudge(RULE, since_ns=0)
    end = feed(judge, [20 * MS] * 20)
    feed(judge, [90 * MS] * 50, begin=end)
    assert judge.verdict(10**12) == STEADY
