"""cells.csv: one row per cell and tenant, against numbers worked out from the samples."""

import io

import numpy as np
import pandas as pd
import pytest
from unit import factories
from unit.factories import back_to_back, record

from sharebench.read.cells.rows import reduce_record
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.columns import columns
from sharebench.read.tables.cells import cells_table

HEADER = ",".join(columns("cells"))


def table(records, baseline="exclusive"):
    """The table of these records, as it is read from a csv file."""
    cells = [reduce_record(each) for each in records]
    text = cells_table(cells, Baseline(cells, baseline)).to_csv(index=False)
    assert text.splitlines()[0] == HEADER
    return pd.read_csv(io.StringIO(text), dtype={"tenant": "Int64", "count": "Int64"})


def test_each_tenant_has_a_row_with_its_own_numbers():
    rng = np.random.default_rng(0)
    samples = [rng.lognormal(-5.5, 0.3, 500), rng.lognormal(-5.2, 0.3, 300)]
    rows = table([record("mps", samples, repeat=2, run_id="run-9", device="d")])
    assert rows["tenant"].tolist() == [0, 1]
    for (_, row), values in zip(rows.iterrows(), samples, strict=True):
        assert (row["strategy"], row["workload"], row["replicas"]) == ("mps", "matmul", 2)
        assert (row["repeat"], row["block"], row["run_id"], row["device"]) == (2, 2, "run-9", "d")
        assert (row["status"], row["tenant_status"], row["valid"]) == ("ok", "ok", True)
        assert row["count"] == values.size
        assert row["latency_mean_seconds"] == pytest.approx(values.mean())
        assert row["latency_max_seconds"] == pytest.approx(values.max())
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            exact = np.quantile(values, q, method="inverted_cdf")
            assert row[f"latency_{name}_seconds"] == pytest.approx(exact, rel=0.011)
        assert row["throughput_hz"] == pytest.approx(values.size / 2.0)
        assert row["flop_per_second"] == pytest.approx(1e9 * values.size / 2.0)
        assert row["memory_mib"] == 64
        assert (row["startup_context_seconds"], row["startup_warmup_seconds"]) == (0.0, 0.5)
        assert row["cpu_seconds"] == 1.9


def test_under_an_open_load_the_served_rate_stands_next_to_the_offered_one():
    made = record(latencies=[np.full(400, 0.005)])
    made["tenants"][0] |= {"errors": 6, "errors_by_reason": {"status 503": 5, "status 500": 1}}
    made["tenants"][0]["load"] |= {"planned_rate_hz": 205.0, "served_rate_hz": 150.0, "drops": 4}
    row = table([made]).iloc[0]
    assert (row["offered_hz"], row["throughput_hz"]) == (205, 150)
    assert row["error_reasons"] == "status 503: 5, status 500: 1"
    made["tenants"][0]["load"] |= {"planned_rate_hz": None}
    assert table([made]).iloc[0]["throughput_hz"] == 200, "a closed load is counted by its starts"
    del made["tenants"][0]["load"]["served_rate_hz"], made["tenants"][0]["errors_by_reason"]
    made["tenants"][0]["load"] |= {"planned_rate_hz": 205.0}
    assert table([made]).iloc[0]["throughput_hz"] == 200, "older records do not have it"


@pytest.mark.parametrize(("count", "carried"), [(4, ""), (58, "p50"), (298, "p50 p95"), (299, "p50 p95 p99")])
def test_a_percentile_with_too_few_iterations_is_blank(count, carried):
    row = table([record(latencies=[np.full(count, 0.005)])]).iloc[0]
    shown = [name for name in ("p50", "p95", "p99") if not pd.isna(row[f"latency_{name}_seconds"])]
    assert shown == carried.split()


EARLY, LATE = (0.004, {"repeat": 1}), (0.009, {"repeat": 2})


