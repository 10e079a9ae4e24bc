"""Declared comparisons: their list, their tests against scipy's, and Holm's adjustment over all."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from unit.factories import record
from unit.studies import W, study_with

from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.statistics.intervals import holm
from sharebench.read.tables.contrasts import contrasts_table, declared_contrasts


def simulated_study(**changes):
    """A simulated study of MPS, time-slicing and MIG at 1 and 2 tenants with one workload."""
    keys = {"node": "simulated", "strategies": ["mps", "time-slicing", "mig"], "replicas": [1, 2]}
    return study_with(keys | {"workloads": ["matmul"]} | changes)


def cells(strategy, *means, replicas=2, **more):
    """One cell per repeat with these constant latencies."""
    return [record(strategy, [np.full(400, mean)] * replicas, repeat=k + 1, **more) for k, mean in enumerate(means)]


def table(records, planned=None):
    """The table of these records."""
    apart = [part for each in records for part in split_by_workload(each, reduce_record(each))]
    return contrasts_table(apart, planned or simulated_study(), Baseline(apart, "exclusive"))


MPS, SLICED, MIG = (0.0050, 0.0054, 0.0051), (0.0080, 0.0088, 0.0079), (0.0051, 0.0053, 0.0052)
ALL = [*cells("mps", *MPS), *cells("time-slicing", *SLICED), *cells("mig", *MIG)]


def test_without_a_declaration_every_sharing_strategy_is_compared_with_the_first():
    assert declared_contrasts(simulated_study()) == [("time-slicing", "mps"), ("mig", "mps")]
    assert declared_contrasts(simulated_study(strategies=["exclusive", "mps"])) == []
    assert declared_contrasts(simulated_study(contrasts=["mps/time-slicing"])) == [("mps", "time-slicing")]
    jobs = simulated_study(strategies=["sequential", "mps", "time-slicing"], workloads=["batch-matmul"])
    assert declared_contrasts(jobs) == [("time-slicing", "mps")], "a queue shares nothing"


def test_windows_with_a_fault_are_not_compared():
    planned = simulated_study(node="cpu", strategies=["mps", "time-slicing"], faults=["killed"])
    assert table([*cells("mps", *MPS), *cells("time-slicing", *SLICED)], planned)["workload"].tolist() == ["matmul"]


def test_pairs_of_blocks_are_tested_together():
    rows = table(ALL)
    ratios = [np.array(SLICED) / MPS, np.array(MIG) / MPS]
    pvalues = [stats.ttest_1samp(np.log(each), 0).pvalue for each in ratios]
    assert rows["ratio"].tolist() == pytest.approx([stats.gmean(each) for each in ratios])
    assert rows["p"].tolist() == pytest.approx(pvalues)
    assert rows["p_holm"].tolist() == pytest.approx(holm(pvalues))
    assert rows["p_holm"].tolist() == pytest.approx([2 * pvalues[0], pvalues[1]]), "the smaller one counts twice"
    low, high = stats.t.interval(0.95, 2, loc=np.log(ratios[0]).mean(), scale=stats.sem(np.log(ratios[0])))
    assert rows[["ratio_low", "ratio_high"]].iloc[0].tolist() == pytest.approx([math.exp(low), math.exp(high)])
    assert rows["paired"].all() and set(rows["replicas"]) == {2}
    assert rows["separable"].isna().all()


def test_other_runs_are_not_paired():
    row = table([*cells("mps", *MPS), *cells("time-slicing", *SLICED, run_id="run-2")]).iloc[0]
    assert not row["paired"]
    assert row["p"] == pytest.approx(stats.ttest_ind(np.log(SLICED), np.log(MPS), equal_var=False).pvalue)


def test_unmeasured_comparisons_have_a_reason_and_are_not_counted():
    infeasible = [record("mig", status="infeasible", reason="no slices", replicas=2, repeat=k) for k in (1, 2, 3)]
    rows = table([*cells("mps", *MPS), *cells("time-slicing", *SLICED), *infeasible]).set_index("strategy")
    assert rows.loc["mig", "reason"] == "no slices" and pd.isna(rows.loc["mig", "ratio"])
    assert rows.loc["time-slicing", "p_holm"] == rows.loc["time-slicing", "p"]
    assert table(cells("mps", *MPS)).set_index("strategy").loc["mig", "reason"] == "not measured"


def test_a_contrast_within_the_a_a_difference_is_not_separable():
    null = [*cells("exclusive", 0.004, 0.004, 0.004, replicas=1)]
    null += cells("exclusive-again", 0.0042, 0.0042, 0.0042, replicas=1)
    rows = table([*ALL, *null]).set_index("strategy")
    assert rows["separable"].to_dict() == {"time-slicing": "yes", "mig": "no"}


def test_a_mix_is_compared_by_workload_and_pairs_are_not_compared():
    changes = {
        "workloads": ["blend"],
        "interference": ["light", "heavy"],
        f"{W}.light": {"simulated": {"serial_seconds": 0.001}},
        f"{W}.heavy": {"simulated": {"serial_seconds": 0.004}},
        f"{W}.blend": {"tenants": ["light", "heavy"]},
        "contrasts": ["time-slicing/mps"],
    }
    both = {"workload": "blend", "tenants_run": ["light", "heavy"]}
    records = [
        record(name, [np.full(400, light), np.full(400, heavy)], repeat=k, **both)
        for name, light, heavy in (("mps", 0.002, 0.008), ("time-slicing", 0.004, 0.008))
        for k in (1, 2)
    ]
    rows = table(records, simulated_study(**changes))
    assert rows[["workload", "tenant_workload"]].to_numpy().tolist() == [["blend", "light"], ["blend", "heavy"]]
    assert rows["ratio"].tolist() == pytest.approx([2, 1])
