"""A plan whose tenants crashed, or answered wrongly, in some of its repeats is never taken in silence."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.edited import edited_table
from unit.figures import fabricated
from unit.studies import NO_SLO, QUESTION

from sharebench.core.files import REPOSITORY
from sharebench.model.strategy import Strategy
from sharebench.read import harm
from sharebench.read.closing import closing_lines
from sharebench.read.decide import decide
from sharebench.read.decide.advice import Demand, Option
from sharebench.read.decide.answers import MEASURED_ONCE
from sharebench.read.decide.documented import UNKNOWN, Isolation
from sharebench.read.decide.relative import jobs_answer, jobs_with_harms, mix_answer
from sharebench.read.decide.rows import SLOWDOWN, STP, SummaryRow, with_harms
from sharebench.read.gates.gates import INVALID
from sharebench.read.harm import Harm
from sharebench.read.statistics.intervals import Estimate

CRASHED = "1 of 4 tenants crashed: ended by itself with exit code 1"
ELSE = "tenant 0 computed something else than the workload alone"
WRONG = f"output_digest: {ELSE}; queue_growth: tenant 0: it grew"
NONE = "tenant 1: no request began in the window of 2 s and ended; set a longer one (window_seconds)"
NEVER_STARTED = ("infeasible", "not-measured")


def cell(repeat: int, reason: str = "", status: str = "ok") -> dict[str, Any]:
    own = {"strategy": "mps", "workload": "w", "replicas": 2, "repeat": repeat, "status": status}
    return own | {"valid": status == "ok" and not reason, "reason": reason}


def test_harm_is_what_tenants_suffer_and_not_what_is_merely_lost() -> None:
    lost = [
        cell(1),
        cell(2, "evidence: refuted; generator_late: late"),
        *(cell(3, "no room", s) for s in NEVER_STARTED),
    ]
    assert harm.harms(lost) == {}
    cells = [
        cell(1),
        cell(1),
        cell(2, CRASHED, "crashed"),
        cell(2, CRASHED, "crashed"),
        cell(3, WRONG),
        cell(4, WRONG.replace("tenant 0", "tenant 1")),
    ]
    (found,) = harm.harms(cells).values()
    assert list(map(str, found)) == [
        f"in 2 of 4 repeats, {ELSE.replace('tenant 0', 'tenants 0, 1')}",
        f"in 1 of 4 repeats, {CRASHED}",
    ]
    assert harm.brief(found) == "answers not right in 2 of 4, crashed in 1 of 4" and harm.is_wrong(found)
    (unserved,) = harm.harms([cell(1), cell(2, "drained_queue: full; queue_growth: tenant 0: it grew")]).values()
    assert harm.brief(unserved) == "not served in 1 of 2" and not harm.is_wrong(unserved)


def test_a_message_has_its_remedy_behind_a_semicolon() -> None:
    reason = f"window_length: an iteration takes 60% of the window; set a longer one; nothing_finished: {NONE}; {WRONG}"
    for excluded, said in ((reason, ELSE), (reason.removesuffix(f"; {WRONG}"), NONE)):
        ((found,),) = harm.harms([cell(1), cell(2, excluded)]).values()
        assert str(found) == f"in 1 of 2 repeats, {said}"


def test_every_kind_of_harm_is_a_status_or_a_gate() -> None:
    assert {*harm.KINDS} - {*INVALID} == {"crashed", "oom", "killed", "hung"}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A study as of a GPU, for whose four tenants `mps` on one device is the plan to take."""
    return fabricated.write(tmp_path / "results", label="")


def ended(results: Path, status: str, reason: str, latency_ms: float = 12) -> str:
    """The advice where the second repeat of `mps` with four tenants ended so."""
    point = {"strategy": "mps", "workload": "matmul", "replicas": 4}
    for name, repeat in (("cells", {"repeat": 2}), ("summary", {})):
        with edited_table(results / f"tables/{name}.csv") as rows:
            own = (rows[[*point, *repeat]] == pd.Series(point | repeat)).all(axis=1)
            assert own.any()
            rows["reason"] = rows["reason"].astype(object)
            rows.loc[own, "reason"] = reason
            rows.loc[own, "status"] = status if name == "cells" or status == "ok" else "mixed"
            rows.loc[own, ["valid"] if name == "cells" else ["n"]] = False if name == "cells" else 2
    question: Any = QUESTION | {"slo": NO_SLO | {"latency_ms": latency_ms}, "tenants": 4, "workloads": ["matmul"]}
    return decide.decide(results, results, question, results / ".sharebench/decided/question", [])


def answer(results: Path) -> dict[str, Any]:
    (found,) = json.loads((results / "tables/advice.json").read_text())["answers"]
    return found  # type: ignore[no-any-return]


def test_a_plan_of_which_a_repeat_crashed_is_taken_with_a_caution(results: Path) -> None:
    assert "Caution: mps" not in ended(results, "ok", "")
    text = " ".join(ended(results, "crashed", CRASHED).split())
    assert f"Caution: mps with 4 tenants: in 1 of 3 repeats, {CRASHED}." in text
    assert "meets the SLO by its p95; crashed in 1 of 3" in text
    assert answer(results)["headline"] == "take mps on 1 GPU instead of 4"
    capacity = pd.read_csv(results / "tables/capacity.csv").set_index(["strategy", "workload"])
    assert capacity.loc[("mps", "matmul"), "reason"] == f"4 tenants: in 1 of 3 repeats, {CRASHED}"
    table = "\n".join(closing_lines(results))
    assert "matmul: take mps on 1 GPU instead of 4 (caution: crashed in 1 of 3 repeats)" in table
    line = next(line for line in table.splitlines() if line.startswith("matmul "))
    assert "(× 2)" not in line and "crashed in 1 of 3" in table


