"""Dollars and goodput: against hand-computed numbers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.factories import Load, record

from sharebench.read.cells.rows import reduce_record
from sharebench.read.decide.cost import cost_table
from sharebench.read.decide.rows import summary_rows

SLO_SECONDS = 0.02


def row(price: float | None, limits: dict[str, float], **more: object) -> dict[str, Any]:
    """The row of four tenants of MPS; `more` are columns of the summary."""
    base = {"strategy": "mps", "workload": "matmul", "replicas": 4, "status": "ok", "reason": "", "n": 2}
    base |= {"latency_mean_seconds": 0.01, "throughput_total_hz": 200.0}
    base |= {"throughput_total_hz_low": 160.0, "throughput_total_hz_high": 250.0}
    summary = summary_rows(pd.DataFrame([base | more]))
    [found] = cost_table(summary, price, lambda _: limits, ("streams",)).to_dict("records")
    return {str(name): value for name, value in found.items()}


def test_costs_per_iteration_and_per_tenant() -> None:
    found = row(2.0, {})
    # A million at 200/s takes 5000 s of 3600 to the hour.
    assert found["dollars_per_million_iterations"] == pytest.approx(2 * 5000 / 3600)
    assert found["dollars_per_million_iterations_low"] == pytest.approx(2 * 4000 / 3600)
    assert found["dollars_per_tenant_month"] == pytest.approx(2 * 720 / 4)
    assert pd.isna(found["goodput_hz"]) and not found["slo"]
    blank = {name for name, value in row(None, {}).items() if value is None or pd.isna(value)}
    assert {name for name in found if "dollars" in name or "goodput" in name} <= blank


def test_tokens_have_a_price() -> None:
    tokens = {f"output_tokens_total_hz{end}": hz for end, hz in (("", 500.0), ("_low", 400.0), ("_high", 625.0))}
    found = row(3.6, {}, **tokens)
    ends = [found[f"dollars_per_million_tokens{end}"] for end in ("", "_low", "_high")]
    assert ends == pytest.approx([2.0, 1.6, 2.5])


def test_goodput_is_that_of_the_summary() -> None:
    goodput = {f"goodput_total_hz{end}": hz for end, hz in (("", 150.0), ("_low", 140.0), ("_high", 160.0))}
    found = row(2.0, {"latency": SLO_SECONDS}, **goodput)
    assert found["within_slo_ratio"] == pytest.approx(0.75)
    assert [found[f"goodput_hz{end}"] for end in ("", "_low", "_high")] == [150.0, 140.0, 160.0]
    assert found["dollars_per_million_good_iterations"] == pytest.approx(2 / (150 * 3600) * 1e6)
    assert pd.isna(row(2.0, {"ttft": SLO_SECONDS}, **goodput)["goodput_hz"]), "no part applies"


def served_in_turn(arrivals: np.ndarray, service_seconds: float, arrival: str) -> dict[str, Any]:
    """A record of 2 s of one server, whose requests arrive (in seconds, ascending) from before the window on."""
    number = np.arange(arrivals.size)
    ends = (number + 1) * service_seconds + np.maximum.accumulate(arrivals - number * service_seconds)
    due = arrivals >= 0
    load = Load(arrivals[due], (ends - arrivals)[due], arrival, arrivals.size / 4)
    made = record("mps", [load])
    made["tenants"][0]["load"]["served_rate_hz"] = int(((ends >= 0) & (ends < 2)).sum()) / 2
    return made


@settings(max_examples=30)
@given(
    st.lists(st.floats(-2, 2, exclude_max=True), min_size=1, max_size=60),
    st.floats(1e-3, 0.5),
    st.sampled_from(["poisson", "trace"]),
    st.floats(1e-3, 10),
)
def test_goodput_is_no_more_than_throughput(
    arrivals: list[float], service_seconds: float, arrival: str, limit: float
) -> None:
    row = reduce_record(
        served_in_turn(np.sort(arrivals), service_seconds, arrival), limits=lambda _: {"latency": limit}
    ).rows[0]
    assert row.goodput_hz is not None and row.throughput_hz is not None
    assert row.goodput_hz <= row.throughput_hz


def test_of_a_full_server_only_what_it_served_is_good() -> None:
    """Of a trace that brings 100 requests a second, a server ends 50, and half of what is due keeps the SLO."""
    made = served_in_turn(np.arange(0, 2, 0.01), 0.02, "trace")
    [of_tenant] = reduce_record(made, limits=lambda _: {"latency": 1.01}).rows
    assert of_tenant.throughput_hz == pytest.approx(50, rel=0.02)
    assert of_tenant.goodput_hz == pytest.approx(25, rel=0.02)