@pytest.mark.parametrize(
    ("alone", "shared", "baseline", "slowdowns"),
    [
        ([EARLY, LATE], [([0.008, 0.012], {"repeat": 1}), ([0.018, 0.036], {"repeat": 2})], "exclusive", [2, 3, 2, 4]),
        # Without one partner in its run and block, a cell refers to the geometric mean of all.
        ([EARLY, LATE], [([0.012], {"repeat": 1, "run_id": "run-2"})], "exclusive", [2]),
        ([EARLY, LATE], [([0.012], {"repeat": 1, "block": 7})], "exclusive", [2]),
        ([(mean, own | {"block": 0}) for mean, own in (EARLY, LATE)], [([0.012], {"block": 0})], "exclusive", [2]),
        ([EARLY], [([0.012], {"repeat": 1})], None, [None]),
        ([], [([0.004], {}), ([0.008, 0.008], {})], "mps", [1, 2, 2]),
    ],
    ids=["pairs", "another run", "another block", "several in a block", "no baseline", "the baseline shares itself"],
)
def test_the_baseline_of_a_tenants_slowdown(alone, shared, baseline, slowdowns):
    records = [record("exclusive", [np.full(400, mean)], **own) for mean, own in alone]
    records += [record("mps", [np.full(200, mean) for mean in means], **own) for means, own in shared]
    found = table(records, baseline)["slowdown"].iloc[len(alone) :].to_numpy(float)
    assert found == pytest.approx(np.array(slowdowns, float), nan_ok=True)


def test_an_invalid_baseline_does_not_count():
    broken = record("exclusive", repeat=1)
    broken["gates"][0]["passed"] = False
    assert table([broken, record("mps", repeat=1)])["slowdown"].isna().all()


def mix_record(**more):
    """A cell with a tenant of each workload, with 2 and 40 ms."""
    loads = [("light", np.full(200, 0.002)), ("heavy", np.full(50, 0.040))]
    tenants = [factories.tenant(k, back_to_back(own), workload=name) for k, (name, own) in enumerate(loads)]
    return record("mps", workload="light+heavy", tenants=tenants, **more)


def test_a_cell_without_tenants_is_one_row_without_a_tenant():
    row = table([record("mig", status="infeasible", reason="8 slices of 7", replicas=8)]).iloc[0]
    assert (row["strategy"], row["replicas"], row["status"], row["valid"]) == ("mig", 8, "infeasible", False)
    assert row["reason"] == "8 slices of 7"
    assert pd.isna(row["tenant"]) and pd.isna(row["count"]) and pd.isna(row["latency_mean_seconds"])


def test_tenants_that_measured_nothing_have_their_status_and_blanks():
    tenants = [factories.absent_tenant(0, "not-measured"), factories.absent_tenant(1, "oom")]
    rows = table([record("mps", status="oom", reason="1 of 2 fit", tenants=tenants)])
    assert rows["tenant_status"].tolist() == ["not-measured", "oom"]
    assert not rows["valid"].any()
    blank = ["count", "latency_mean_seconds", "throughput_hz", "slowdown", "coverage_ratio", "memory_mib"]
    assert rows[blank].isna().all(axis=None)


def test_a_failed_gate_shows_as_reason_or_warning():
    broken = record("mps")
    for gate in broken["gates"]:
        if gate["name"] in ("window_coverage", "errors", "drift"):
            gate |= {"passed": False, "message": f"{gate['name']} it is"}
    row = table([broken]).iloc[0]
    assert not row["valid"]
    assert row["reason"] == "window_coverage: window_coverage it is"
    assert row["warnings"] == "errors;drift"


def test_whole_numbers_stay_whole_next_to_blanks():
    cells = [reduce_record(record()), reduce_record(record("mig", status="infeasible", reason="no"))]
    lines = cells_table(cells, Baseline(cells, None)).to_csv(index=False).splitlines()
    assert ",0,matmul,ok,ok,True,,,400,0,,0,400," in lines[1]
    assert cells_table([], Baseline([], "exclusive")).to_csv(index=False) == HEADER + "\n"


GPU_COLUMNS = [
    "server_memory_mib",
    "power_mean_watts", "energy_joules", "energy_per_iteration_joules", "energy_above_idle_per_iteration_joules",
    "sm_clock_mean_mhz", "temperature_max_celsius", "device_mean_seconds", "device_to_host_ratio",
]  # fmt: skip


def test_power_and_energy_of_the_device_are_in_each_row():
    measured = record("mps", [np.full(300, 0.005), np.full(100, 0.015)], is_gpu=True)
    measured["telemetry"]["server_memory_mib"] = 66.0
    measured["tenants"][1]["device_histogram"] = {"count": 100, "sum_seconds": 1.2, "histogram": {"867": 100}}
    rows = table([measured])
    for _, row in rows.iterrows():
        assert (row["power_mean_watts"], row["energy_joules"]) == (300, 600)
        assert row["energy_per_iteration_joules"] == pytest.approx(600 / 400)
        # The window is 2 s and the idle power 100 W.
        assert row["energy_above_idle_per_iteration_joules"] == pytest.approx(400 / 400)
        assert (row["sm_clock_mean_mhz"], row["temperature_max_celsius"], row["server_memory_mib"]) == (1980, 47, 66)
    assert pd.isna(rows["device_mean_seconds"][0]) and pd.isna(rows["device_to_host_ratio"][0])
    assert rows["device_mean_seconds"][1] == pytest.approx(0.012)
    assert rows["device_to_host_ratio"][1] == pytest.approx(0.8)
    # A sample of half of the iterations may consist of the longer ones.
    measured["tenants"][1]["device_histogram"] = {"count": 50, "sum_seconds": 0.8, "histogram": {"894": 50}}
    rows = table([measured])
    assert rows["device_mean_seconds"][1] == pytest.approx(0.016) and pd.isna(rows["device_to_host_ratio"][1])