def test_another_answer_is_named_with_its_caution(results: Path) -> None:
    text = " ".join(ended(results, "crashed", CRASHED, latency_ms=8).split())
    assert "with one of 11.2 ms it is still mps on 1 GPU (caution: crashed in 1 of 3 repeats);" in text


def test_a_plan_of_which_a_repeat_was_wrong_is_not_taken(results: Path) -> None:
    text = " ".join(ended(results, "ok", WRONG).split())
    taken = answer(results)
    assert (taken["strategy"], taken["devices"]) == ("mps", 2)
    assert f"(mps with 4 on one GPU: in 1 of 3 repeats, {ELSE})" in text
    lines = "\n".join(closing_lines(results))
    assert "take mps on 2 GPUs instead of 4" in lines and "(× 2)" in lines


def test_published_advice_names_a_crash_in_one_repeat() -> None:
    folder = REPOSITORY / "published/h200/llm"
    question: Any = QUESTION | {"slo": NO_SLO, "tenants": 4, "deploy": "device-plugin"}
    answers = {each.workload: each for each in decide.answer(decide.read_results(folder, folder), question).answers}
    harmed = {each.strategy: each.harm for each in answers["vllm-concurrency-16"].plans if each.harm}
    assert harmed == {"mps-limited": "crashed in 1 of 2"}


def test_a_queue_of_which_a_repeat_crashed_is_taken_with_a_caution() -> None:
    row = {"workload": "lab", "replicas": 3, "speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01}
    table = pd.DataFrame([row | {"strategy": name} for name in ("sequential", "mps")])
    known = {("sequential", "lab", 3): HARMS["crashed"]}
    found = jobs_answer("lab", jobs_with_harms(table, known), STRATEGIES, "sequential", option, Demand(3), True)
    assert found is not None and (found.strategy, found.harm) == ("sequential", "crashed in 1 of 3")
    assert found.texts("hazard") == [f"Caution: sequential with 3 tenants: in 1 of 3 repeats, {CRASHED}."]


def test_of_jobs_that_were_measured_once_the_fastest_is_ahead() -> None:
    def with_effort(strategy: Strategy, levels: Any) -> Option:
        return replace(option(strategy, levels), effort=1)

    row = {"workload": "lab", "replicas": 3, "speedup_low": None, "speedup_high": None}
    speeds = {"sequential": 1.0, "time-slicing": 0.1, "mps": 5.0}
    rows = [row | {"strategy": name, "speedup": speed} for name, speed in speeds.items()]
    table = jobs_with_harms(pd.DataFrame(rows), {})
    found = jobs_answer("lab", table, STRATEGIES, "sequential", with_effort, Demand(3), True)
    assert found is not None and found.headline == f"{MEASURED_ONCE}; ahead: mps on 1 GPU instead of 3"
    slow = table[table["strategy"] != "mps"]
    slower = jobs_answer("lab", slow, STRATEGIES, "sequential", with_effort, Demand(3), True)
    assert slower is not None and slower.strategy == "sequential"
    assert [fact.name for fact in slower.facts] == ["GPUs for 3 tenants"]


STRATEGIES = {name: Strategy(name=name, mechanism=(name,)) for name in ("mps", "time-slicing")}
HARMS = {
    "crashed": [Harm("crashed", 1, 3, CRASHED)],
    "wrong": [Harm(harm.WRONG, 1, 3, ELSE)],
}


def option(strategy: Strategy, levels: Any) -> Option:
    return Option(strategy.name, levels, Isolation(None, UNKNOWN, ""), 0)


def mixed(harms: Sequence[Harm], *strategies: str) -> Any:
    metrics = {STP: Estimate(2.5, 2.4, 2.6, 3), SLOWDOWN: Estimate(1.2, 1.1, 1.3, 3)}
    rows = [SummaryRow(name, "lab", "front", 3, "ok", "", 2, 0, None, metrics) for name in strategies]
    return mix_answer("lab", with_harms(rows, {("mps", "lab", 3): harms}), STRATEGIES, option, Demand(3), is_gpu=True)


def jobs(harms: Sequence[Harm], *strategies: str) -> Any:
    rows = [
        {"strategy": name, "workload": "lab", "replicas": 3, "speedup": 2.5, "speedup_low": 2.4, "speedup_high": 2.6}
        for name in strategies
    ]
    table = jobs_with_harms(pd.DataFrame(rows), {("mps", "lab", 3): harms})
    return jobs_answer("lab", table, STRATEGIES, "sequential", option, Demand(3), True)


@pytest.mark.parametrize("together", [mixed, jobs])
def test_what_runs_together_has_its_cautions_and_exclusions(together: Any) -> None:
    crashed = together(HARMS["crashed"], "mps")
    assert crashed.strategy == "mps" and crashed.plans[0].harm == "crashed in 1 of 3"
    assert crashed.texts("hazard") == [f"Caution: mps with 3 tenants: in 1 of 3 repeats, {CRASHED}."]
    why = f"No plan with mps: 3 tenants: in 1 of 3 repeats, {ELSE}."
    for strategies, taken in ((("mps", "time-slicing"), {"time-slicing"}), (("mps",), {"exclusive", "sequential"})):
        wrong = together(HARMS["wrong"], *strategies)
        assert wrong.strategy in taken and not wrong.undecided
        assert wrong.texts("no plan") == [why]
