"""The report's cards: the strategy to take, or the reason why there is no answer."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.figures import fabricated, serving

from sharebench.core.files import read_json
from sharebench.model.study_config import Sweep
from sharebench.read.decide.answers import Answer, PlanLine
from sharebench.read.decide.reasons import KINDS, Reason
from sharebench.read.figures import draw
from sharebench.read.report import page
from sharebench.read.report.sections.advice import Advice
from sharebench.read.report.sections.cards import Card, cards

NAN = float("nan")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = fabricated.write(tmp_path_factory.mktemp("study") / "results")
    page.write_report(root, root)
    return root


def row(strategy: str, replicas: int, **changes: Any) -> dict[str, Any]:
    """A row of the summary, as far as a card reads it."""
    base = {"strategy": strategy, "replicas": replicas, "n": 3, "status": "ok", "reason": ""}
    return base | {"slowdown": float(replicas), "throughput_total_hz": 100.0 + replicas} | changes


def plan(strategy: str, devices: int | None = 1, per_gpu: float | None = 104.0) -> PlanLine:
    return PlanLine(strategy, devices, 4, "p99 8.00", f"{per_gpu:.0f}/s" if per_gpu else "", per_gpu, "possible")


def answer(name: str, plans: Sequence[PlanLine] = (), reasons: Sequence[Reason] = (), **more: Any) -> Answer:
    took = {"strategy": "mps", "devices": 1, "per_device": 4, "judged_with": 4} if plans else {}
    return replace(Answer(name, "take mps", reasons, plans=plans), **(took | more))


def card(plans: Sequence[PlanLine], summary: list[dict[str, Any]], *reasons: Reason, **more: Any) -> Card:
    answers = {"w": answer("w", plans, reasons, **more)}
    (found,) = cards(Advice("", answers, {}, has_price=False), {"w": summary}, ["w"], {})
    return found


BASELINE, SHARED = row("exclusive", 1, throughput_total_hz=50.0), row("mps", 4)


def test_a_card_shows_what_a_device_does_under_each_plan() -> None:
    found = card([plan("mps"), plan("mig", 2, 52.0), plan("streams", None, None)], [BASELINE, SHARED])
    assert (found.strategy, found.headline) == ("mps", "take mps")
    assert found.bars == [("mps", "104/s", 100.0), ("mig", "52/s on each of 2", 50.0)], "what is measured, and a plan"


def test_a_card_without_a_winner_names_no_strategy_to_take() -> None:
    found = card([plan("mps")], [BASELINE, SHARED], undecided="no winner", headline="no winner; ahead: mps")
    assert (found.strategy, found.headline) == ("", "no winner; ahead: mps")


def test_every_kind_of_reason_is_once_in_a_card(root: Path) -> None:
    """Hazards are its first line."""
    html = page._template().render(
        page.report_context(root, root)
        | {"cards": [card([plan("mps")], [BASELINE, SHARED], *(Reason(kind, f"Said of {kind}.") for kind in KINDS))]}
    )
    (shown,) = re.findall(r"<article.*?</article>", html, flags=re.DOTALL)
    assert {kind: shown.count(f"Said of {kind}.") for kind in KINDS} == dict.fromkeys(KINDS, 1)
    assert shown.index("Said of hazard.") < shown.index("Take mps.")


@pytest.mark.parametrize(
    ("plans", "summary", "said"),
    [
        (
            [],
            [row("exclusive", 1, n=0, status="oom"), row("mps", 4, n=0, reason="no room")],
            "No valid cell. exclusive: ",
        ),
        (
            [],
            [row("mps", 3, n=0, reason="late by 3%; late by 5%"), row("mps", 7, n=0, reason="late by 9%")],
            "No valid cell. mps: late by 3 to 9%",
        ),
        ([], [BASELINE, SHARED], "take mps"),
    ],
    ids=["no valid cell", "alike", "no plan"],
)
def test_a_card_without_an_answer_has_a_reason(plans: list[Any], summary: list[Any], said: str) -> None:
    assert card(plans, summary).headline.startswith(said)


def test_a_stream_is_described_by_its_tokens_and_goodput() -> None:
    served = {"ttft_p50_seconds": 0.0612, "ttft_p99_seconds": NAN, "tpot_p50_seconds": 0.0211, "tpot_p99_seconds": 0.03}
    tokens = {"output_tokens_total_hz": 812.4, "goodput_total_hz": 7.5}
    assert card([plan("mps")], [BASELINE, SHARED | served | tokens]).serving == (
        "First token after 61.2 ms, then one every 21.1 ms (p99 30.0 ms). "
        "812 output tokens/s of all tenants; 7.50 requests/s within the SLO."
    )
    assert card([plan("mps")], [BASELINE, SHARED | served], judged_with=5).serving == "", "no such cell"


def test_a_sweep_is_one_card_with_a_row_for_each_load() -> None:
    rows = {"w-1": [BASELINE, SHARED | {"ttft_p50_seconds": 0.06}], "w-9": [row("mps", 4, n=0, reason="no room")]}
    advised = Advice("", {"w-1": answer("w-1", [plan("mps")])}, {}, has_price=False)
    (found,) = cards(advised, rows, [*rows], {"w": Sweep("rate_hz", {"w-9": 9, "w-1": 1})})
    assert (found.workload, found.by, found.strategy) == ("w", "requests/s per tenant", "")
    assert [(load.value, load.strategy) for load in found.loads] == [(1, "mps"), (9, "")]
    assert found.loads[1].why == "No valid cell. mps: no room"
    assert [look.metric for look in found.metrics] == ["ttft_p50_seconds", "throughput_total_hz"], "those with values"


def test_a_load_without_a_winner_names_none_and_a_sweep_has_its_cautions_once(root: Path) -> None:
    hazard = Reason("hazard", "Caution: it faults.")
    undecided = {"undecided": "no winner", "headline": "no winner; ahead: mps on 1 GPU"}
    answers = {
        name: answer(name, [plan("mps")], [hazard], **more) for name, more in {"w-1": {}, "w-2": undecided}.items()
    }
    rows = {name: [BASELINE, SHARED] for name in answers}
    (found,) = cards(
        Advice("", answers, {}, has_price=False), rows, [*rows], {"w": Sweep("rate_hz", {"w-1": 1, "w-2": 2})}
    )
    assert [(load.strategy, load.why) for load in found.loads] == [("mps", ""), ("", "no winner; ahead: mps on 1 GPU")]
    html = page._template().render(page.report_context(root, root) | {"cards": [found]})
    assert html.count("Caution: it faults.") == 1 and "no winner; ahead: mps on 1 GPU" in html


def test_the_page_has_the_curve_of_a_sweep_once_with_its_card(tmp_path: Path) -> None:
    study = serving.study(tmp_path / "results")
    draw.draw_figure("load-curve", study.data, study.results)
    page.write_report(study.data, study.results)
    html = (study.results / "report.html").read_text(encoding="utf-8")
    section = html.split('<section id="cards">')[1].split("</section>")[0]
    assert section.count("<article") == 1 and "<h3>llm</h3>" in section
    assert "Requests in flight per tenant" in section and "o winner, since it was not a GPU" in section
    assert html.count("<strong>Load and latency.</strong>") == section.count("<strong>Load and latency.</strong>") == 1
    assert 'aria-label="Load and latency.' in section
    assert "<small>per device</small>" not in section, "no plan is taken"
    assert "No workload by itself" not in section
    numbers = html.split('<section id="numbers">')[1].split("</section>")[0]
    assert numbers.count(">TPOT p50<small>ms</small>") == len(serving.SWEEP)


def test_a_workload_that_leaves_no_choice_has_a_card_too() -> None:
    rows = {"w": [BASELINE, row("exclusive-again", 1)], "other": [BASELINE, SHARED], "mix": [BASELINE]}
    (found,) = cards(Advice("", {}, {}, has_price=False), rows, ["w", "other"], {})
    assert found == Card("w", "Only exclusive has a valid cell: there is nothing to choose from")


def test_the_page_shows_the_answer_first_and_its_label_on_every_card(root: Path) -> None:
    html = (root / "report.html").read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)">(<details>)?', html)
    assert sections[:2] == [("cards", ""), ("curves", "")]
    assert all(bool(folded) == (name not in page.OPEN_SECTIONS) for name, folded in sections)
    shown = re.findall(r"<article.*?</article>", html, flags=re.DOTALL)
    assert all(f'<p class="tag">{fabricated.LABEL}</p>' in text for text in shown)
    assert not any('class="take"' in text for text in shown), "no winner on a stand-in"
    (answered,) = [text for text in shown if "<h3>matmul</h3>" in text]
    (told,) = [each for each in read_json(root / "tables/advice.json")["answers"] if each["workload"] == "matmul"]
    assert told["facts"] == [] and "o winner, since it was not a GPU" in answered and 'class="bars"' in answered
    (other,) = [text for text in shown if "<h3>hashing</h3>" in text]
    assert "No strategy that was measured" in other