def test_an_optional_column_is_there_only_where_a_record_has_it():
    measured = record("mps", [[0.005] * 400] * 2, is_gpu=True)
    measured["telemetry"] |= {
        "sm_active_mean_percent": 62.5, "sm_occupancy_mean_percent": 31.25, "dram_active_mean_percent": None
    }  # fmt: skip
    cells = [reduce_record(measured), reduce_record(record("mps", is_gpu=True))]
    made = cells_table(cells, Baseline(cells, None))
    assert made["sm_active_percent"].tolist()[:2] == [62.5, 62.5] and pd.isna(made["sm_active_percent"][2])
    assert made["sm_occupancy_percent"][0] == 31.25 and "dram_active_percent" not in made
    assert "sm_active_percent" not in cells_table(cells[1:], Baseline(cells, None))


def test_power_comes_from_energy_rather_than_samples():
    measured = record("mps", is_gpu=True)
    measured["telemetry"]["power_mean_watts"] = 270.0
    assert table([measured]).iloc[0]["power_mean_watts"] == 300
    measured["telemetry"]["energy_joules"] = None
    assert table([measured]).iloc[0]["power_mean_watts"] == 270


def test_values_that_the_device_does_not_report_are_blank():
    assert table([record("mps")])[GPU_COLUMNS].isna().all(axis=None)
    measured = record("mps", is_gpu=True)
    measured["calibration"]["idle_power_watts"] = None
    row = table([measured]).iloc[0]
    assert row["energy_per_iteration_joules"] == pytest.approx(600 / 400)
    assert pd.isna(row["energy_above_idle_per_iteration_joules"])
    measured["telemetry"] = None
    assert table([measured])[[*GPU_COLUMNS, "memory_mib"]].isna().all(axis=None)


@pytest.mark.parametrize(
    "made", [mix_record(is_gpu=True), record("mps", [[]], is_gpu=True)], ids=["mix", "no iteration"]
)
def test_some_cells_have_no_energy_per_iteration(made):
    row = table([made]).iloc[0]
    assert row["energy_joules"] == 600
    assert pd.isna(row["energy_per_iteration_joules"]) and pd.isna(row["energy_above_idle_per_iteration_joules"])


def test_memory_on_a_gpu_is_what_the_driver_counts_for_the_process():
    measured = record("mps", [[0.005] * 400] * 2, is_gpu=True)
    measured["telemetry"]["tenant_memory_mib"] = [712.5, None]
    rows = table([measured])
    # The tenants' own count, 64 MiB, is not the same quantity.
    assert rows["memory_mib"][0] == 712.5 and pd.isna(rows["memory_mib"][1])


def fitting(strategy="mps", **telemetry):
    """How many tenants of 700 MiB fit into the 81 920 MiB of the factories' GPU, 500 MiB of which are taken."""
    measured = record(strategy, [[0.005] * 400] * 2, is_gpu=True)
    measured["telemetry"] |= telemetry
    return reduce_record(measured).tenants_that_fit


def test_how_many_tenants_fit_follows_from_measured_memory():
    assert fitting() == 116
    assert fitting(memory_used_max_mib=1400.0) == 117
    assert fitting(tenant_memory_mib=[700.0, 30000.0], memory_used_max_mib=31200.0) == 2
    # The tenant grew after the device's memory was read.
    assert fitting(memory_used_max_mib=1399.0) == 117


@pytest.mark.parametrize(
    ("strategy", "telemetry"),
    [
        ("mig", {}),
        ("streams", {}),
        ("mps", {"tenant_memory_mib": None}),
        ("mps", {"tenant_memory_mib": [700.0, None]}),
        ("mps", {"memory_used_max_mib": None}),
    ],
)
def test_how_many_tenants_fit_is_unknown_if_memory_is_divided_or_unknown(strategy, telemetry):
    assert fitting(strategy, **telemetry) is None
