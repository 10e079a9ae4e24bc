"""A sweep of servers that stream, from records to tables, advice and report, by an SLO of two parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from unit import factories, measured
from unit.studies import QUESTION, W, study_with

from sharebench.core.files import read_json, write_json
from sharebench.model.strategies import is_control
from sharebench.model.study_config import from_json
from sharebench.read import aggregate
from sharebench.read.decide import decide
from sharebench.read.figures import replicas
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.report import page

WINDOW_SECONDS, CONTROL = 10, 0.81
SLO = {"latency_ms": None, "ttft_ms": 500.0, "itl_ms": None, "tpot_ms": 50.0}
# Seconds of the first token and of each of four others, and requests in the window of one tenant alone, by level.
LEVELS = {"chat-concurrency-1": (0.10, 0.010, 300), "chat-concurrency-8": (0.24, 0.011, 900)}
LEVELS["chat-concurrency_total-8"] = LEVELS["chat-concurrency-8"]


def streaming(record: dict[str, Any]) -> dict[str, Any]:
    """The record with tenants that stream: under time-slicing in proportion to their number slower, under MPS less."""
    workload, n = record["cell"]["workload"], record["cell"]["replicas"]
    if workload not in LEVELS or not record["tenants"]:
        return record
    slower = n if record["cell"]["strategy"] == "time-slicing" else 1 + 0.5 * (n - 1)
    slower *= 1 + 0.002 * record["cell"]["repeat"]
    if is_control(record["cell"]["strategy"]):
        slower *= CONTROL
    ttft, gap, count = LEVELS[workload]
    starts = np.linspace(0, WINDOW_SECONDS, int(count / slower), endpoint=False)
    first, gaps = np.full(starts.size, ttft * slower), [[gap * slower] * 4] * starts.size
    for index, tenant in enumerate(record["tenants"]):
        load = factories.Load(starts, first + 4 * gap * slower)
        made = factories.tenant(index, load, WINDOW_SECONDS, workload)
        record["tenants"][index] = factories.streamed(tenant | made, starts, first, gaps)
    return record


def decided(root: Path, load: dict[str, Any], question: dict[str, Any], null_cells: bool = False) -> Path:
    """The results of a study of a server under this load, as of a GPU, with the answer to the question."""
    entry = {"kind": "http", "url": "http://127.0.0.1:9", "stream": True, "request": {"path": "/"}}
    study = study_with(
        {
            **{"strategies": ["exclusive", "time-slicing", "mps"], "replicas": [1, 2, 4], "workloads": ["chat"]},
            **{"window_seconds": WINDOW_SECONDS, "slo": SLO, "price_per_hour": 3.6, "null_cells": null_cells},
            f"{W}.chat": entry | {"load": load},
        }
    )
    run = measured.write_data_set(root, study, streaming)
    study.config["from"] = [str(root)]
    folder = root / "results"
    aggregate.write_tables(study, root, folder, dict(run))  # type: ignore[arg-type]
    write_json(root / "manifest.json", read_json(folder / "manifest.json"))
    found = replace(decide.read_results(root, folder), is_gpu=True)
    decide.write_answer(found, QUESTION | {"slo": SLO, "price_per_hour": 3.6} | question)  # type: ignore[arg-type]
    page.write_report(root, folder)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decided(tmp_path_factory.mktemp("chat"), {"concurrency": [1, 8]}, {"tenants": 2})


def rows(results: Path, table: str) -> pd.DataFrame:
    return pd.read_csv(results / f"tables/{table}.csv").set_index(["strategy", "workload"])


def test_capacity_needs_both_parts_and_the_sweep_has_a_best_level(results: Path) -> None:
    table = rows(results, "capacity")
    mps = table.loc["mps"]
    # TPOT of four is 25 and 27.5 ms; TTFT is 250 ms, and 600 ms at the higher level.
    assert mps["capacity_tenants"].to_dict() == {"chat-concurrency-1": 4, "chat-concurrency-8": 2}
    assert mps["percentile"].to_dict() == {
        "chat-concurrency-1": "TTFT p99, TPOT p99",
        "chat-concurrency-8": "TTFT p99, TPOT p99",
    }
    sliced = table.loc["time-slicing", "chat-concurrency-1"]
    assert pd.isna(sliced["capacity_tenants"]), "too few requests for a p99"
    assert sliced["reason"] == "1 tenant: only the TTFT p50 and the TPOT p50 are known"
    assert mps["best_of_sweep"].to_dict() == {"chat-concurrency-1": False, "chat-concurrency-8": True}
    best = mps.loc["chat-concurrency-8"]
    assert best["capacity_tokens_hz"] == pytest.approx(5 * best["capacity_hz"], rel=0.01)


def test_cost_counts_requests_and_tokens(results: Path) -> None:
    table = rows(results, "cost").set_index("replicas", append=True)
    four, two = (table.loc["time-slicing", "chat-concurrency-8", n] for n in (4, 2))
    assert (four["within_slo_ratio"], two["within_slo_ratio"]) == (0, 1) and four["goodput_hz"] == 0
    assert two["goodput_hz"] == pytest.approx(two["throughput_total_hz"], rel=0.01)
    assert two["dollars_per_million_tokens"] == pytest.approx(1000 / two["output_tokens_total_hz"], rel=1e-6)
    summary = rows(results, "summary").set_index("replicas", append=True)
    of_summary = summary.loc["time-slicing", "chat-concurrency-8", 2]
    assert of_summary["goodput_total_hz"] == pytest.approx(two["goodput_hz"])
    assert of_summary["cost_per_million_tokens"] == pytest.approx(two["dollars_per_million_tokens"])


def test_the_advice_names_the_slo_and_the_capacity(results: Path) -> None:
    said = (results / "tables/advice.md").read_text()
    assert "Advice for 2 tenants, SLO TTFT 500 ms, TPOT 50 ms, $3.6 per GPU and hour" in said
    assert "chat-concurrency-8: take mps on 1 GPU instead of 2: a month $2,592" in said
    assert "TTFT p99 36" in said and "tokens per GPU " in said
    assert "Tenants of one device within the SLO: mps 2 (" in said
    assert "Of the sweep this level serves most within it under " in said


def test_contrasts_and_the_report_have_each_metric(results: Path) -> None:
    table = rows(results, "contrasts")
    assert {"ttft_p50_seconds", "tpot_p50_seconds", "output_tokens_total_hz"} < set(table["metric"])
    report = (results / "report.html").read_text()
    assert "TTFT p50 under a strategy over that under another" in report
    assert "serves most of its sweep" in report and "Million tokens" in report
    assert "TTFT p50" in (results / "tables/summary.md").read_text()


def test_replicas_that_carry_one_load_are_compared_by_all_that_they_do_on_one_gpu(tmp_path: Path) -> None:
    folder = decided(tmp_path, {"concurrency_total": [8]}, {})
    said = (folder / "tables/advice.md").read_text()
    # Four have 1.6 times the requests of one, but a TTFT of 600 ms.
    assert "chat-concurrency_total-8: take 2 replicas: mps on 1 GPU: a month $2,592" in said
    assert "any number up to 4 was compared, on one GPU" in said and "a GPU each" not in said
    assert "Throughput over one tenant alone: time-slicing × 1.00 with 2 tenants" in said
    table = pd.read_csv(folder / "tables/advice.csv").set_index("strategy")
    assert table["devices"].to_dict() == dict.fromkeys(["exclusive", "time-slicing", "mps"], 1)
    assert table["tenants_per_device"].to_dict() == {"exclusive": 1, "time-slicing": 2, "mps": 2}


def test_the_advice_and_the_figure_compare_replicas_with_the_mean_of_the_baseline_and_its_control(
    tmp_path: Path,
) -> None:
    folder = decided(tmp_path, {"concurrency_total": [8]}, {}, null_cells=True)
    drawn = DrawnStudy(tmp_path, folder, from_json(read_json(folder / "manifest.json")["config"]), {}, "")  # type: ignore[typeddict-item]
    drawn_gains = replicas._gains(drawn).set_index(["strategy", "workload", "replicas"])["gain"].to_dict()
    told = decide.read_results(tmp_path, folder).over_one
    assert {key: told[key].value for key in drawn_gains} == drawn_gains
    assert told["time-slicing", "chat-concurrency_total-8", 2].value == pytest.approx(CONTROL**0.5, rel=0.01)
    said = "Throughput over one tenant alone: time-slicing × 0.900 with 2 tenants"
    assert said in (folder / "tables/advice.md").read_text()


def test_replicas_that_stream_are_compared_by_their_tokens(tmp_path: Path) -> None:
    folder = decided(tmp_path, {"concurrency_total": [8]}, {"slo": SLO | {"ttft_ms": None, "tpot_ms": None}})
    assert "tokens per GPU 716/s (× 1.60 of one alone)" in (folder / "tables/advice.md").read_text()
    # As many requests as before, with answers of half the length under MPS.
    totals = [f"output_tokens_total_hz{end}" for end in ("", "_low", "_high")]
    for name, columns in (("cells", ["output_tokens_hz"]), ("summary", totals)):
        table = pd.read_csv(folder / f"tables/{name}.csv").copy()
        table.loc[table["strategy"] == "mps", columns] /= 2
        table.to_csv(folder / f"tables/{name}.csv", index=False)
    decide.write_answer(replace(decide.read_results(tmp_path, folder), is_gpu=True), QUESTION)  # type: ignore[arg-type]
    said = (folder / "tables/advice.md").read_text()
    assert "more replicas bring nothing; take 1 replica: exclusive" in said and "mps × 0.799 with 4 tenants" in said


def test_the_activity_of_one_server_stands_beside_what_sharing_gains(tmp_path: Path) -> None:
    folder = decided(tmp_path, {"concurrency_total": [8]}, {})
    summary = pd.read_csv(folder / "tables/summary.csv").copy().assign(sm_active_percent=58.0, dram_active_percent=44.0)
    summary.to_csv(folder / "tables/summary.csv", index=False)
    known = replace(decide.read_results(tmp_path, folder), is_gpu=True)
    decide.write_answer(known, QUESTION)  # type: ignore[arg-type]
    said = (folder / "tables/advice.md").read_text()
    active = "One alone kept the SMs active for 58.0 % of the time, and the memory's interface for 44.0 %"
    # An SM with one warp is active, and may yet have room, so not only idle ones can be gained.
    assert f"{active}; what it leaves idle can be gained." in said


def test_the_report_has_the_rate_at_which_the_slo_is_reached(tmp_path: Path) -> None:
    folder = decided(tmp_path, {"concurrency": [1, 8]}, {"slo": SLO | {"ttft_ms": 200}})
    mps = rows(folder, "capacity").loc["mps"]
    light, heavy = (mps.loc[f"chat-concurrency-{n}"] for n in (1, 8))
    assert light["capacity_tenants"] == 2 and light["rate_within_slo_hz"] > light["capacity_hz"]
    assert pd.isna(heavy["rate_within_slo_hz"])
    report = (folder / "report.html").read_text()
    assert f"SLO reached at {light['rate_within_slo_hz']:.3g}" in report and "SLO reached at  requests" not in report


def test_what_has_no_valid_cell_is_not_said_not_to_stream(tmp_path: Path) -> None:
    folder = decided(tmp_path, {"concurrency_total": [8]}, {})
    summary = pd.read_csv(folder / "tables/summary.csv").copy()
    keys = ["strategy", "workload", "tenant_workload", "replicas", "status"]
    summary[keys].assign(n=0, reason="excluded").to_csv(folder / "tables/summary.csv", index=False)
    decide.write_answer(decide.read_results(tmp_path, folder), QUESTION | {"slo": SLO})  # type: ignore[arg-type]
    said = (folder / "tables/advice.md").read_text()
    assert "no strategy that was measured serves" in said and "does not stream" not in said
