"""Percentiles over repeats: intervals that include the buckets' error, and notes on blanks."""

import numpy as np
import pytest
from scipy import stats
from unit.factories import record

from sharebench.read.cells.metrics import group_percentile, percentile_note
from sharebench.read.cells.rows import reduce_record
from sharebench.read.statistics.intervals import log_interval
from sharebench.read.tables.summary import _p95_at_least
from tenant.contract import upper_seconds


def cells(*latencies):
    """One cell of one tenant for each of these samples."""
    return [reduce_record(record(latencies=[each], repeat=k + 1)) for k, each in enumerate(latencies)]


def test_the_interval_is_students_widened_by_bucket_bounds():
    rng = np.random.default_rng(1)
    samples = [rng.lognormal(-5.3, 0.2, 400) * factor for factor in (1.0, 1.1, 0.95)]
    found = group_percentile("p50", cells(*samples))
    values = [cell.percentiles["p50"].value_seconds for cell in cells(*samples)]
    plain = log_interval(values)
    index = [int(np.ceil(64 * np.log2(value / 1e-6))) for value in values]
    below = stats.gmean([upper_seconds(i - 1) / value for i, value in zip(index, values, strict=True)])
    above = stats.gmean([upper_seconds(i) / value for i, value in zip(index, values, strict=True)])
    assert (found.value, found.n) == (plain.value, 3)
    assert found.low == pytest.approx(plain.low * below) and found.low < plain.low
    assert found.high == pytest.approx(plain.high * above) and found.high > plain.high
    assert above / below == pytest.approx(2 ** (1 / 64))


def test_repeats_in_one_bucket_have_an_interval_of_its_width():
    found = group_percentile("p50", cells(*([0.00501 * (1 + 1e-4 * k)] * 400 for k in range(3))))
    # The smallest and the largest latency are known exactly.
    assert found.low < 0.00501 < found.high
    spread = [np.linspace(0.00500, 0.00508, 400)] * 3
    width = group_percentile("p50", cells(*spread))
    assert width.high / width.low > 1.008


def test_a_percentile_that_a_repeat_lacks_is_blank_for_all():
    assert group_percentile("p99", cells(np.full(400, 0.005), np.full(200, 0.005))) is None
    assert group_percentile("p95", cells(np.full(400, 0.005), np.full(200, 0.005))).n == 2


def test_notes_explain_a_blank_percentile():
    few, many = np.full(200, 0.005), np.full(400, 0.005)
    stalls = np.repeat(np.where(np.arange(40) % 8 == 0, 0.02, 0.002), 10)
    assert percentile_note("p99", cells(many)) is None
    assert percentile_note("p99", cells(few, many)) == (
        "p99 needs 299 iterations, had 200 in 1 of 2 cells (windows of about 3 s have as many)"
    )
    correlated = [reduce_record(record(latencies=[stalls], window_seconds=float(stalls.sum())))]
    note = percentile_note("p99", correlated)
    assert note.startswith("p99 needs 299 independent iterations, the effective sample size of 400 is ")
    assert percentile_note("p99", cells(np.full(400, 2000.0))) == "p99 is outside the buckets (1 µs to 1000 s)"
    assert percentile_note("p999", cells(many)) == "p99.9 needs 2995 independent iterations"
    assert percentile_note("p999", cells(np.full(2995, 0.0005))) is None


@pytest.mark.parametrize(
    ("slow", "expected"),
    [((3, 3, 3), 0.02), ((1, 1, 1), 0.002), ((9, 0, 0), 0.002)],
    ids=["9 of 60", "3 of 60 may be chance", "one repeat alone"],
)
def test_the_lower_bound_of_a_p95_is_of_all_repeats_but_no_longer_than_any(slow, expected):
    samples = [np.random.default_rng(k).permutation([0.02] * n + [0.002] * (20 - n)) for k, n in enumerate(slow)]
    assert _p95_at_least(cells(*samples)) == pytest.approx(expected, rel=0.02)


def test_a_p95_that_is_known_or_has_no_sample_has_no_lower_bound():
    assert _p95_at_least(cells(np.full(400, 0.005))) is None and _p95_at_least([]) is None
    assert _p95_at_least(cells(np.full(1, 0.005))) is None
