"""Which strategy for which workload, and the rankings: against published ranks and numbers computed by hand."""

import math
from typing import Any

import pandas as pd
import pytest
from unit.analysis.test_model import LOAD, fitted, study
from unit.analysis.test_scaling import BY_NAME, nos

from sharebench.analysis.decide import rankings
from sharebench.analysis.decide.documented import Evidence
from sharebench.analysis.decide.rows import SummaryRow, summary_rows

PERCENTILES = ("p99", "p95", "p50", "mean")


def summary(rows: list[tuple[str, int, float]], workload: str = "yolos", **more: Any) -> list[SummaryRow]:
    """Rows of (strategy, replicas, seconds); slowdowns are relative to the exclusive one."""
    alone = next(seconds for name, n, seconds in rows if name == "exclusive")
    found = []
    for name, n, seconds in rows:
        row: dict[str, Any] = {
            "strategy": name,
            "workload": workload,
            "replicas": n,
            "n": 1,
            "status": "ok",
            "reason": "",
        }
        for each in PERCENTILES:
            metric = f"latency_{each}_seconds"
            row |= {metric: seconds, f"{metric}_low": math.nan, f"{metric}_high": math.nan}
        row |= {"slowdown": seconds / alone, "slowdown_low": math.nan, "slowdown_high": math.nan}
        found.append(row | more)
    return summary_rows(pd.DataFrame(found))


def nos_summary() -> list[SummaryRow]:
    return summary([("exclusive", 1, 0.08806), *((point.strategy, point.replicas, point.seconds) for point in nos())])


def test_the_nos_table_gives_the_ranks_of_the_literature() -> None:
    table = rankings.rankings_table(nos_summary(), BY_NAME, {})
    ranks = {
        criterion: list(rows.dropna(subset="rank").sort_values("rank")["family"])
        for criterion, rows in table.groupby("criterion")
    }
    assert ranks["performance isolation"] == ["MIG", "MPS", "time-slicing"]
    assert ranks["resource efficiency"] == ["MPS", "MIG", "time-slicing"]
    assert ranks["fault isolation"][:2] == ["MIG", "time-slicing"]
    assert ranks["ease"][0] == "time-slicing" and ranks["ease"][-1] == "MIG"
    basis = table.groupby("criterion")["basis"].agg(set)
    assert basis["performance isolation"] == basis["resource efficiency"] == {"measured", "unknown"}
    assert basis["fault isolation"] == basis["ease"] == basis["partitioning flexibility"] == {"documented"}
    unknown = table[table["basis"] == "unknown"]
    assert set(unknown["family"]) == {"MPS with limits"} and unknown["rank"].isna().all()
    # Published as derived values: work at seven tenants 0.90, 1.93, 1.79 of one exclusive tenant.
    work = table[table["criterion"] == "resource efficiency"].set_index("family")["value"]
    assert [work[name] for name in ("time-slicing", "MPS", "MIG")] == pytest.approx([0.90, 1.93, 1.79], abs=0.01)


def test_measured_faults_replace_the_documented_order() -> None:
    isolation = pd.DataFrame(
        [
            {"strategy": "mps", "fault": "oom", "n": 3, "failed": 0},
            {"strategy": "mps", "fault": "illegal-address", "n": 3, "failed": 2},
            {"strategy": "time-slicing", "fault": "assert", "n": 3, "failed": 0},
            {"strategy": "streams", "fault": "killed", "n": 3, "failed": 0},
            {"strategy": "mig", "fault": "oom", "n": 0, "failed": 0},
        ]
    )
    faults = rankings.measured_faults(isolation)
    assert {name: each.holds for name, each in faults.items()} == {"mps": False, "time-slicing": True}
    assert faults["mps"].text == "neighbours failed after illegal-address"
    table = rankings.rankings_table(nos_summary(), BY_NAME, faults)
    rows = table[table["criterion"] == "fault isolation"].set_index("family")
    assert rows["rank"].dropna().to_dict() == {"time-slicing": 1, "MPS": 2}
    assert rows.loc["MIG", "basis"] == "unknown"
    assert rankings.measured_faults(None) == {}


