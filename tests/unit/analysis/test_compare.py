"""Two data sets against each other: ratios against scipy's, what is refused, and what is listed."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from unit.edited import edited_json
from unit.factories import record
from unit.measured import fault_outcome
from unit.studies import config_with

from sharebench.datasets.dataset import combined_name, short_names
from sharebench.model.config.load import load as load_config
from sharebench.model.records import record as records
from sharebench.model.strategies import control_name
from sharebench.model.study_config import to_json
from sharebench.read.compare import METRICS, NotComparable, changed_facts, compare, read_data
from sharebench.read.statistics.intervals import holm
from sharebench.read.text import compare_markdown
from sharebench.study.study import Study

JOBS = {"workloads": ["batch-matmul"], "strategies": ["mps", "sequential"], "slo.latency_ms": 50}
"""An SLO does not apply to jobs."""
ALONE, SHARED = (0.0040, 0.0043, 0.0041), (0.0080, 0.0087, 0.0081)


def write(folder, alone=ALONE, shared=SHARED, null=(), device="A", run_id="run-1", **config):
    """A data set of MPS with two tenants and its baseline, with these mean latencies, one per repeat."""
    keys = {"node": "simulated", "strategies": ["mps"], "replicas": [2], "workloads": ["matmul"]}
    made = Study(load_config(config_with(keys | {"repeats": len(alone), "null_cells": bool(null)} | config)))
    means = {"exclusive": alone, "mps": shared, control_name("exclusive"): null, "sequential": alone}
    for cell in made.cells:
        latencies = [np.full(400, means[cell.strategy][cell.repeat - 1])] * cell.replicas
        if cell.workload in made.faults:
            latencies[-1] = 100 * latencies[-1]
        window_seconds = made.config["window_seconds"]
        one = record(
            cell.strategy, latencies, repeat=cell.repeat, run_id=run_id, device=device, window_seconds=window_seconds
        )
        one["cell"]["workload"] = cell.workload
        if cell.workload in made.faults:
            one["fault"] = fault_outcome(cell)
        for tenant, name in zip(one["tenants"], made.workloads_of(cell), strict=True):
            tenant["workload"] = name
        one["node"] |= {"kind": made.config["node"], "product": f"GPU {device} (simulated)"}
        path = folder / cell.raw
        path.parent.mkdir(parents=True, exist_ok=True)
        records.write(path, one | {"spec": made.spec(cell).text})
    for strategy, workload in made.strategy_workload_pairs():
        (folder / f"cells/{strategy}/{workload}/histograms.csv").touch()
    for file in ("nodes/device.json", *(f"calibration/{name}.json" for name in made.tenant_workloads())):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text("{}")
    manifest = {"config": to_json(made.config), "node_kind": "simulated"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write(tmp_path / "before")


def compared(before, after):
    return compare(read_data(before), read_data(after)).set_index(["metric", "strategy"])


def test_ratios_are_after_over_before_with_welchs_interval(before, tmp_path):
    slower = [mean * factor for mean, factor in zip(SHARED, (1.10, 1.12, 1.09), strict=True)]
    rows = compared(before, write(tmp_path / "after", shared=slower, run_id="run-2"))
    assert set(rows.index) == {(metric, name) for metric in METRICS for name in ("exclusive", "mps")}
    row = rows.loc["latency_mean_seconds", "mps"]
    test = stats.ttest_ind(np.log(slower), np.log(SHARED), equal_var=False)
    assert row["ratio"] == pytest.approx(stats.gmean(slower) / stats.gmean(SHARED))
    assert row["ratio_low"] == pytest.approx(math.exp(test.confidence_interval(0.95).low))
    assert row["p"] == pytest.approx(test.pvalue)
    assert (row["n_before"], row["n_after"]) == (3, 3)
    adjusted = holm([row["p"], 1.0])
    assert row["p_holm"] == pytest.approx(adjusted[0])
    assert rows.loc["latency_mean_seconds", "exclusive"]["p_holm"] == pytest.approx(1)
    ratio = (rows.loc["slowdown", "mps"][["before", "after"]]).tolist()
    assert ratio == pytest.approx([stats.gmean(np.divide(shared, ALONE)) for shared in (SHARED, slower)])
    assert rows.loc["throughput_total_hz", "mps"]["ratio"] == pytest.approx(1), "windows and counts are the same"
    assert rows.loc["latency_p99_seconds", "mps"]["ratio"] == pytest.approx(row["ratio"], rel=0.011)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"node": "cpu", "faults": ["spin"]}, "mps fault-spin+matmul"),
        (JOBS, "sequential batch-matmul"),
    ],
)
def test_cells_with_a_fault_and_queues_have_no_slowdown(tmp_path, config, name):
    rows = compared(*(write(tmp_path / name, **config) for name in ("before", "after"))).reset_index("metric")
    metrics = rows.groupby(rows.index + " " + rows["workload"])["metric"].unique()
    assert set(METRICS) - set(metrics[name]) == {"slowdown"}
    assert all(set(METRICS) == set(own) for other, own in metrics.items() if other != name)


def test_cells_with_a_fault_are_compared_by_their_victims(tmp_path):
    folders = (write(tmp_path / name, node="cpu", faults=["spin"], fault_repeats=3) for name in ("before", "after"))
    rows = compared(*folders).xs("mps", level="strategy")
    faulty, plain = (rows[rows["workload"] == name]["before"] for name in ("fault-spin+matmul", "matmul"))
    for metric in ("latency_mean_seconds", "latency_p50_seconds", "latency_p99_seconds"):
        assert faulty[metric] == pytest.approx(plain[metric])
    assert faulty["throughput_total_hz"] == pytest.approx(plain["throughput_total_hz"] / 2)


def test_a_ratio_within_the_a_a_difference_is_not_separable(tmp_path):
    quiet, loud = [mean * 1.001 for mean in ALONE], [mean * 2.2 for mean in ALONE]
    shared = [mean * 2 for mean in SHARED]
    before = write(tmp_path / "before", null=quiet)
    for null, verdict in ((quiet, "yes"), (loud, "no")):
        rows = compared(before, write(tmp_path / f"after-{verdict}", null=null, shared=shared))
        assert rows.loc["latency_mean_seconds", "mps"]["separable"] == verdict


def test_only_common_cells_are_compared_and_others_have_a_reason(before, tmp_path):
    after = write(tmp_path / "after", replicas=[2], strategies=["mps"])
    for path in after.glob("cells/mps/*/*/*/raw.json"):
        broken = json.loads(path.read_text())
        broken["evidence"][0] |= {"holds": False, "observed": "nothing"}
        path.write_text(json.dumps(broken))
    row = compared(before, after).loc["latency_mean_seconds", "mps"]
    assert row["reason"] == "no value in after: evidence: state (node): expected mps, observed nothing"
    assert math.isnan(row["ratio"]) and row["before"] == pytest.approx(stats.gmean(SHARED))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window_seconds": 3}, "window_seconds of exclusive × 1, matmul is 1.5 in before and 3 in after"),
        ({"workload_catalogue.matmul.simulated.serial_seconds": 0.5}, "workload.simulated.serial_seconds"),
        ({"strategy_catalogue.mps.thread_percent": 50}, "strategy.thread_percent of mps × 2, matmul is null"),
    ],
)
def test_data_sets_with_different_specs_are_refused(before, tmp_path, change, words):
    with pytest.raises(NotComparable) as refused:
        compared(before, write(tmp_path / "after", **change))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value) and str(refused.value).startswith("not comparable: ")


def test_repeats_with_different_specs_are_refused(before):
    with edited_json(before / "cells/mps/matmul/n2/r2/raw.json") as changed:
        spec = json.loads(changed["spec"])
        spec["workload"]["output_tolerance"] = 0.5
        changed["spec"] = json.dumps(spec)
    with pytest.raises(NotComparable) as refused:
        read_data(before)
    assert re.fullmatch(
        "not comparable: workload.output_tolerance of mps × 2, matmul is .* in repeat 1 of before and 0.5 in "
        "repeat 2 of before; compare data sets that measured the same",
        str(refused.value),
    )


def test_a_slowdown_without_a_baseline_says_so(tmp_path):
    rows = compared(*(write(tmp_path / name, baseline="none") for name in ("before", "after")))
    why = "no value in before: no valid baseline; no value in after: no valid baseline"
    assert rows["reason"].dropna().to_dict() == {("slowdown", "mps"): why}


def test_data_sets_without_common_cells_are_refused(before, tmp_path):
    after = write(tmp_path / "after", baseline="none", replicas=[3])
    with pytest.raises(NotComparable, match="no cells in common"):
        compared(before, after)


def test_facts_that_differ_are_listed(before, tmp_path):
    after = write(tmp_path / "after", device="B", **{"simulated.sms": 132})
    listed = {name: (one, other) for name, one, other in changed_facts(read_data(before), read_data(after))}
    assert listed == {
        "device": ("GPU A (simulated)", "GPU B (simulated)"),
        "identity of the device (hashed)": ("A", "B"),
    }
    assert changed_facts(read_data(before), read_data(before)) == []


def test_the_text_counts_significant_ratios(before, tmp_path):
    shared = [mean * 1.5 for mean in SHARED]
    after = write(tmp_path / "after", shared=shared, device="B")
    one, other = read_data(before), read_data(after)
    text = compare_markdown(compare(one, other), one.name, other.name, changed_facts(one, other))
    assert text.startswith("after against before, 2 mean latencies: 1 longer and 0 shorter beyond chance")
    assert re.search(r"\| mps +\| matmul +\| 2 +\| 8\.26 +\| 12\.4 +\| 1\.50 \[", text)
    assert "- device: GPU A (simulated) → GPU B (simulated)" in text


def test_what_could_not_be_tested_has_its_reason(before, tmp_path):
    one, other = read_data(before), read_data(write(tmp_path / "after", alone=ALONE[:1], shared=SHARED[:1]))
    table = compare(one, other)
    assert set(table["reason"]) == {"one value in after"} and table["p"].isna().all()
    assert "; 2 could not be tested (one value in after).\n" in compare_markdown(table, one.name, other.name, [])
    table.loc[table["metric"].eq("latency_mean_seconds").idxmax(), "reason"] = "no value in before: killed"
    assert "; 2 could not be tested.\n" in compare_markdown(table, one.name, other.name, []), "not one of two reasons"


def test_the_text_names_the_nodes_and_the_best_strategy(tmp_path):
    """Both nodes are called node-0 in their own results."""
    cluster = {"node": "kubernetes", "replicas": [1, 2]}
    folders = [tmp_path / name / "results" for name in ("a100", "h200")]
    one = write(folders[0], device="A", **cluster)
    # Alone it is slower, and shared it is faster.
    slow, fast = [2 * mean for mean in ALONE], [mean / 4 for mean in SHARED]
    other = write(folders[1], device="B", alone=slow, shared=fast, **cluster)
    one, other = map(read_data, (one, other), short_names(map(str, folders)))
    table = compare(one, other)
    text = compare_markdown(table, one.name, other.name, changed_facts(one, other))
    found = re.findall(r"- matmul × (\d): (\S+) in (\S+), ([\d.]+) ms", text)
    shortest = f"{1e3 * stats.gmean(fast):.3g}"
    assert found == [("1", "mps", "h200", shortest), ("2", "mps", "h200", shortest)]
    assert "- device: GPU A (simulated) → GPU B (simulated)" in text


def test_a_queue_is_not_the_best_strategy(tmp_path):
    one, other = (read_data(write(tmp_path / name, **JOBS)) for name in ("before", "after"))
    table = compare(one, other)
    assert "- batch-matmul × 2: mps in before, 8.26 ms\n" in compare_markdown(table, "before", "after", [])
    queue = table[table["strategy"] == "sequential"]
    assert "as measured:\n\n- nothing\n" in compare_markdown(queue, "before", "after", [])


def test_a_comparison_is_named_after_both(tmp_path):
    assert combined_name([f"{tmp_path}/before/", f"{tmp_path}/after"]) == "before-after"
    assert combined_name(["a/results/kubernetes", "b/results/kubernetes"]) == "a-b"
