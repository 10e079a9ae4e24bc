"""Random pages of metrics: a histogram whose counts add up, or one line."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharebench.measure.nodes.contract import NodeError, TenantUnreachable
from sharebench.measure.nodes.metrics import MissingSeries, Scrape, parse_page, subtract_scrapes
from sharebench.model.workload import Metrics

pytestmark = pytest.mark.thorough

PAGE = """\
# HELP work Work
# TYPE work histogram
work_bucket{stage="a",le="0.01"} 10.0
work_bucket{stage="a",le="0.1"} 50.0
work_bucket{stage="a",le="+Inf"} 55.0
work_count{stage="a"} 55.0
work_sum{stage="a"} 3.5
# TYPE same summary
same_count{stage="a"} 55
same_sum{stage="a"} 3.5
"""
NUMBERS = ("0", "1", "55", "1e3", "60.5", "-5", "NaN", "+Inf", "-Inf", "1e300", "1e-320", "0x10", "1_0", "1" * 26)
VALUES = st.sampled_from((*NUMBERS, "-", "+", "", "é", "1 2 3"))
PIECES = ("work_sum", '{le="', '"}', "\\", "\x00", "\ufeff", "\r", "\n", "#", "# EOF", "{}", '{"work_sum"}', ",")
TEXTS = st.one_of(st.sampled_from(PIECES), st.text(max_size=5))


def mutated(data: Any) -> str:
    lines = PAGE.splitlines()
    for _ in range(data.draw(st.integers(0, 4))):
        number = data.draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        match data.draw(st.sampled_from(("value", "label", "insert", "remove", "repeat", "move"))):
            case "value":
                lines[number] = f"{line.rpartition(' ')[0]} {data.draw(VALUES)}"
            case "label":
                head, _, tail = line.partition('le="')
                lines[number] = f'{head}le="{data.draw(VALUES)}"{tail.partition(chr(34))[2]}' if tail else line
            case "insert":
                at = data.draw(st.integers(0, len(line)))
                lines[number] = line[:at] + data.draw(TEXTS) + line[at:]
            case "remove" if len(lines) > 1:
                del lines[number]
            case "repeat":
                lines.append(line)
            case "move":
                lines.insert(data.draw(st.integers(0, len(lines))), lines.pop(number))
    return "\n".join(lines) + "\n"


def parsed(text: str, kind: str, begun_ns: int) -> Scrape | None:
    named = Metrics(path="/m").changed(**{kind: "work" if kind == "histogram" else "same"})
    page: Any = {"begun_ns": begun_ns, "ended_ns": begun_ns, "text": text, "is_whole": True, "failure": None}
    try:
        return parse_page(page, named)
    except (MissingSeries, TenantUnreachable) as refused:
        assert "\n" not in str(refused)
        return None


@settings(max_examples=800)
@given(st.data())
def test_a_page_is_a_histogram_or_one_line(data: Any) -> None:
    kind = data.draw(st.sampled_from(("histogram", "summary")))
    scrapes = [parsed(mutated(data), kind, at * 10**9) for at in range(2)]
    for scrape in filter(None, scrapes):
        assert scrape.count >= 0 and 0 <= scrape.sum_seconds < math.inf
        assert list(scrape.cumulative) == sorted(scrape.cumulative)
        assert list(scrape.upper_seconds) == sorted(set(scrape.upper_seconds))
        assert kind == "summary" or (scrape.upper_seconds[-1], scrape.cumulative[-1]) == (math.inf, scrape.count)
    first, last = scrapes
    if first is None or last is None:
        return
    try:
        found = subtract_scrapes(first, last)
    except NodeError as refused:
        assert str(refused).endswith("it restarted")
    else:
        assert min(found.counts, default=0) >= 0 and found.sum_seconds >= 0
        assert kind == "summary" or sum(found.counts) == found.count
