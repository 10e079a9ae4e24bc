"""TTFT, ITL, TPOT, tokens and goodput of planted requests, in cells and summary, and the reasons for blanks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from unit.factories import Load, back_to_back, record, scraped, streamed, tenant
from unit.studies import W, config_with, study_with

from sharebench.model.config.load import load as load_config
from sharebench.model.records import record as records
from sharebench.model.study_config import to_json
from sharebench.read import slo
from sharebench.read.cells.rows import reduce_record
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.columns import SLO, STREAMS, STUDY_KINDS, columns
from sharebench.read.compare import METRICS, changed_facts, compare, read_data
from sharebench.read.statistics.intervals import log_interval
from sharebench.read.tables.cells import cells_table
from sharebench.read.tables.contrasts import contrasts_table
from sharebench.read.tables.summary import summary_table
from sharebench.read.text import compare_markdown
from sharebench.study.cells import Cell
from sharebench.study.study import Study

WINDOW_SECONDS = 20.0
GAPS = 4


def stream(
    index: int = 0, count: int = 400, ttft: float = 0.1, gap: float = 0.02, slow: int = 0, **more: Any
) -> dict[str, Any]:
    """A tenant with that many requests over the window, of which the first `slow` have ten times the first token."""
    starts = np.linspace(0, WINDOW_SECONDS, count, endpoint=False)
    first = np.where(np.arange(count) < slow, 10 * ttft, ttft)
    gaps = [[gap] * GAPS] * count
    return streamed(tenant(index, Load(starts, first + GAPS * gap), WINDOW_SECONDS), starts, first, gaps, **more)


def streams_record(*tenants: dict[str, Any], repeat: int = 1, strategy: str = "mps") -> dict[str, Any]:
    return record(strategy, tenants=list(tenants), window_seconds=WINDOW_SECONDS, repeat=repeat)


def summarised(records: Sequence[dict[str, Any]], limits: Mapping[str, float] | None = None) -> pd.Series[Any]:
    cells = [reduce_record(each, limits=lambda _: limits or {}) for each in records]
    expected = [(Cell("mps", "matmul", cells[0].replicas, k + 1), "matmul") for k in range(len(records))]
    return summary_table(cells, expected, Baseline(cells, None), STUDY_KINDS).iloc[0]


def within_a_bucket(seconds: float) -> Any:
    return pytest.approx(seconds, rel=0.011)


def test_the_summary_has_planted_values_with_intervals() -> None:
    planted = (0.100, 0.110, 0.121)
    row = summarised(
        [streams_record(stream(0, ttft=ttft), stream(1, ttft=ttft), repeat=k) for k, ttft in enumerate(planted, 1)]
    )
    assert row["ttft_p50_seconds"] == within_a_bucket(0.110)
    assert row["ttft_p99_seconds"] == within_a_bucket(0.110)
    exact = log_interval(planted)
    # Widened by the buckets, which the summary names.
    assert row["ttft_p50_seconds_low"] == pytest.approx(exact.low, rel=0.02)
    assert row["ttft_p50_seconds_low"] < row["ttft_p50_seconds"] < row["ttft_p50_seconds_high"]
    assert row["ttft_p50_seconds_n"] == 3 and 0 < row["ttft_p50_seconds_bucket_error_percent"] < 1.1
    assert row["itl_p50_seconds"] == within_a_bucket(0.02) and row["tpot_p99_seconds"] == within_a_bucket(0.02)
    assert row["output_tokens_total_hz"] == pytest.approx(2 * 400 * (1 + GAPS) / WINDOW_SECONDS)
    assert pd.isna(row["goodput_total_hz"]) and pd.isna(row["cost_per_million_tokens"])


def test_cells_have_the_values_of_each_tenant() -> None:
    cells = [
        reduce_record(
            streams_record(stream(0, ttft=0.1, slow=100), stream(1, ttft=0.2)), limits=lambda _: {"ttft": 0.5}
        )
    ]
    table = cells_table(cells, Baseline(cells, None), {STREAMS, SLO})
    assert table["ttft_p50_seconds"].tolist() == [within_a_bucket(0.1), within_a_bucket(0.2)]
    assert table["itl_p50_seconds"].tolist() == table["tpot_p50_seconds"].tolist() == [within_a_bucket(0.02)] * 2
    assert table["output_tokens_hz"].tolist() == [pytest.approx(100.0)] * 2
    assert table["goodput_hz"].tolist() == [pytest.approx(300 / WINDOW_SECONDS), pytest.approx(400 / WINDOW_SECONDS)]
    more = set(columns("cells", {STREAMS, SLO})) - set(columns("cells"))
    assert set(table) - set(cells_table(cells, Baseline(cells, None))) == more


REQUESTS = streamed(
    tenant(0, back_to_back([])),
    starts=[0.0, 0.1, 0.2, 0.3],
    ttft=[0.1, 0.3, 0.1, 0.1],
    # The third has one long gap, the last a single token.
    gaps=[[0.02] * 4, [0.02] * 4, [0.01, 0.01, 0.01, 0.09], []],
)


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft": 0.2}, 3),
        ({"itl": 0.05}, 3),
        ({"tpot": 0.02 + 1e-9}, 3),
        ({"latency": 0.19}, 2),
        ({"ttft": 0.2, "itl": 0.05}, 2),
        ({"ttft": 0.2, "itl": 0.05, "latency": 0.15}, 1),
        ({"ttft": 0.05}, 0),
    ],
    ids=str,
)
def test_a_request_is_good_if_it_meets_every_part(limits: Mapping[str, float], good: int) -> None:
    """A gap counts by the longest of the request; one token has neither gap nor time per further token."""
    assert slo.good_count(REQUESTS, limits) == good  # type: ignore[arg-type]


def test_without_requests_the_latency_alone_counts_by_its_histogram() -> None:
    loop = tenant(0, back_to_back([0.005] * 300 + [0.05] * 100))
    assert slo.good_count(loop, {"latency": 0.02, "ttft": 0.001}) == 300  # type: ignore[arg-type]
    assert slo.good_count(loop, {"ttft": 0.2}) is None, "it has no first token"  # type: ignore[arg-type]
    assert slo.good_count(tenant(0, back_to_back([])), {"latency": 1.0}) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("slo_seconds", "good"), [(0.007, 46), (0.005, 10), (0.0025, 5), (0.02, 100)])
def test_good_requests_are_interpolated_within_a_programs_bucket(slo_seconds: float, good: float) -> None:
    foreign = scraped(tenant(0, back_to_back([0.005] * 120)), [0.005, 0.01, None], [10, 90, 20])
    assert slo.good_count(foreign, {"latency": slo_seconds}) == pytest.approx(good)  # type: ignore[arg-type]


def test_goodput_of_all_tenants_with_its_interval() -> None:
    slow = (100, 120, 80)
    records = [streams_record(stream(0, slow=each), stream(1), repeat=k) for k, each in enumerate(slow, 1)]
    row = summarised(records, {"ttft": 0.5, "tpot": 0.05})
    exact = log_interval([(800 - each) / WINDOW_SECONDS for each in slow])
    assert row["goodput_total_hz"] == pytest.approx(exact.value)
    assert row["goodput_total_hz_low"] == pytest.approx(exact.low) and row["goodput_total_hz_n"] == 3


def test_without_good_requests_goodput_is_0_without_interval() -> None:
    row = summarised([streams_record(stream(), repeat=k) for k in (1, 2)], {"ttft": 0.05})
    assert row["goodput_total_hz"] == 0 and pd.isna(row["goodput_total_hz_low"])
    assert "goodput" not in row["notes"], "the 0 says it"


def test_a_0_among_other_goodputs_is_why_it_has_no_interval() -> None:
    row = summarised([streams_record(stream(slow=each), repeat=k) for k, each in enumerate((400, 0), 1)], {"ttft": 0.5})
    assert row["goodput_total_hz"] == 10 and pd.isna(row["goodput_total_hz_low"])
    assert "goodput total has no interval with a 0 among its values" in row["notes"]


def test_too_few_requests_have_no_p99() -> None:
    row = summarised([streams_record(stream(count=200), repeat=k) for k in (1, 2)])
    assert row["ttft_p50_seconds"] == within_a_bucket(0.1) and pd.isna(row["ttft_p99_seconds"])
    # 800 gaps, but of 200 requests.
    assert pd.isna(row["itl_p99_seconds"]) and pd.isna(row["tpot_p99_seconds"])
    for part in ("TTFT", "ITL", "TPOT"):
        note = f"{part} p99 needs 299 independent requests, the effective sample size of 200 is 200 (windows of about "
        assert note in row["notes"]


def test_tokens_that_come_together_have_no_time_between_them() -> None:
    notes = summarised([streams_record(stream(gap=0.0))])["notes"]
    assert "ITL p50 is outside the buckets (1 µs to 1000 s)" in notes and "ITL p50 needs" not in notes


def test_requests_that_wait_together_reduce_the_effective_sample_size() -> None:
    """A stall of a fifth of the window is one event, however many requests wait in it."""
    cell = reduce_record(streams_record(stream(slow=80)))
    assert cell.stages["ttft"].count == 400 and cell.stages["ttft"].effective_count < 100
    assert "ttft_p99" not in cell.percentiles and "tpot_p99" in cell.percentiles


def test_notes_name_the_token_source_and_the_applicable_slo() -> None:
    assert "output tokens are counted as events" in summarised([streams_record(stream(source="chunks"))])["notes"]
    loop = streams_record(tenant(0, back_to_back([0.005] * 400), WINDOW_SECONDS))
    row = summarised([loop], {"latency": 0.01, "ttft": 0.1})
    assert "only the latency of the SLO applies to what does not stream" in row["notes"]
    assert row["goodput_total_hz"] == pytest.approx(400 / WINDOW_SECONDS)
    assert "no part of the SLO applies" in summarised([loop], {"ttft": 0.1})["notes"]
    assert not any(word in row["notes"] for word in ("TTFT", "token"))


MPS, SLICED = (0.100, 0.108, 0.103), (0.150, 0.166, 0.151)


def test_strategies_are_compared_in_each_metric_and_tested_within_it() -> None:
    made = [
        streams_record(stream(0, ttft=ttft), stream(1, ttft=ttft), repeat=k, strategy=strategy)
        for strategy, planted in (("mps", MPS), ("time-slicing", SLICED))
        for k, ttft in enumerate(planted, 1)
    ]
    cells = [reduce_record(each, limits=lambda _: {"ttft": 0.2}) for each in made]
    planned = study_with(
        {"node": "simulated", "strategies": ["mps", "time-slicing"], "replicas": [2], "workloads": ["matmul"]}
    )
    table = contrasts_table(cells, planned, Baseline(cells, None), STUDY_KINDS).set_index("metric")
    of_cells = [cell.percentiles["ttft_p50"].value_seconds for cell in cells]
    ratios = np.divide(of_cells[3:], of_cells[:3])
    assert table.loc["ttft_p50_seconds", "ratio"] == pytest.approx(stats.gmean(ratios))
    assert table.loc["ttft_p50_seconds", "p"] == pytest.approx(stats.ttest_1samp(np.log(ratios), 0).pvalue)
    assert table.loc["ttft_p50_seconds", "p_holm"] == table.loc["ttft_p50_seconds", "p"], "one of each metric"
    assert bool(table.loc["ttft_p50_seconds", "paired"]) and table.loc["goodput_total_hz", "ratio"] == 1
    plain = contrasts_table(cells, planned, Baseline(cells, None))
    assert "metric" not in plain and plain["ratio"].tolist() == [table.loc["latency_mean_seconds", "ratio"]]


CHAT = {"kind": "http", "url": "http://127.0.0.1:9", "stream": True, "request": {"path": "/"}}


def data_set(
    folder: Path, planted: Sequence[float], slo: Mapping[str, float], workloads: Sequence[str] = ("chat",), **more: Any
) -> Path:
    """Two tenants of each under MPS: `chat` streams and takes this time to the first token in each repeat."""
    keys = {"strategies": ["mps"], "replicas": [2], "workloads": list(workloads), f"{W}.chat": CHAT}
    keys |= {"window_seconds": WINDOW_SECONDS, "null_cells": False}
    made = Study(load_config(config_with(keys | {"repeats": len(planted), "baseline": "none", "slo": slo})))
    for cell in made.cells:
        tenants = [stream(index, ttft=planted[cell.repeat - 1], **more) | {"workload": "chat"} for index in range(2)]
        if cell.workload != "chat":
            tenants = [tenant(index, back_to_back([0.05] * 400), WINDOW_SECONDS, cell.workload) for index in range(2)]
        one = streams_record(*tenants, repeat=cell.repeat)
        one["cell"]["workload"], one["node"]["kind"] = cell.workload, made.config["node"]
        records.write((folder / cell.raw), one | {"spec": made.spec(cell).text})  # type: ignore[arg-type]
    calibrations = [f"calibration/{name}.json" for name in workloads]
    for file in ("nodes/device.json", *calibrations, *(f"cells/mps/{name}/histograms.csv" for name in workloads)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("{}")
    (folder / "manifest.json").write_text(json.dumps({"config": to_json(made.config), "node_kind": "cpu"}))
    return folder


def test_two_data_sets_are_compared_in_stream_metrics(tmp_path: Path) -> None:
    slo = {"ttft_ms": 500.0, "tpot_ms": 50.0}
    before, after = (read_data(data_set(tmp_path / name, own, slo)) for name, own in (("one", MPS), ("two", SLICED)))
    table = compare(before, after).set_index("metric")
    assert set(table.index) > {*METRICS, "ttft_p99_seconds", "tpot_p50_seconds", "output_tokens_total_hz"}
    row = table.loc["ttft_p50_seconds"]
    assert row["ratio"] == pytest.approx(stats.gmean(SLICED) / stats.gmean(MPS), rel=0.01)
    assert row["ratio_low"] > 1 and row["p_holm"] == row["p"] < 0.01
    said = compare_markdown(compare(before, after), "one", "two", [])
    assert "`ttft_p50_seconds`: beyond the same 1 of 1 above 1, and 0 below." in said
    assert table.loc["tpot_p50_seconds", "ratio"] == table.loc["goodput_total_hz", "ratio"] == 1
    other = read_data(data_set(tmp_path / "three", SLICED, {"ttft_ms": 400.0}))
    assert "goodput_total_hz" not in set(compare(before, other)["metric"]), "by another SLO it is something else"
    assert ("SLO", "TTFT 500 ms, TPOT 50 ms", "TTFT 400 ms") in changed_facts(before, other)


def test_only_workloads_that_stream_are_compared_in_stream_metrics(tmp_path: Path) -> None:
    folders = (data_set(tmp_path / name, MPS, {}, ("chat", "matmul"), count=100) for name in ("one", "two"))
    table = compare(*map(read_data, folders)).set_index(["workload", "metric"])
    assert set(table.loc["matmul"].index) == set(METRICS)
    assert table.loc[("chat", "ttft_p50_seconds"), "ratio"] == 1
    assert table.loc[("chat", "ttft_p99_seconds"), "reason"].startswith("no value in one: too few iterations; ")


@pytest.mark.parametrize(
    ("slo", "is_there"), [({"ttft_ms": 500.0}, False), ({"ttft_ms": 500.0, "latency_ms": 200.0}, True)]
)
def test_goodput_is_compared_where_a_part_of_the_slo_applies(
    tmp_path: Path, slo: Mapping[str, float], is_there: bool
) -> None:
    folders = (data_set(tmp_path / name, MPS, slo, ("chat", "matmul")) for name in ("one", "two"))
    goodput = compare(*map(read_data, folders)).set_index(["metric", "workload"]).loc["goodput_total_hz", "ratio"]
    assert goodput.to_dict() == {"chat": 1, **({"matmul": 1} if is_there else {})}


def test_goodput_of_0_has_no_ratio_and_says_so(tmp_path: Path) -> None:
    folders = (data_set(tmp_path / name, MPS, {"ttft_ms": 1.0}) for name in ("one", "two"))
    row = compare(*map(read_data, folders)).set_index("metric").loc["goodput_total_hz"]
    assert row["reason"] == "no value in one: 0 or not known; no value in two: 0 or not known"
