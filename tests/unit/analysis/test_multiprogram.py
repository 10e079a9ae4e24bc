"""Multi-tenant metrics: formulas by hand and by the literature, and their intervals."""

import math

import numpy as np
import pytest
from scipy import stats
from unit.factories import record

from sharebench.read.cells import multiprogram
from sharebench.read.cells.multiprogram import FORMULAS, group_metrics
from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline


def metric_value(name, *slowdowns):
    return float(FORMULAS[name](np.array(slowdowns)))


def test_formulas_by_hand():
    # Two programs, one twice and one four times as slow as alone.
    assert metric_value("antt", 2, 4) == 3
    assert metric_value("stp", 2, 4) == 0.75
    assert metric_value("harmonic_speedup", 2, 4) == pytest.approx(1 / 3)
    assert metric_value("worst_slowdown", 2, 4) == 4
    # Progress 1/2 and 1/4: (3/4)² / (2 (1/4 + 1/16)) = 0.9
    assert metric_value("jain_index", 2, 4) == pytest.approx(0.9)


def constant_record(strategy, *means, **more):
    return record(strategy, [np.full(400, mean) for mean in means], **more)


def metrics(records, strategy="mps", workload=None):
    """The metrics of the group of this strategy, against the baseline `exclusive`."""
    cells = [part for each in records for part in split_by_workload(each, reduce_record(each))]
    group = [cell for cell in cells if cell.strategy == strategy and workload in (None, cell.tenant_workload)]
    return group_metrics(group, Baseline(cells, "exclusive"))


def test_paired_values_come_from_the_cells():
    alone, shared = [0.0040, 0.0044, 0.0050], [(0.008, 0.010), (0.009, 0.0108), (0.0101, 0.0122)]
    records = [constant_record("exclusive", mean, repeat=k + 1) for k, mean in enumerate(alone)]
    records += [constant_record("mps", *means, repeat=k + 1) for k, means in enumerate(shared)]
    found = metrics(records)
    by_hand = np.log([base / one + base / two for (one, two), base in zip(shared, alone, strict=True)])
    low, high = stats.t.interval(0.95, 2, loc=by_hand.mean(), scale=stats.sem(by_hand))
    assert found["stp"].value == pytest.approx(math.exp(by_hand.mean()))
    assert (found["stp"].low, found["stp"].high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    worst = [two / base for (_, two), base in zip(shared, alone, strict=True)]
    assert found["worst_slowdown"].value == pytest.approx(stats.gmean(worst))
    assert found["harmonic_speedup"].value == pytest.approx(1 / found["antt"].value)
    assert found["jain_index"].high <= 1


def test_in_a_mix_each_tenant_is_compared_with_its_own_workload():
    alone = [
        constant_record("exclusive", mean, workload=workload, repeat=repeat)
        for repeat in (1, 2)
        for workload, mean in (("light", 0.001), ("heavy", 0.004))
    ]
    both = {"workload": "both", "tenants_run": ["light", "heavy"]}
    mixes = [constant_record("mps", 0.002, 0.016, **both), constant_record("mps", 0.002, 0.016, repeat=2, **both)]
    light, heavy = (metrics([*alone, *mixes], workload=name) for name in ("light", "heavy"))
    assert light == heavy, "they are about all tenants of the cell"
    assert light["antt"].value == pytest.approx(3) and light["stp"].value == pytest.approx(0.75)
    assert light["jain_index"].value == pytest.approx(0.9)


def unpaired(alone, shared, **more):
    """Records of a baseline, and of two tenants that another run measured."""
    records = [constant_record("exclusive", mean, repeat=k + 1) for k, mean in enumerate(alone)]
    return records + [
        constant_record("mps", *means, repeat=k + 1, run_id="run-2", **more) for k, means in enumerate(shared)
    ]


def test_unpaired_intervals_of_equal_tenants_are_welchs():
    rng = np.random.default_rng(2)
    alone, shared = rng.lognormal(-5.3, 0.05, 4), rng.lognormal(-4.4, 0.08, 5)
    found = metrics(unpaired(alone, [(mean, mean) for mean in shared]))
    welch = stats.ttest_ind(np.log(shared), np.log(alone), equal_var=False).confidence_interval(0.95)
    assert found["antt"].value == pytest.approx(stats.gmean(shared) / stats.gmean(alone))
    assert found["antt"].low == pytest.approx(math.exp(welch.low))
    assert found["antt"].high == pytest.approx(math.exp(welch.high))
    assert found["stp"].low == pytest.approx(2 * math.exp(-welch.high))
    assert found["worst_slowdown"].high == pytest.approx(math.exp(welch.high))
    # Fairness among tenants of one workload does not depend on the baseline.
    assert (found["jain_index"].low, found["jain_index"].high) == (pytest.approx(1), pytest.approx(1))


def test_an_unpaired_mix_depends_on_each_baseline_by_its_share():
    light, heavy = [0.001, 0.0011, 0.00105], [0.004, 0.0041, 0.0039]
    records = [constant_record("exclusive", mean, workload="light", repeat=k + 1) for k, mean in enumerate(light)]
    records += [constant_record("exclusive", mean, workload="heavy", repeat=k + 1) for k, mean in enumerate(heavy)]
    both = {"workload": "both", "tenants_run": ["light", "heavy"], "run_id": "run-2"}
    records += [
        constant_record("mps", 0.003 * f, 0.008 * f, repeat=k + 1, **both) for k, f in enumerate((1, 1.02, 0.99))
    ]
    found = metrics(records, workload="light")["antt"]
    # d log((x + y)/2) = x/(x + y) d log x + y/(x + y) d log y, with the slowdowns x and y.
    x, y = 0.003 / stats.gmean(light), 0.008 / stats.gmean(heavy)
    variances = [
        stats.sem(np.log([1, 1.02, 0.99])) ** 2,
        (x / (x + y) * stats.sem(np.log(light))) ** 2,
        (y / (x + y) * stats.sem(np.log(heavy))) ** 2,
    ]
    total = sum(variances)
    degrees = total**2 / sum(each**2 / 2 for each in variances)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(total)
    assert found.value == pytest.approx((x + y) / 2 * stats.gmean([1, 1.02, 0.99]))
    assert math.log(found.high / found.value) == pytest.approx(half, rel=1e-5)


def test_a_tenant_without_a_baseline_leaves_all_blank():
    both = {"workload": "both", "tenants_run": ["light", "heavy"]}
    found = metrics(
        [constant_record("exclusive", 0.001, workload="light"), constant_record("mps", 0.002, 0.016, **both)]
    )
    assert set(found.values()) == {None}
    assert set(group_metrics([], Baseline([], None)).values()) == {None}


def test_the_baseline_has_the_value_of_slowdown_1():
    found = metrics([constant_record("exclusive", 0.004), constant_record("exclusive", 0.005, repeat=2)], "exclusive")
    assert {name: each.value for name, each in found.items()} == dict.fromkeys(multiprogram.FORMULAS, 1)
