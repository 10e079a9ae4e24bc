"""summary.csv: one row per group, against numbers worked out from the samples."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from unit.factories import record

from sharebench.read.cells import metrics
from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline, Separability, group_slowdown
from sharebench.read.columns import STUDY_KINDS, columns, schema
from sharebench.read.tables.summary import METRICS, summary_table
from sharebench.read.text import METRIC_LOOKS, known_looks
from sharebench.study.cells import Cell

OPTIONAL_METRICS = tuple(set(METRICS) - set(columns("metrics")))
EVERYTHING = {name for column in schema() for name in column.studies}
# The workload of all cells here.
FEW = "p99.9 needs 2995 independent iterations"


def summarise(records, expected=None, baseline="exclusive", studies=()):
    """The table over these records; by default exactly they are expected."""
    cells = [part for each in records for part in split_by_workload(each, reduce_record(each))]
    if expected is None:
        expected = [
            (Cell(part.strategy, part.workload, part.replicas, part.repeat), part.tenant_workload) for part in cells
        ]
    return summary_table(cells, expected, Baseline(cells, baseline), studies)


def row_of(records, strategy="mps", **more):
    """The row of one strategy."""
    found = summarise(records, **more).query("strategy == @strategy")
    assert len(found) == 1
    return found.iloc[0]


def fail(made, *names):
    """The record with these gates failed."""
    for gate in made["gates"]:
        if gate["name"] in names:
            gate |= {"passed": False, "message": "broken on purpose"}
    return made


def constant_record(strategy, *means, **more):
    """A record whose tenants have these constant latencies, in seconds."""
    return record(strategy, [np.full(400, mean) for mean in means], **more)


def test_each_metric_has_its_columns():
    plain, every = (summary_table([], [], Baseline([], None), studies) for studies in ((), EVERYTHING))
    for metric in METRICS:
        assert {metric, f"{metric}_low", f"{metric}_high", f"{metric}_n", f"{metric}_n_excluded"} < set(every)
    of_latency, of_all = (
        [name.removesuffix("_seconds_bucket_error_percent") for name in table if name.endswith("_error_percent")]
        for table in (plain.drop(columns="scrape_error_percent"), every.drop(columns="scrape_error_percent"))
    )
    assert of_latency == [f"latency_{name}" for name in ("p50", "p95", "p99", "p999")]
    assert of_all == [*of_latency, *(f"{stage}_{name}" for stage in ("ttft", "itl", "tpot") for name in ("p50", "p99"))]
    assert set(every) - set(plain) == {name for name in every if name.startswith(OPTIONAL_METRICS)}


def test_cell_values_and_their_means_over_repeats():
    rng = np.random.default_rng(4)
    samples = [[rng.lognormal(-5.5, 0.3, 500), rng.lognormal(-5.2, 0.3, 300)] for _ in range(3)]
    records = [record("mps", pair, repeat=k + 1) for k, pair in enumerate(samples)]
    row = row_of(records)
    pooled = [np.concatenate(pair) for pair in samples]
    assert row["latency_mean_seconds"] == pytest.approx(stats.gmean([each.mean() for each in pooled]))
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        exact = stats.gmean([np.quantile(each, q, method="inverted_cdf") for each in pooled])
        bound = row[f"latency_{name}_seconds_bucket_error_percent"]
        assert 0.5 <= bound < 1.1
        assert abs(row[f"latency_{name}_seconds"] / exact - 1) * 100 <= bound
    assert row["throughput_total_hz"] == pytest.approx(400.0)
    assert row["throughput_per_tenant_hz"] == pytest.approx(200.0)
    assert row["memory_per_tenant_mib"] == pytest.approx(64.0)
    logs = np.log([each.mean() for each in pooled])
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert row["latency_mean_seconds_low"] == pytest.approx(math.exp(low))
    assert row["latency_mean_seconds_high"] == pytest.approx(math.exp(high))
    assert (row["n_expected"], row["n"], row["n_excluded"], row["latency_mean_seconds_n"]) == (3, 3, 0, 3)


def test_a_line_of_the_schema_says_how_a_metric_comes_from_the_tenants(monkeypatch):
    cell = reduce_record(constant_record("mps", 0.004, 0.006))
    monkeypatch.setitem(metrics.RULES, "latency_worst_seconds", ("max", "latency_max_seconds"))
    assert metrics.cell_value(cell, "latency_worst_seconds") == pytest.approx(0.006)
    assert metrics.over_tenants(cell, "throughput_per_tenant_hz") * 2 == metrics.cell_value(cell, "throughput_total_hz")
    with pytest.raises(KeyError, match="slowdown"):
        metrics.cell_value(cell, "slowdown")
    of_cells = columns("cells", EVERYTHING)
    assert {column for _, column in metrics.RULES.values()} <= set(of_cells)
    assert {how for how, _ in metrics.RULES.values()} <= {*metrics.OVER_TENANTS, "device"}
    assert {look.metric for look in METRIC_LOOKS} <= set(METRICS)


def test_a_column_that_the_summary_lacks_is_not_shown():
    shown = known_looks(pd.DataFrame({"slowdown": [math.nan], "goodput_total_hz": [math.nan]}))
    assert [look.metric for look in shown] == ["slowdown"]


def test_slowdowns_in_blocks_are_paired():
    alone, shared = [0.0040, 0.0044, 0.0050], [(0.008, 0.010), (0.009, 0.0108), (0.0101, 0.0122)]
    records = [constant_record("exclusive", mean, repeat=k + 1) for k, mean in enumerate(alone)]
    records += [constant_record("mps", *means, repeat=k + 1) for k, means in enumerate(shared)]
    row = row_of(records)
    ratios = np.log([(one + two) / 2 / base for (one, two), base in zip(shared, alone, strict=True)])
    low, high = stats.t.interval(0.95, 2, loc=ratios.mean(), scale=stats.sem(ratios))
    assert row["slowdown"] == pytest.approx(math.exp(ratios.mean()))
    assert (row["slowdown_low"], row["slowdown_high"]) == pytest.approx((math.exp(low), math.exp(high)))
    assert row["notes"] == FEW


@pytest.mark.parametrize("change", [{"run_id": "run-2"}, {"block": 0}])
def test_unpaired_slowdowns_have_welchs_interval(change):
    alone, shared = [0.0040, 0.0044, 0.0050], [0.008, 0.0092, 0.0101]
    in_baseline = {"block": 0} if "block" in change else {}
    records = [constant_record("exclusive", mean, repeat=k + 1, **in_baseline) for k, mean in enumerate(alone)]
    records += [constant_record("mps", mean, repeat=k + 1, **change) for k, mean in enumerate(shared)]
    row = row_of(records)
    welch = stats.ttest_ind(np.log(shared), np.log(alone), equal_var=False).confidence_interval(0.95)
    assert row["slowdown"] == pytest.approx(stats.gmean(shared) / stats.gmean(alone))
    assert row["slowdown_low"] == pytest.approx(math.exp(welch.low))
    assert row["slowdown_high"] == pytest.approx(math.exp(welch.high))
    baseline = row_of(records, "exclusive")
    assert [baseline[f"slowdown{end}"] for end in ("", "_low", "_high")] == [1, 1, 1]


def test_repeats_that_share_one_baseline_cell_are_not_paired():
    records = [constant_record("exclusive", 0.004, repeat=1, block=0)]
    records += [constant_record("mps", mean, repeat=k + 1, block=0) for k, mean in enumerate((0.008, 0.009))]
    row = row_of(records)
    assert row["slowdown"] == pytest.approx(math.sqrt(0.008 * 0.009) / 0.004)
    assert pd.isna(row["slowdown_low"])
    assert row["notes"] == f"{FEW}; no interval of the slowdown against one baseline cell"


def mix_of(*latencies, runs=("light", "heavy"), **more):
    """A cell whose tenants run these, with these constant latencies in seconds."""
    return constant_record("mps", *latencies, workload="both", tenants_run=runs, **more)


ALONE = [
    constant_record("exclusive", mean, workload=workload, repeat=repeat)
    for repeat in (1, 2)
    for workload, mean in (("light", 0.001), ("heavy", 0.004))
]


def test_a_mix_has_a_row_per_workload_against_its_own_baseline():
    rows = summarise([*ALONE, mix_of(0.002, 0.016), mix_of(0.003, 0.012, repeat=2)]).query("workload == 'both'")
    assert rows["tenant_workload"].tolist() == ["light", "heavy"]
    assert rows["n"].tolist() == rows["n_expected"].tolist() == [2, 2]
    assert rows["slowdown"].tolist() == pytest.approx([math.sqrt(6), math.sqrt(12)])
    assert rows["latency_mean_seconds"].tolist() == pytest.approx([math.sqrt(6) / 1e3, 4 * math.sqrt(12) / 1e3])
    assert rows["throughput_total_hz"].tolist() == pytest.approx([200, 200])
    assert rows["slowdown_low"].notna().all(), "each of them has one baseline to be paired with"


def test_tenants_of_one_workload_in_a_mix_are_pooled():
    made = mix_of(0.002, 0.016, 0.020, runs=("light", "heavy", "heavy"))
    rows = summarise([*ALONE, made]).query("workload == 'both'").set_index("tenant_workload")
    assert rows.loc["heavy", "slowdown"] == pytest.approx((4 + 5) / 2)
    assert rows.loc["heavy", "throughput_total_hz"] == pytest.approx(400)
    assert rows.loc["heavy", "throughput_per_tenant_hz"] == pytest.approx(200)
    assert rows.loc["light", "slowdown"] == pytest.approx(2)
    assert set(rows["replicas"]) == {3}


def test_a_mix_without_tenants_still_has_a_row_per_workload():
    made = record("mps", workload="both", status="infeasible", reason="no", replicas=2, tenants_run=["light", "heavy"])
    rows = summarise([made])
    assert rows["tenant_workload"].tolist() == ["light", "heavy"]
    assert rows["reason"].tolist() == ["no", "no"]
    assert rows["n"].tolist() == [0, 0]


def test_without_a_baseline_slowdown_is_blank_with_a_note():
    for records, baseline in (
        ([constant_record("mps", 0.004)], "exclusive"),
        ([constant_record("exclusive", 0.004), constant_record("mps", 0.004)], None),
    ):
        row = row_of(records, baseline=baseline)
        assert pd.isna(row["slowdown"])
        assert (row["slowdown_n"], row["slowdown_n_excluded"]) == (0, 1)
        assert "no slowdown without a valid baseline" in row["notes"]


def test_an_invalid_cell_is_counted_but_excluded_from_means():
    records = [constant_record("mps", mean, repeat=k + 1) for k, mean in enumerate((0.004, 0.005, 0.9))]
    fail(records[2], "window_coverage")
    row = row_of(records, baseline=None)
    assert (row["n_expected"], row["n"], row["n_excluded"]) == (3, 2, 1)
    assert (row["latency_mean_seconds_n"], row["latency_mean_seconds_n_excluded"]) == (2, 1)
    assert row["latency_mean_seconds"] == pytest.approx(math.sqrt(0.004 * 0.005))
    assert row["status"] == "ok"
    assert row["reason"] == "window_coverage: broken on purpose"
    assert "1 of 3 cells excluded by window_coverage" in row["notes"]


def test_a_cell_with_a_warning_is_in_the_mean_with_a_note():
    row = row_of([fail(constant_record("mps", 0.01), "drift")])
    assert row["n"] == 1
    assert row["warnings"] == 1
    assert "1 of 1 cells with a warning: drift" in row["notes"]
    excluded = fail(fail(constant_record("mps", 0.01, repeat=2), "drift"), "window_coverage")
    assert row_of([fail(constant_record("mps", 0.01), "drift"), excluded])["warnings"] == 1, (
        "what is in no mean warns of none"
    )


@pytest.mark.parametrize(
    ("errors", "percentiles_ms"),
    [(0, (1, 1, 3)), (60, (1, 3, None)), (110, (1, None, None))],
    ids=["none", "3 %", "5.4 %"],
)
def test_percentiles_are_of_all_that_began(errors, percentiles_ms):
    """1920 succeeded, 40 of them in 3 ms: with 60 failures the slow ones begin at 94.9 % of all that began."""
    made = record("mps", [np.resize([*[0.001] * 47, 0.003], 1920)])
    made["tenants"][0]["errors"] = errors
    row = row_of([made])
    found = [row[f"latency_{name}_seconds"] for name in ("p50", "p95", "p99")]
    assert [None if math.isnan(each) else round(1000 * each, 1) for each in found] == pytest.approx(percentiles_ms)
    assert ("p99 is not known: " in row["notes"]) == bool(errors)


def on_gpu(repeat, energy_joules=600.0, idle_watts=100.0, count=400):
    """A cell of a GPU with that energy in its window of 2 s."""
    made = record("mps", [np.full(count, 0.005)], repeat=repeat, is_gpu=True)
    made["telemetry"] |= {"energy_joules": energy_joules, "power_mean_watts": energy_joules / 2}
    made["calibration"]["idle_power_watts"] = idle_watts
    return made


def test_energy_is_a_geometric_mean_with_an_interval():
    row = row_of([on_gpu(1, 600.0), on_gpu(2, 660.0), on_gpu(3, 630.0)])
    each = np.array([600.0, 660.0, 630.0]) / 400
    assert row["energy_per_iteration_joules"] == pytest.approx(stats.gmean(each))
    assert row["energy_above_idle_per_iteration_joules"] == pytest.approx(stats.gmean(each - 200 / 400))
    assert row["power_mean_watts"] == pytest.approx(stats.gmean([300, 330, 315]))
    assert row["energy_per_iteration_joules_low"] < each.mean() < row["energy_per_iteration_joules_high"]
    assert row["memory_per_tenant_mib"] == pytest.approx(700)
    assert row["tenants_that_fit"] == 116
    assert row["notes"] == f"{FEW}; no slowdown without a valid baseline"


def test_energy_above_idle_is_blank_if_a_cell_is_below_idle():
    row = row_of([on_gpu(1), on_gpu(2, idle_watts=301.0), on_gpu(3)])
    assert pd.isna(row["energy_above_idle_per_iteration_joules"])
    assert row["energy_above_idle_per_iteration_joules_n"] == 0
    assert "energy above idle per iteration not above 0 in 1 of 3 cells" in row["notes"]
    assert row["energy_per_iteration_joules_n"] == 3


def test_tenants_that_fit_is_the_smallest_over_cells():
    larger = on_gpu(2)
    larger["telemetry"] |= {"tenant_memory_mib": [1400.0], "memory_used_max_mib": 1900.0}
    assert row_of([on_gpu(1), larger])["tenants_that_fit"] == 58


def test_the_isolation_index_compares_with_the_same_strategy_without_neighbours():
    alone, beside = [0.0040, 0.0044, 0.0042], [0.0050, 0.0053, 0.0055]
    records = [constant_record("mps", mean, repeat=k + 1) for k, mean in enumerate(alone)]
    records += [constant_record("mps", mean, mean, repeat=k + 1) for k, mean in enumerate(beside)]
    rows = summarise(records).set_index("replicas")
    ratios = np.log(np.array(beside) / alone)
    low, high = stats.t.interval(0.95, 2, loc=ratios.mean(), scale=stats.sem(ratios))
    assert rows.loc[2, "isolation_index"] == pytest.approx(2 - math.exp(ratios.mean()))
    assert rows.loc[2, "isolation_index_low"] == pytest.approx(2 - math.exp(high))
    assert rows.loc[2, "isolation_index_high"] == pytest.approx(2 - math.exp(low))
    assert pd.isna(rows.loc[1, "isolation_index"]), "it has no neighbour"


def test_an_effect_no_larger_than_the_a_a_difference_is_not_separable():
    def study(*again):
        records = [constant_record("exclusive", 0.004, repeat=k) for k in (1, 2)]
        records += [constant_record("exclusive-again", mean, repeat=k + 1) for k, mean in enumerate(again)]
        records += [constant_record("mps", 0.0042, repeat=k) for k in (1, 2)]
        return summarise(records).set_index("strategy")

    rows = study(0.00404, 0.00404)
    assert rows["separable"].fillna("").to_dict() == {"exclusive": "", "exclusive-again": "", "mps": "yes"}
    # A control that is faster by as much counts like one that is slower.
    for means in ((0.0043, 0.0043), (0.0036, 0.0036), (0.0042, 0.0042)):
        rows = study(*means)
        assert rows.loc["mps", "separable"] == "no"
        assert "slowdown not separable" in rows.loc["mps", "notes"]
    assert study()["separable"].isna().all()


BASELINE, SHARED = (0.0040, 0.0042, 0.0041), (0.0046, 0.0048, 0.0047)


def with_control(shared, control, alone=BASELINE):
    """The rows of a study of three blocks by strategy."""
    means = {"exclusive": alone, "exclusive-again": control, "mps": shared}
    records = [constant_record(name, mean, repeat=k + 1) for name, own in means.items() for k, mean in enumerate(own)]
    return summarise(records).set_index("strategy")


def test_a_slowdown_whose_interval_contains_1_is_never_separable():
    # The control agrees with the baseline by luck, so that its ratio alone would let any difference through.
    row = with_control((0.0046, 0.0041, 0.0047), control=(0.0041, 0.0041, 0.0041)).loc["mps"]
    assert row["slowdown_low"] < 1 < row["slowdown"] and row["separable"] == "no"


@pytest.mark.thorough
@pytest.mark.parametrize(("effect", "share", "within"), [(0.0, 0.037, 0.02), (0.02, 0.795, 0.04)])
def test_three_repeats_find_2_percent_in_four_studies_of_five(effect, share, within):
    rng, names = np.random.default_rng(4), ("exclusive", "exclusive-again", "mps")
    made = [reduce_record(constant_record(name, 0.01, repeat=k)) for name in names for k in (1, 2, 3)]

    def verdict():
        cells = []
        for cell in made:
            mean = 0.01 * math.exp(rng.normal(0, 0.005)) * (1 + effect * (cell.strategy == "mps"))
            row = replace(cell.rows[0], latency_mean_seconds=mean)
            cells.append(replace(cell, rows=(row,), latency_mean_seconds=mean))
        baseline = Baseline(cells, "exclusive")
        slowdown, _ = group_slowdown(cells[-3:], baseline)
        return Separability(cells, baseline).verdict(cells[0].workload, slowdown)

    assert np.mean([verdict() == "yes" for _ in range(1500)]) == pytest.approx(share, abs=within)


def test_the_baseline_of_a_block_is_the_mean_with_its_control():
    control, shared = (0.0044, 0.0040, 0.0042), (0.0050, 0.0053, 0.0055)
    rows = with_control(shared, control)
    ratios = np.log(np.array(shared) / np.sqrt(np.array(BASELINE) * control))
    low, high = stats.t.interval(0.95, 2, loc=ratios.mean(), scale=stats.sem(ratios))
    assert rows.loc["mps", ["slowdown", "slowdown_low", "slowdown_high"]].tolist() == pytest.approx(
        [math.exp(each) for each in (ratios.mean(), low, high)]
    )
    assert rows.loc["mps", "antt"] == pytest.approx(rows.loc["mps", "slowdown"])
    # The control is compared with the baseline alone, and the baseline with itself.
    assert rows.loc["exclusive-again", "slowdown"] == pytest.approx(stats.gmean(np.divide(control, BASELINE)))
    assert rows.loc["exclusive-again", "antt"] == pytest.approx(rows.loc["exclusive-again", "slowdown"])
    assert rows.loc["exclusive", "slowdown"] == 1


def test_throughput_per_watt_is_the_cells_rate_over_the_devices_power():
    row = row_of([on_gpu(1, 600.0), on_gpu(2, 660.0)])
    assert row["throughput_per_watt"] == pytest.approx(stats.gmean([200 / 300, 200 / 330]))
    assert pd.isna(row_of([constant_record("mps", 0.01)])["throughput_per_watt"])
    mixed = record("mps", [np.full(400, 0.002)] * 2, workload="both", tenants_run=["light", "heavy"], is_gpu=True)
    rows = summarise([mixed])
    assert rows["throughput_per_watt"].isna().all() and rows["power_mean_watts"].notna().all()


def test_activity_is_a_mean_over_the_cells_with_its_interval():
    records = [constant_record("mps", 0.005, 0.005, repeat=repeat, is_gpu=True) for repeat in (1, 2, 3)]
    for made, busy in zip(records, (40.0, 50.0, 62.5), strict=True):
        made["telemetry"] |= {"sm_active_mean_percent": busy, "dram_active_mean_percent": 0.0}
    row = row_of(records, studies=[f"{name}_percent" for name in ("sm_active", "sm_occupancy", "dram_active")])
    assert row["sm_active_percent"] == pytest.approx(50)
    assert row["sm_active_percent_low"] < 40 < 62.5 < row["sm_active_percent_high"]
    assert (row["sm_active_percent_n"], row["dram_active_percent_n"]) == (3, 0)
    assert "dram active not above 0 in 3 of 3 cells" in row["notes"]
    assert "occupancy" not in row["notes"]
    assert "sm_active_percent" not in row_of(records)
    assert not {name for name in metrics.optional_metrics(EVERYTHING) if "active" in name}, "neither good nor bad"
    assert set(metrics.optional_metrics(EVERYTHING)) == set(metrics.optional_metrics(STUDY_KINDS))
