"""Pages of metrics with values that no counter has, and when batches of iterations are steady."""

import re
from collections.abc import Callable

import pytest
from unit.nodes.test_metrics import metrics, page

from sharebench.measure.nodes.metrics import MissingSeries, parse_metrics


def edited_page(edit: Callable[[str], str | None]) -> str:
    """A page of three iterations, each line of its histogram's samples edited; None removes it."""
    lines = page({"a": [0.005, 0.05, 0.2]}).splitlines()
    edited = [edit(line) if line.startswith("work_") else line for line in lines]
    return "".join(f"{line}\n" for line in edited if line is not None)


def with_value(start: str, value: str) -> str:
    return edited_page(lambda line: f"{line.rpartition(' ')[0]} {value}" if line.startswith(start) else line)


NOT_FINITE = {value: f"{value.lower().strip('+')}, which is not finite" for value in ("NaN", "+Inf", "-Inf")}


HUGE = {"1e300": "1e+300, which is beyond 64 bits", "1" * 400: f"{'1' * 24}, which is beyond 64 bits"}


HOSTILE = NOT_FINITE | HUGE | {"-5": "-5, which is below 0"}


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("work_sum", "the sum of histogram 'work'"),
        ("work_count", "the count of histogram 'work'"),
        ('work_bucket{le="0.1"', "the bucket le=\"0.1\" of histogram 'work'"),
        ('work_bucket{le="+Inf"', "the bucket le=\"+Inf\" of histogram 'work'"),
    ],
)
def test_a_value_that_is_not_that_of_a_counter_is_named(start: str, what: str, value: str) -> None:
    why = re.escape(f"{what} is {HOSTILE[value]}")
    with pytest.raises(MissingSeries, match=f"^{why}$"):
        parse_metrics(with_value(start, value), metrics(histogram="work"))


@pytest.mark.parametrize("value", ["NaN", "-Inf", "1e300", "-5"])
def test_a_bound_that_is_no_time_is_named(value: str) -> None:
    why = HOSTILE[value].partition(", ")[2]
    with pytest.raises(MissingSeries, match=f"^the bound of a bucket of histogram 'work' is .*{why}$"):
        parse_metrics(edited_page(lambda line: line.replace('le="0.1"', f'le="{value}"')), metrics(histogram="work"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            with_value('work_bucket{le="0.25"', "1"),
            "fall from 2 up to 0.1 to 1 up to 0.25; each must include those below",
        ),
        (edited_page(lambda line: line.replace('le="0.1"', 'le="0.25"')), "has the bucket up to 0.25 twice"),
        (
            edited_page(lambda line: line.replace('le="0.1"', 'le="fast"')),
            'a bucket .* has le="fast", which is not a number',
        ),
        (edited_page(lambda line: None if "+Inf" in line else line), 'has no classic buckets up to le="\\+Inf"'),
    ],
    ids=["falling", "twice", "no number", "no last one"],
)
def test_buckets_that_are_no_histogram_are_named(text: str, why: str) -> None:
    with pytest.raises(MissingSeries, match=why):
        parse_metrics(text, metrics(histogram="work"))


def test_a_byte_order_mark_is_not_part_of_a_page() -> None:
    assert parse_metrics("\ufeffwork_sum 3\nwork_count 2\n", metrics(summary="work")).count == 2
