"""The results that the design of edition two asks for, on planted data, and its outcomes as the design lists them."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats
from unit.edited import edited_table
from unit.papers import data_set, publish

from publication import edition, tables
from publication.edition import OutcomeEntry, decide_outcomes, read_outcomes
from publication.numbers import DataSet, MissingNumber
from sharebench.read.statistics.intervals import log_interval

ROOT = Path(__file__).parents[3]
REPEATS = 5
SCATTER = 0.01
SAME = [("yolos-graph", 7), ("resnet50-graph", 7), ("matmul-16384", 3)]
"""Points of the outcomes that compare products."""


def planted(root: Path, name: str, cells: list[dict[str, Any]], **columns: Any) -> DataSet:
    """A study with these cells of one tenant in each repeat, on one device per repeat, with scattered latencies."""
    publish(root, name)
    random = np.random.default_rng(3)
    rows = []
    for repeat in range(1, REPEATS + 1):
        where = {"repeat": repeat, "block": repeat, "run_id": "20261123-1", "device": f"d{repeat}", "tenant": 0}
        for cell in cells:
            own = {"tenant_workload": cell["workload"], "valid": True, "status": "ok", "reason": "", "count": 100}
            seconds = cell["latency_mean_seconds"] * np.exp(random.normal(0, SCATTER))
            rows.append({**where, **own, **cell, **columns, "latency_mean_seconds": seconds})
    table = pd.DataFrame(rows)
    table.to_csv(root / "made" / name / "tables/cells.csv", index=False)
    keys = ["strategy", "workload", "tenant_workload", "replicas"]
    table[keys].drop_duplicates().to_csv(root / "made" / name / "tables/summary.csv", index=False)
    return data_set(root, name)


def point(strategy: str, seconds: float, replicas: int = 7, workload: str = "net") -> dict[str, Any]:
    return {"strategy": strategy, "workload": workload, "replicas": replicas, "latency_mean_seconds": seconds}


def claim(number: int, claim: str, **more: Any) -> OutcomeEntry:
    over, under = ({"strategy": name, "workload": "net", "replicas": 7} for name in ("time-slicing", "mps"))
    given = {"outcome": number, "study": "study", "what": "", "over": over, "under": under, "edition_one": ""}
    return OutcomeEntry.model_validate(given | {"claim": claim} | more)


def test_p_is_that_of_students_test_against_the_limit() -> None:
    values = [2.1, 2.3, 2.2, 2.4]
    expected = stats.ttest_1samp(np.log(values), np.log(2.0)).pvalue
    assert edition.limit_probability(log_interval(values), 2.0) == pytest.approx(expected)
    assert edition.limit_probability(log_interval([2.1]), 2.0) is None
    assert [edition.limit_probability(log_interval([each, each]), 2.0) for each in (2.0, 3.0)] == [1, 0]


def test_planted_ratios_decide_claims_together(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("time-slicing", 3.0), point("mps", 1.0)])
    entries = [
        claim(1, "above", limit=2),
        claim(2, "above", limit=3.5),
        claim(3, "not above", limit=3.5),
        claim(4, "not above", limit=2),
        claim(5, "below", limit=4),
        claim(6, "above", limit=2, study="later"),
    ]
    found = decide_outcomes(entries, {"two/study": data}, {})
    verdicts = [each.verdict(is_final=True) for each in found]
    assert verdicts == ["holds", "refuted", "holds", "refuted", "holds", "not measured yet"]
    so_far = [each.verdict(is_final=False) for each in found[:5]]
    assert so_far == [f"{text} so far" for text in verdicts[:5]], "tests show all of these"
    assert found[0].estimate is not None and found[0].estimate.value == pytest.approx(3, rel=0.02)
    # There are six tests, one of them not measured yet, so Holm multiplies the smallest p by six.
    smallest = min(found[:5], key=lambda each: each.p or 1)
    assert smallest.p is not None and smallest.p_holm == pytest.approx(6 * smallest.p)


def test_a_verdict_mentions_an_outcome_that_only_the_correction_hides(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("time-slicing", 1.0), point("mps", 1.0)])
    value = data.estimate(claim(1, "above").over, claim(1, "above").under, "latency_mean_seconds")
    assert value.low is not None
    # The limit is just below the interval, so p is just below 0.05, and twelve such tests show nothing together.
    claims = [claim(number, "above", limit=0.99 * value.low) for number in range(1, 13)]
    found = decide_outcomes(claims, {"two/study": data}, {})
    assert {each.verdict(is_final=True) for each in found} == {"not shown, holds without the correction"}


def test_the_correction_holds_for_what_is_refuted_too(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("time-slicing", 1.0), point("mps", 1.0)])
    value = data.estimate(claim(1, "above").over, claim(1, "above").under, "latency_mean_seconds")
    assert value.high is not None
    # As above, with the limit on the other side.
    claims = [claim(number, "above", limit=1.01 * value.high) for number in range(1, 13)]
    later = claim(2, "within", limit=1, within_percent=5, study="later")
    for some, verdict in ((claims[:1], "refuted"), (claims, "not shown"), ([claims[0], later], "not shown")):
        found = decide_outcomes(some, {"two/study": data}, {})
        assert {each.verdict(is_final=True) for each in found} - {"not measured yet"} == {verdict}


def test_what_no_test_shows_is_not_refuted(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("time-slicing", 3.0), point("mps", 1.0)])
    value = data.estimate(claim(1, "above").over, claim(1, "above").under, "latency_mean_seconds").value
    entries = [claim(number, text, limit=value) for number, text in enumerate(("above", "below", "not above"))]
    found = decide_outcomes(entries, {"two/study": data}, {})
    assert [each.verdict(is_final=True) for each in found] == ["not shown"] * 2 + ["not refuted"]


def test_the_makespan_of_a_queue_is_the_sum_and_else_the_last_completion(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("queue", 1.0), point("mps", 1.0)])
    path = tmp_path / "made/two/study/tables/cells.csv"
    cells = pd.read_csv(path)
    both = pd.concat([cells.assign(completion_seconds=2.0), cells.assign(completion_seconds=3.0, tenant=1)])
    both.to_csv(path, index=False)
    data = data_set(tmp_path, "two/study")
    data.manifest["config"]["strategy_catalogue"] = {
        "queue": {"mechanism": ["sequential"]},
        "mps": {"mechanism": "mps"},
    }
    queue, mps = ({"strategy": name, "workload": "net", "replicas": 7} for name in ("queue", "mps"))
    assert data.ratio(queue, mps, "makespan_seconds").value == pytest.approx(5 / 3)


def test_exclusions_are_counted_by_gate(tmp_path: Path) -> None:
    data = planted(tmp_path, "two/study", [point("mps", 1.0, count) for count in (1, 2, 3)])
    path = tmp_path / "made/two/study/tables/cells.csv"
    cells = pd.read_csv(path, dtype={"reason": object})
    cells.loc[cells["replicas"] == 2, ["valid", "reason"]] = [False, "queue_growth: tenant 1: requests came faster"]
    cells.loc[(cells["replicas"] == 3) & (cells["repeat"] == 1), ["valid", "status"]] = [False, "crashed"]
    cells.to_csv(path, index=False)
    data = data_set(tmp_path, "two/study")
    *_, row = edition.exclusions_table({"two/study": data}, {}, tmp_path).splitlines()
    assert row == "| study | 15 | 9 | `queue_growth` 5 | `crashed` 1 |"


def test_an_edition_is_compared_with_all_studies_of_the_one_before(tmp_path: Path) -> None:
    points = [point("time-slicing", 2.0), point("mps", 1.0)]
    before = planted(tmp_path, "one/study", points)
    again = planted(tmp_path, "one/study-again", points)
    cells = [point("mps", 1.0), point("time-slicing", 2.0)]
    own = {f"{name}/study": planted(tmp_path, f"{name}/study", cells) for name in ("two", "another")}
    for name in ("two", "another"):
        (tmp_path / "published" / name / "visits").mkdir(parents=True)
    every = {**own, "one/study": before, "one/study-again": again}
    for data in every.values():
        with edited_table(tmp_path / "made" / data.name / "tables/cells.csv") as table:
            factor = {"two/study": 1.5, "another/study": 9.0}.get(data.name, 1.0)
            table["slowdown"] = table["latency_mean_seconds"] * np.where(table["strategy"] == "mps", factor, 1.0)
    every = {name: data_set(tmp_path, name) for name in every}
    outcome = claim(1, "within", within_percent=5).model_dump(exclude_unset=True)
    (tmp_path / edition.OUTCOMES_FILE).parent.mkdir(parents=True)
    (tmp_path / edition.OUTCOMES_FILE).write_text(yaml.safe_dump([outcome]))
    *_, row, _, last = edition.editions_table({"two/study": every["two/study"]}, every, tmp_path).splitlines()
    workload, tested, below, _, together, *_ = row.strip("| ").split(" | ")
    assert (workload, tested, below, together) == ("`net`", "2", "1", "1")
    assert re.fullmatch(r".* within 5 %; 1 of 2 are larger: `net` under mps × 7 \(\+49\.\d %, p [0-9.e-]+\)\.", last)
    assert "no cells in common" in edition.editions_table({}, every, tmp_path)


def test_the_table_has_a_row_for_every_outcome(tmp_path: Path) -> None:
    shutil.copytree(ROOT / edition.DESIGN_FOLDER, tmp_path / edition.DESIGN_FOLDER)
    cells = [
        point(strategy, seconds, workload="yolos-graph-32") for strategy, seconds in (("time-slicing", 1.2), ("mps", 1))
    ]
    data = {"two/batch": planted(tmp_path, "two/batch", cells)}
    same = [point(name, 2, count, workload) for name in ("time-slicing", "mps") for workload, count in SAME]
    before = {"h200/inference": planted(tmp_path, "h200/inference", same)}
    text = edition.primary_outcomes_table(data, before, tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("| 6 |"))
    assert " | below 1.50 | " in row and row.endswith("| holds |")
    assert sum("not measured yet" in line for line in text.splitlines()) == len(read_outcomes(ROOT)) - 1
    plan = tmp_path / edition.DESIGN_FOLDER / "batch.yaml"
    plan.write_text(plan.read_text().replace("repeats: 2", "repeats: 9"))
    text = edition.primary_outcomes_table(data, before, tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("| 6 |"))
    assert "5 devices in 5 of 9 blocks" in row and row.endswith("| holds so far |")


def test_a_ratio_within_the_margin_of_another_data_set_holds_where_both_are_precise(tmp_path: Path) -> None:
    other = planted(tmp_path, "one/study", [point("time-slicing", 3.0), point("mps", 1.0)])
    verdicts = []
    for ratio in (3.0, 3.15, 3.5):
        data = planted(tmp_path / str(ratio), "two/study", [point("time-slicing", ratio), point("mps", 1.0)])
        entries = [claim(1, "within", limit_of="one/study", within_percent=5)]
        (same,) = decide_outcomes(entries, {"two/study": data}, {"one/study": other})
        assert (same.verdict(is_final=True), same.p_holm) == ("not tested: the limit is of this product", 1)
        data.device = {**data.device, "product": "another"}
        (found,) = decide_outcomes(entries, {"two/study": data}, {"one/study": other})
        verdicts.append(found.verdict(is_final=True))
    assert verdicts == ["holds", "not shown", "refuted"]
    assert edition.within_probability(log_interval([3.0]), log_interval([3.0, 3.1]), 5) is None


def test_each_workload_has_its_own_number_of_blocks_and_variance(tmp_path: Path) -> None:
    cells = [point(name, 2, count, workload) for name in ("time-slicing", "mps") for workload, count in SAME]
    planted(tmp_path, "two/core", cells)
    path = tmp_path / "made/two/core/tables/cells.csv"
    table = pd.read_csv(path)
    blocks = table["workload"].map({"yolos-graph": 2, "matmul-16384": 1}).fillna(REPEATS)
    table[table["repeat"] <= blocks].to_csv(path, index=False)
    data = data_set(tmp_path, "two/core")
    data.device = {**data.device, "product": "another"}
    assert tables.facts_table({"two/core": data}).splitlines()[-1].split(" | ")[3] == "1 to 5"
    shutil.copytree(ROOT / edition.DESIGN_FOLDER, tmp_path / edition.DESIGN_FOLDER)
    other = {"h200/inference": planted(tmp_path, "h200/inference", cells)}
    first, second, third, *_ = edition.primary_outcomes_table({"two/core": data}, other, tmp_path).splitlines()[2:]
    assert "2 devices in 2 of 6 blocks, variance pooled" in first and "5 devices in 5 of 6 blocks |" in second
    assert "1 device in 1 of 6 blocks |" in third and third.endswith("| no interval so far |"), "nothing to pool"


def test_few_units_have_the_variance_of_all_rows_of_their_workload(tmp_path: Path) -> None:
    points = [point(strategy, 2.0, count) for strategy in ("time-slicing", "mps", "mps-limited") for count in (2, 3, 7)]
    data = planted(tmp_path, "two/study", points)
    with edited_table(tmp_path / "made/two/study/tables/cells.csv") as table:
        table["valid"] = table["repeat"] <= 2
    data = data_set(tmp_path, "two/study")
    pooled = edition.estimate_outcome(data, claim(1, "above", limit=1))
    assert pooled.degrees_of_freedom == pytest.approx(8) and pooled.n == 2
    assert pooled.log_variance == pytest.approx(SCATTER**2, rel=0.8)
    assert pooled.value == pytest.approx(
        data.estimate(claim(1, "above").over, claim(1, "above").under, "latency_mean_seconds").value
    )


def core(root: Path) -> DataSet:
    """Nine rows of a workload on three devices: of one block each, but two on the first."""
    points = [point(strategy, 2.0, count) for strategy in ("time-slicing", "mps", "mps-limited") for count in (2, 3, 7)]
    planted(root, "two/study", points)
    with edited_table(root / "made/two/study/tables/cells.csv") as table:
        table["valid"] = table["repeat"] <= 4
        table.loc[table["repeat"] == 4, "device"] = "d1"
        table["machine"] = table["device"].replace("d3", "d2")
    return data_set(root, "two/study")


def test_units_are_devices_or_machines_and_no_blocks(tmp_path: Path) -> None:
    data = core(tmp_path)
    devices, machines = (
        edition.estimate_outcome(data, claim(1, "above", limit=1, unit=unit)) for unit in ("device", "machine")
    )
    assert (devices.n, devices.degrees_of_freedom) == (3, 16) and (machines.n, machines.degrees_of_freedom) == (2, 8)
    over, under = (
        np.log(data.rows("cells", where).groupby("device")["latency_mean_seconds"].apply(stats.gmean))
        for where in (claim(1, "above").over, claim(1, "above").under)
    )
    assert math.log(devices.value) == pytest.approx((over - under).mean())


def test_an_excluded_cell_of_another_row_drops_no_unit(tmp_path: Path) -> None:
    core(tmp_path)
    entry, path = claim(1, "above", limit=1), tmp_path / "made/two/study/tables/cells.csv"
    whole = edition.estimate_outcome(data_set(tmp_path, "two/study"), entry)
    with edited_table(path) as table:
        is_other = (table["strategy"] == "mps-limited") & (table["replicas"] == 2) & (table["repeat"] == 2)
        table["valid"] &= ~is_other
    found = edition.estimate_outcome(data_set(tmp_path, "two/study"), entry)
    assert (found.value, found.n) == (whole.value, 3) and found.degrees_of_freedom == 15
    with edited_table(path) as table:
        table["valid"] &= (table["strategy"] != "mps") | (table["replicas"] != 7) | (table["repeat"] != 2)
    assert edition.estimate_outcome(data_set(tmp_path, "two/study"), entry).n == 2
    with edited_table(path) as table:
        table["valid"] &= (table["strategy"] != "mps") | (table["replicas"] != 7)
    with pytest.raises(MissingNumber, match="no valid cell"):
        edition.estimate_outcome(data_set(tmp_path, "two/study"), entry)
