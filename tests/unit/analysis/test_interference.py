"""interference.csv: fabricated records with known slowdowns, from record to table."""

import math

import numpy as np
import pandas as pd
import pytest
from unit.factories import record

from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.columns import columns
from sharebench.read.tables.summary import interference_table, summary_table
from sharebench.study.cells import Cell

ALONE = {"fast": 0.001, "slow": 0.010}
# Planted slowdown of the first workload next to the second.
PLANTED = {("fast", "slow"): 3.0, ("slow", "fast"): 1.5, ("fast", "fast"): 2.0, ("slow", "slow"): 2.5}


def pair(one, other, repeat=1, strategy="mps", **more):
    """A cell of two tenants that are slowed down as planted, the second repeat by 21 % more."""
    factor = 1.21 ** (repeat - 1)
    latencies = [
        np.full(400, factor * ALONE[victim] * PLANTED[victim, aggressor])
        for victim, aggressor in ((one, other), (other, one))
    ]
    name = "+".join(sorted((one, other)))
    return record(strategy, latencies, workload=name, repeat=repeat, tenants_run=[one, other], **more)


def table_of(records, names):
    cells = [part for each in records for part in split_by_workload(each, reduce_record(each))]
    expected = [
        (Cell(cell.strategy, cell.workload, cell.replicas, cell.repeat), cell.tenant_workload) for cell in cells
    ]
    return interference_table(summary_table(cells, expected, Baseline(cells, "exclusive")), names)


@pytest.fixture
def records():
    """Two repeats of all pairs, and of the baselines."""
    alone = [
        record("exclusive", [np.full(400, mean)], workload=name, repeat=repeat)
        for name, mean in ALONE.items()
        for repeat in (1, 2)
    ]
    pairs = [("fast", "slow"), ("fast", "fast"), ("slow", "slow")]
    return [*alone, *(pair(*names, repeat=repeat) for names in pairs for repeat in (1, 2))]


def test_each_victim_is_compared_with_its_own_baseline(records):
    made = table_of(records, ["slow", "fast"])
    assert list(zip(made["victim"], made["aggressor"], strict=True)) == [
        ("slow", "slow"),
        ("slow", "fast"),
        ("fast", "slow"),
        ("fast", "fast"),
    ], "in the order of the names"
    assert set(made["strategy"]) == {"mps"}, "the baseline has no pairs"
    for row in made.to_dict("records"):
        assert row["slowdown"] == pytest.approx(1.1 * PLANTED[row["victim"], row["aggressor"]])
        assert row["slowdown_low"] < row["slowdown"] < row["slowdown_high"]
        assert math.sqrt(row["slowdown_low"] * row["slowdown_high"]) == pytest.approx(row["slowdown"])
        assert (row["n"], row["n_expected"], row["status"]) == (2, 2, "ok")


def test_an_unmeasured_pair_has_a_row_with_the_reason(records):
    broken = record("mig", workload="fast+slow", status="infeasible", reason="one slice", replicas=2, tenants_run=ALONE)
    made = table_of([*records, broken], ["fast", "slow"]).query("strategy == 'mig'")
    assert list(zip(made["victim"], made["aggressor"], strict=True)) == [("fast", "slow"), ("slow", "fast")]
    assert made["slowdown"].isna().all()
    assert made["n"].tolist() == [0, 0] and set(made["reason"]) == {"one slice"}


def test_without_pairs_the_table_has_only_a_header(records):
    assert table_of(records[:2], ["fast", "slow"]).to_csv(index=False) == ",".join(columns("interference")) + "\n"
    assert isinstance(table_of(records, []), pd.DataFrame)
