"""The grid of promises and the report's section, for a study in which one promise is broken."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.edited import edited_json
from unit.figures import fabricated
from unit.studies import QUESTION

from sharebench.model.promises import promises
from sharebench.read.columns import columns
from sharebench.read.decide import decide
from sharebench.read.figures import conformance, data
from sharebench.read.report import page as report

pytestmark = pytest.mark.usefixtures("themed")


def row(promise: str, strategy: str, verdict: str, measured: float | None, **values: Any) -> dict[str, Any]:
    """A row of conformance.csv of three tenants."""
    base = {"promise": promise, "strategy": strategy, "replicas": 3, "repeat": 1, "verdict": verdict}
    texts = {"unit": "wrong results", "limit": "at most 0", "source": "a manual"}
    return dict.fromkeys(columns("conformance")) | base | {"measured": measured, "promised": True} | texts | values


ROWS = [
    row("share", "time-slicing", "not promised", 31.4, promised=False),
    row("share", "mps", "kept", 98.25),
    row("answers", "time-slicing", "kept", 0),
    row("answers", "mps", "broken", 127, of=1596, source=promises()["answers"].mechanisms["mps"].source),
    row("answers", "mps", "kept", 0, replicas=2),
    row("fault killed", "mps", "not measured", None, reason="the fault did not happen"),
]


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up study with promises besides; read only."""
    root = fabricated.write(tmp_path_factory.mktemp("promises") / "results")
    with edited_json(root / "manifest.json") as manifest:
        config = manifest["config"]
        config["workload_catalogue"]["conformance"] = config["workload_catalogue"]["matmul"] | {"module": "conformance"}
        config["workloads"].append("conformance")
    pd.DataFrame(ROWS, columns=list(columns("conformance"))).to_csv(root / "tables" / "conformance.csv", index=False)
    return root


def test_a_cell_shows_the_worst_number_and_its_colour(tested: Path) -> None:
    page = conformance.conformance(data.load_study(tested, tested))
    (ax,) = page.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "share of the SMs (% of the share)",
        "right answers (wrong results)",
        "faults are contained, killed (harmed neighbours)",
    ]
    strategies = [label.get_text() for label in ax.get_xticklabels()]
    shown = {(strategies[round(x)], round(y)): text.get_text() for text in ax.texts for x, y in [text.get_position()]}
    assert shown["MPS", 1] == "127 (× 3)"
    assert shown["MPS", 2] == "–"
    assert shown["time-slicing", 0] == "31.4 (× 3)"
    assert "mps, answers: broken, 127 (× 3)" in page.alt_text
    assert len(ax.patches) == len(shown) == 5
    assert len({patch.get_facecolor() for patch in ax.patches}) == 4


def test_many_bytes_fit_into_a_cell() -> None:
    assert conformance.number_text({"measured": 1297612800.0, "replicas": 3}) == "1.3e9 (× 3)"
    assert conformance.promise_label("utilisation") == "utilisation of a tenant (percentage points)"


def test_the_report_names_what_is_broken_first(tested: Path) -> None:
    context = report.report_context(tested, tested)
    found = context["conformance"]
    assert found.summary == "1 promise broken, 1 not measured, 3 kept, 1 not promised"
    assert [(each["strategy"], each["title"]) for each in found.broken] == [("mps", "right answers")]
    report.write_report(tested, tested)
    text = (tested / "report.html").read_text()
    assert "MPS × 3 breaks “right answers”.</strong> Measured: 127 wrong results of 1596; promised: at most 0" in text
    assert "<small>of 1596</small>" in text and text.count("<small>of ") == 1
    assert "faults are contained: killed" in text
    assert text.count('<a href="https://docs.nvidia.com/cuda/cublas/">cuBLAS documentation: ') == 2
    assert text.count(">a manual") == 5 and "<h1>What sharing costs: " in text


def test_the_report_of_promises_alone_has_no_answer_but_them(tested: Path, tmp_path: Path) -> None:
    only = tmp_path / "only"
    shutil.copytree(tested, only)
    with edited_json(only / "manifest.json") as manifest:
        config = manifest["config"]
        config["workloads"] = ["conformance"]
        for entry in config["workload_catalogue"].values():
            entry["module"] = "conformance"
    decide.write_answer(decide.read_results(only, only), QUESTION)
    report.write_report(only, only)
    assert json.loads((only / "tables" / "advice.json").read_text())["answers"] == []
    assert report.report_context(only, only)["cards"] == []
    text = (only / "report.html").read_text()
    assert "The answer" not in text and "<h1>Which promises sharing keeps: " in text
    assert re.findall('<section id="([a-z]+)"', text)[0] == "conformance"


def test_a_study_without_promises_has_no_section(root: Path) -> None:
    assert report.report_context(root, root)["conformance"] is None
