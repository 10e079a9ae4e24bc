"""Dollars and goodput: against a published example, hand-computed numbers, and exact counts."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from unit.factories import back_to_back, record, streamed, tenant, written

from sharebench.analysis.decide.cost import (
    Repeat,
    by_buckets,
    by_requests,
    cost_table,
    saved,
    with_lower_bounds,
)
from sharebench.analysis.decide.rows import SummaryRow, summary_rows
from sharebench.analysis.slo import dollars_per_million, within_slo
from tenant.buckets import bucket_index
from tenant.contract import upper_seconds

LITERATURE = Path(__file__).parents[3] / "published" / "literature.csv"


def test_the_published_example_of_four_tenants() -> None:
    with LITERATURE.open(newline="") as file:
        printed = {
            row["metric"]: float(row["value"]) for row in csv.DictReader(file) if row["source"].startswith("EKS")
        }
    # The guide cuts the cents off.
    assert int(saved(4, 0.752)) == printed["monthly saving"]


def test_what_is_left_of_it_after_the_loss_by_sharing() -> None:
    """Time-slicing in the nos table does 0.90 of the work of an exclusive tenant: 1/0.9 devices for the same work."""
    assert saved(4, 0.752) == pytest.approx(1624.32)
    assert saved(4, 0.752, stp=0.9) == pytest.approx(2165.76 - 541.44 / 0.9) == pytest.approx(1564.16)
    # Sharing that does more work than it has to leaves the saving as it is; a part of a device cannot be saved.
    assert saved(4, 0.752, stp=1.9) == pytest.approx(1624.32)


def test_dollars_per_million_iterations() -> None:
    # A million at 1000/s takes 1000 s of 3600 to the hour.
    assert dollars_per_million(3.6, 1000) == pytest.approx(1.0)


@pytest.mark.parametrize("slo_seconds", [0.0101, 0.0113, 0.02, 0.5, 1e-5])
def test_the_share_within_the_slo_is_that_of_the_latencies(slo_seconds: float) -> None:
    latencies = np.random.default_rng(3).lognormal(np.log(0.011), 0.3, 20_000)
    index, count = np.unique(bucket_index(np.rint(latencies * 1e9).astype(np.int64)), return_counts=True)
    upper = [upper_seconds(int(i)) for i in index]
    lower = [upper_seconds(int(i) - 1) for i in index]
    value, least, most = within_slo(lower, upper, count, slo_seconds)
    exact = (latencies <= slo_seconds).mean()
    assert least <= exact <= most
    assert most - least <= count.max() / count.sum()
    assert value == pytest.approx(exact, abs=0.003)


@pytest.mark.parametrize(
    ("slo_seconds", "expected"),
    [
        # 10 iterations up to 5 ms, 90 in (5, 10] ms, 20 beyond.
        (0.007, ((10 + 90 * 0.4) / 120, 10 / 120, 100 / 120)),
        (0.005, (10 / 120, 10 / 120, 10 / 120)),
        (0.0025, (5 / 120, 0.0, 10 / 120)),
        (0.02, (100 / 120, 100 / 120, 1.0)),
    ],
)
def test_coarse_buckets_of_a_program_bound_the_share(slo_seconds: float, expected: tuple[float, float, float]) -> None:
    found = within_slo([0, 0.005, 0.01], [0.005, 0.01, np.inf], [10, 90, 20], slo_seconds)
    assert found == pytest.approx(expected)


def test_older_exports_have_the_records_buckets() -> None:
    edges = [upper_seconds(index) for index in (800, 801)]
    old = pd.DataFrame({"bucket_upper_seconds": edges, "count": [3, 4]})
    assert with_lower_bounds(old)["bucket_lower_seconds"].tolist() == pytest.approx([upper_seconds(799), edges[0]])
    known = old.assign(bucket_lower_seconds=[0.0, edges[0]])
    assert with_lower_bounds(known)["bucket_lower_seconds"].tolist() == [0.0, edges[0]]


def summary(**more: object) -> list[SummaryRow]:
    row: dict[str, object] = {
        "latency_mean_seconds": 0.01,
        "strategy": "mps",
        "workload": "matmul",
        "replicas": 4,
        "throughput_total_hz": 200.0,
        "slowdown": 2.0,
    }
    row |= {"throughput_total_hz_low": 160.0, "throughput_total_hz_high": 250.0}
    row |= {"slowdown_low": 1.6, "slowdown_high": 5.0}
    row |= {"status": "ok", "reason": "", "n": 2}
    return summary_rows(pd.DataFrame([row | more]))


GAPS = [[0.02] * 4, [0.02] * 4, [0.02] * 4, []]
BETWEEN_SECONDS = upper_seconds(850)


def repeats(row: SummaryRow) -> Sequence[Repeat]:
    edges = [upper_seconds(800), upper_seconds(900)]
    buckets = pd.DataFrame(
        [
            {
                **{"replicas": n, "repeat": repeat, "tenant": 0, "count": count},
                **{"bucket_lower_seconds": edge / 2 ** (1 / 64), "bucket_upper_seconds": edge},
            }
            for n, repeat, edge, count in (
                (4, 1, edges[0], 300),
                (4, 1, edges[1], 100),
                (4, 2, edges[0], 200),
                (4, 2, edges[1], 200),
                (8, 1, edges[1], 7),
            )
        ]
    )
    return by_buckets(buckets[buckets["replicas"] == row.replicas], BETWEEN_SECONDS)


def test_a_row_of_the_table() -> None:
    [row] = cost_table(summary(), 2.0, {"latency": BETWEEN_SECONDS}, 2.0, repeats).to_dict("records")
    assert row["stp"] == pytest.approx(4 / 2)
    assert row["dollars_per_million_iterations"] == pytest.approx(2 / (200 * 3600) * 1e6)
    assert row["dollars_per_million_iterations_low"] == pytest.approx(2 / (250 * 3600) * 1e6)
    assert row["dollars_per_tenant_month"] == pytest.approx(2 * 720 / 4)
    assert row["saving_before_loss_dollars_per_month"] == pytest.approx(3 * 2 * 720)
    assert row["saving_after_loss_dollars_per_month"] == pytest.approx(3 * 2 * 720)
    # At worst the slowdown is 5, and 4/5 of the work is done.
    assert row["saving_after_loss_dollars_per_month_low"] == pytest.approx((4 - 5 / 4) * 2 * 720)
    assert row["within_slo_ratio"] == pytest.approx((0.75 + 0.5) / 2)
    assert row["goodput_hz"] == pytest.approx((150 * 100) ** 0.5)
    assert row["dollars_per_million_good_iterations"] == pytest.approx(2 / (row["goodput_hz"] * 3600) * 1e6)


def test_without_price_and_slo_their_columns_are_blank() -> None:
    [row] = cost_table(summary(), None, {}, 2.0, repeats).to_dict("records")
    blank = {name for name, value in row.items() if pd.isna(value)}
    assert {name for name in row if "dollars" in name or "slo" in name or "goodput" in name} <= blank
    assert row["stp"] == 2


def test_a_column_of_the_summary_counts_before_what_follows_from_the_slowdown() -> None:
    table = cost_table(summary(stp=1.5, stp_low=1.4, stp_high=1.6), 2.0, {}, 2.0, repeats)
    assert table["stp"].tolist() == [1.5]


def test_tokens_have_a_price() -> None:
    tokens = {f"output_tokens_total_hz{end}": hz for end, hz in (("", 500.0), ("_low", 400.0), ("_high", 625.0))}
    [row] = cost_table(summary(**tokens), 3.6, {}, 2.0, repeats, ("streams",)).to_dict("records")
    found = [row[f"dollars_per_million_tokens{end}"] for end in ("", "_low", "_high")]
    assert found == pytest.approx([2.0, 1.6, 2.5])


def test_requests_of_a_stream_are_counted_one_by_one(tmp_path: Path) -> None:
    made = streamed(tenant(0, back_to_back([0.18, 0.38, 0.18, 0.1])), [0, 0.2, 0.6, 0.8], [0.1, 0.3, 0.1, 0.1], GAPS)
    written(tmp_path / "raw.json", record(tenants=[made]) | {"environment": None})
    [(share, count)] = by_requests([tmp_path / "raw.json"], {"ttft": 0.2, "latency": 0.15})
    assert (share, count) == ((0.25, 0.25, 0.25), 4)
