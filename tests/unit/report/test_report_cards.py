"""The report's cards: the strategy to take, or the reason why there is no answer."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.figures import fabricated, serving

from sharebench.model.study_config import Sweep
from sharebench.read.figures import draw
from sharebench.read.report import page, words
from sharebench.read.report.sections.advice import Advice
from sharebench.read.report.sections.cards import Card, cards

NAN = float("nan")
NO_OTHER = "Only mps was measured: there is nothing to compare it with."
CHANGES = ["with 2 tenants it is mig on 1 device", "with fault isolation there is no answer"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = fabricated.write(tmp_path_factory.mktemp("study") / "results")
    page.write_report(root, root)
    return root


def row(strategy: str, replicas: int, **changes: Any) -> dict[str, Any]:
    """A row of the summary, as far as a card reads it."""
    base = {"strategy": strategy, "replicas": replicas, "n": 3, "status": "ok", "reason": ""}
    return base | {"slowdown": float(replicas), "throughput_total_hz": 100.0 + replicas} | changes


def plan(strategy: str, **changes: Any) -> dict[str, Any]:
    """A row of tables/advice.csv, as far as a card reads it."""
    base = {"strategy": strategy, "rank": 1.0, "devices": 1.0, "tenants_per_device": 4.0}
    return base | {"judged_with_tenants": 4.0, "throughput_per_device_hz": 104.0} | changes


def answer(name: str, sentence: str = "", reasons: list[Any] | None = None) -> dict[str, Any]:
    """An answer in tables/advice.json."""
    return {"workload": name, "sentence": f"{name}: {sentence}", "reasons": reasons or [], "changes": CHANGES}


def card(plans: list[dict[str, Any]], summary: list[dict[str, Any]], *reasons: tuple[str, str]) -> Card:
    answers = {"w": answer("w", "no strategy serves 4 tenants.", list(reasons))}
    (found,) = cards(Advice("", answers, {"w": plans}, has_price=False), {"w": summary}, ["w"], {})
    return found


BASELINE, SHARED = row("exclusive", 1, throughput_total_hz=50.0), row("mps", 4)


def test_a_card_has_the_gain_of_sharing_and_turning_points() -> None:
    told = ("scope", "Of the SLO only the latency applies."), ("tie", "In throughput mig is alike.")
    sure = ("certainty", "How sure: so."), ("certainty", "Of the 9 cells behind this, 2 carry a warning: see x.")
    rivals = [plan("mps"), plan("mig", rank=2.0, devices=2.0, throughput_per_device_hz=52.0), plan("streams", rank=NAN)]
    others = ("no plan", "No plan with streams: x."), ("change", "What would change it: …")
    found = card(rivals, [BASELINE, SHARED], *told, *others, *sure)
    assert found.best == rivals[0]
    assert found.why == ["Throughput × 2.08, mean latency × 4.00 of one tenant alone.", *(text for _, text in told)]
    assert found.changes == ["with 2 tenants: mig", "with fault isolation there is no answer"]
    assert found.certainty == ["How sure: so.", "Of the 9 cells behind this, 2 carry a warning."]
    assert found.rivals == [("mps", 1, 104.0, 100.0), ("mig", 2, 52.0, 50.0)], "what is measured, and a plan"


@pytest.mark.parametrize(
    ("plans", "summary", "said"),
    [
        ([plan("mps")], [BASELINE, SHARED], NO_OTHER),
        ([plan("mps")], [row("exclusive", 1, n=0), SHARED], "No valid baseline: what sharing costs"),
        (
            [],
            [row("exclusive", 1, n=0, status="oom"), row("mps", 4, n=0, reason="no room")],
            "No valid cell. exclusive: ",
        ),
        ([plan("mps", rank=NAN)], [BASELINE, SHARED], "no strategy serves 4 tenants."),
    ],
    ids=["one strategy", "no baseline", "no valid cell", "no plan"],
)
def test_a_card_without_an_answer_has_a_reason(plans: list[Any], summary: list[Any], said: str) -> None:
    assert any(line.startswith(said) for line in card(plans, summary).why)


def test_a_stream_is_described_by_its_tokens_and_goodput() -> None:
    served = {"ttft_p50_seconds": 0.0612, "ttft_p99_seconds": NAN, "tpot_p50_seconds": 0.0211, "tpot_p99_seconds": 0.03}
    tokens = {"output_tokens_total_hz": 812.4, "goodput_total_hz": 7.5}
    said = card([plan("mps")], [BASELINE, SHARED | served | tokens]).why[0]
    assert said == (
        "First token after 61.2 ms, then one every 21.1 ms (p99 30.0 ms). "
        "812 output tokens/s of all tenants; 7.50 requests/s within the SLO."
    )
    assert card([plan("mps", judged_with_tenants=5.0)], [BASELINE, SHARED | served]).why == [NO_OTHER], "no such cell"


def test_a_sweep_is_one_card_with_a_row_for_each_load() -> None:
    rows = {"w-1": [BASELINE, SHARED | {"ttft_p50_seconds": 0.06}], "w-9": [row("mps", 4, n=0, reason="no room")]}
    advised = Advice("", {"w-1": answer("w-1")}, {"w-1": [plan("mps")]}, has_price=False)
    (found,) = cards(advised, rows, [*rows], {"w": Sweep("rate_hz", {"w-9": 9, "w-1": 1})})
    assert (found.workload, found.by, found.best) == ("w", "requests/s per tenant", None)
    assert [(load.value, load.best and load.best["strategy"]) for load in found.loads] == [(1, "mps"), (9, None)]
    assert found.loads[1].why == "No valid cell. mps: no room."
    assert [metric.name for metric in found.metrics] == ["ttft_p50_seconds", "throughput_total_hz"], "those with values"


def test_the_page_has_the_curve_of_a_sweep_once_with_its_card(tmp_path: Path) -> None:
    study = serving.study(tmp_path / "results")
    draw.draw_figure("load-curve", study.data, study.results)
    page.write_report(study.data, study.results)
    html = (study.results / "report.html").read_text(encoding="utf-8")
    section = html.split('<section id="cards">')[1].split("</section>")[0]
    assert section.count("<article") == 1 and "<h3>llm</h3>" in section
    assert "Requests in flight per tenant" in section and "Within the SLO" in section
    assert html.count("<strong>Load and latency.</strong>") == section.count("<strong>Load and latency.</strong>") == 1
    assert 'alt="Load and latency.' in section
    assert "No workload by itself" not in section
    numbers = html.split('<section id="numbers">')[1].split("</section>")[0]
    assert numbers.count(">TPOT p50<small>ms</small>") == len(serving.SWEEP)


def test_a_workload_that_leaves_no_choice_has_a_card_too() -> None:
    rows = {"w": [BASELINE, row("exclusive-again", 1)], "other": [BASELINE, SHARED], "mix": [BASELINE]}
    (found,) = cards(Advice("", {}, {}, has_price=False), rows, ["w", "other"], {})
    assert (found.workload, found.best) == ("w", None)
    assert found.why == ["Only exclusive has a valid cell: there is nothing to choose from."]


def test_the_page_shows_the_best_row_of_the_advice_first_and_its_label_on_every_card(root: Path) -> None:
    html = (root / "report.html").read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)">(<details>)?', html)
    assert sections[:2] == [("cards", ""), ("curves", "")]
    assert all(bool(folded) == (name not in page.OPEN_SECTIONS) for name, folded in sections)
    shown = re.findall(r"<article.*?</article>", html, flags=re.DOTALL)
    table = pd.read_csv(root / "tables" / "advice.csv")
    (best,) = table[table["rank"] == 1].to_dict("records")
    answered, other = shown
    assert all(f'<p class="tag">{fabricated.LABEL}</p>' in text for text in shown)
    assert "<h3>matmul</h3>" in answered and f"</i>{best['strategy']}</p>" in answered
    for number in (best["latency_ms"], best["throughput_per_device_hz"]):
        assert f"<strong>{words.format_number(number)}</strong>" in answered
    assert "<h4>What would change it</h4>" in answered and "How sure: " in answered
    assert "<h3>hashing</h3>" in other and "No answer" in other and "no strategy that was measured" in other