def which(table: list[SummaryRow], wanted: str | None) -> pd.DataFrame:
    found = rankings.which_table(table, {"yolos": (wanted, "by the test")}, [], BY_NAME)
    return found[found["workload"] == "yolos"].set_index("family")


def test_batch_is_judged_by_the_work_that_gets_done() -> None:
    found = which(nos_summary(), rankings.SMALL)
    assert found["verdict"].to_dict() == {
        "time-slicing": "does not suit",
        "MPS": "suits",
        "MPS with limits": "unknown",
        "MIG": "suits",
    }
    assert found.loc["MPS", "value"] == pytest.approx(7 / 3.63, rel=0.01)
    assert (found.loc["MPS", "replicas"], found.loc["MPS", "basis"], found.loc["MPS", "strategy"]) == (
        7,
        "measured",
        "mps",
    )
    assert found.loc["MPS with limits", "reason"] == "not measured, and not predicted"


def test_inference_is_judged_by_its_latency() -> None:
    table = summary([("exclusive", 1, 0.1), ("mps", 3, 0.14), ("time-slicing", 3, 0.29), ("mig", 3, 0.35)])
    found = which(table, rankings.HEAVY)
    verdict = ["does not suit", "suits", "unknown", "may do"]
    assert dict(sorted(found["verdict"].items())) == dict(zip(sorted(rankings.FAMILIES), verdict, strict=True))
    assert found.loc["MPS", "metric"] == "p99 over alone" and found.loc["MPS", "value"] == pytest.approx(1.4)


def test_the_comparison_is_at_the_largest_number_that_most_have() -> None:
    rows = [("exclusive", 1, 0.1), *(("mps", n, 0.1 * n) for n in (2, 4, 8)), *(("mig", n, 0.2) for n in (2, 4))]
    assert rankings.compared_at(summary(rows)) == 4
    assert rankings.compared_at(summary([("exclusive", 1, 0.1)])) is None
    assert which(summary([("exclusive", 1, 0.1)]), None)["reason"].iloc[0] == "no valid cell with two tenants"


def test_classes_without_a_workload_are_in_the_table_as_unknown() -> None:
    found = rankings.which_table(nos_summary(), {"yolos": (rankings.SMALL, "")}, [], BY_NAME)
    assert list(dict.fromkeys(found["workload_class"])) == list(rankings.CLASSES)
    others = found[found["workload"].isna()]
    assert len(others) == 12 and set(others["verdict"]) == {"unknown"}


def class_of(declared: str = "auto", **entry: Any) -> str | None:
    model = fitted(study(0.0, 1), **entry)
    catalogue = {"workload_catalogue": {"yolos": {"load": LOAD} | entry}}
    return rankings.class_of("yolos", declared, catalogue, model)[0]


def test_classes_follow_from_load_and_model() -> None:
    # Of 0.088 s alone, 4.1 / 108 s get shorter with more SMs: 43 %.
    assert class_of() == rankings.SMALL
    assert class_of("gpu-intensive") == rankings.INTENSIVE
    for part, expected in ((0.2, rankings.LIGHT), (0.5, rankings.HEAVY), (0.8, rankings.HEAVY), (None, None)):
        assert class_of(load={"arrival": "poisson", "rate_hz": 5, "rate_of_capacity": part}) == expected


def test_all_evidence_says_where_it_is_from() -> None:
    for strategy in BY_NAME.values():
        for evidence in (
            rankings.documented.performance_isolation(strategy),
            rankings.documented.fault_isolation(strategy),
        ):
            assert isinstance(evidence, Evidence) and evidence.text
            assert (evidence.basis == "unknown") == (evidence.holds is None)
