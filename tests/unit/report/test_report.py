"""The report: complete, offline, and consistent with the data."""

import base64
import hashlib
import json
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.read.figures.looks import strategy_label
from sharebench.read.report import page as report
from sharebench.read.report import words

SCRIPT = Path(__file__).parents[3] / "scripts" / "job.py"
SVG = '<svg width="252pt" xmlns="http://www.w3.org/2000/svg"><dc:description>A &lt; B</dc:description></svg>'


class Page(HTMLParser):
    """The parts of a page that tests need: attributes by tag, text by element, captions."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.words.append(" " if tag in {"details", "pre"} else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th", "dt", "dd", "small", "summary"}:
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up study with all figures but one, as stand-ins, and its report."""
    root = fabricated.write(tmp_path_factory.mktemp("study") / "results")
    (root / "figures").mkdir()
    for name in ("latency", "throughput", "startup"):
        (root / "figures" / f"{name}.svg").write_text(SVG)
    report.write_report(root, root)
    return root


@pytest.fixture(scope="module")
def html(root: Path) -> str:
    return (root / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_nothing_is_loaded_from_elsewhere(html: str, page: Page) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert {"link", "iframe", "object", "base"}.isdisjoint(tag for tag, _ in page.tags)
    assert not re.search(r"@import|url\(|expression\(", html)
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html


def test_text_of_the_data_is_escaped(html: str, page: Page) -> None:
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;") >= 2  # remark, outcome
    assert fabricated.HOSTILE in page.text


def test_a_stand_in_is_announced(html: str, page: Page) -> None:
    assert f"{fabricated.LABEL}. No number in this report was measured on a GPU." in page.text
    assert 'class="banner"' in html


def test_tables_have_captions_and_head_cells(page: Page) -> None:
    assert page.count("table") == page.count("caption") >= 9
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert f"matmul on AMD EPYC 7B13, {fabricated.LABEL}, 2 s window, 3 repeats" in page.text


def test_every_row_of_the_summary_is_shown(page: Page, root: Path) -> None:
    table = pd.read_csv(root / "tables" / "summary.csv")
    assert len(table) == 20
    for row in table.itertuples():
        assert f"{strategy_label(row.strategy)} {row.replicas} {row.n} of {row.n_expected}" in page.text
        if row.n:
            assert f"{1e3 * row.latency_p95_seconds:.3g}" in page.text


def test_every_row_of_the_summary_leads_to_its_note(html: str) -> None:
    asked, there = (re.findall(rf'{key}(note-[0-9-]+)"', html) for key in ('href="#', 'id="'))
    assert asked and set(asked) == set(there) and len(there) == len(set(there))
    assert re.search(r'infeasible <a href="#(note-[0-9-]+)">.*<li id="\1">infeasible; ', html, flags=re.DOTALL)


def test_the_advice_is_that_of_the_tables(page: Page, root: Path) -> None:
    assert f"{json.loads((root / 'tables' / 'advice.json').read_text())['caption']}." in page.text
    table = pd.read_csv(root / "tables" / "advice.csv")
    for row in table.to_dict("records"):
        assert row["effort"] in page.text and row["fault_isolation_basis"] in page.text
    assert "Tenants within the SLO, and in memory" in page.text and "What a device costs" in page.text


def change(root: Path, cell: str, **changes: Any) -> None:
    """Write other values into a record; the first item of its evidence takes them too."""
    path = root / "cells" / cell / "raw.json"
    raw = json.loads(path.read_text())
    raw["evidence"][0] |= changes.get("evidence", {})
    raw["telemetry"] |= changes.get("telemetry", {})
    path.write_text(json.dumps(raw))


def test_todays_gates_are_counted_and_their_failures_listed(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    change(copy, "mps/matmul/n4/r1", telemetry={"host_steal_percent": None})
    fabricated.table_again(copy)
    report.write_report(copy, copy)
    text = Page((copy / "report.html").read_text(encoding="utf-8")).text
    assert "Gates over 60 cells" in text
    # 60 cells less 6 infeasible ones.
    assert "evidence invalid 53 1 0" in text
    assert "window_coverage invalid 54 0 0" in text
    assert "cpu_stolen invalid 53 0 1" in text
    assert "errors warning 53 1 0" in text
    assert "mps, matmul, N = 2, repeat 2 evidence state (node): expected cores 0, observed cores 0, 1" in text
    assert "time-slicing, matmul, N = 4, repeat 3 errors 2 iterations failed" in text


def test_outcomes_have_a_reason(page: Page) -> None:
    assert f"MIG hashing 4 infeasible 1, 2, 3 {fabricated.HOSTILE}" in page.text


def test_figures_are_inline_with_alternative_text(html: str, page: Page) -> None:
    images = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(images) == 3 and all(image["role"] == "img" for image in images)
    assert images[0]["aria-label"] == "Latency by number of tenants. A < B The values are in the tables."
    assert "figures/progress.svg is missing. Work done against waiting." in page.text
    assert "--width: 479px" in html


def test_setup_and_provenance_are_shown(page: Page) -> None:
    for told in (
        "number of cores 2",
        "memory 24.0 GiB",
        "governor performance",
        "matmul matmul in a loop dtype float64, size 512 closed: the next iteration begins when the last has ended",
        "at least 20 iterations, until the medians of consecutive batches differed by less than 5 %, at most 10 s",
        "warmup: max_seconds: 10 min_iterations: 20",
        "git checkout 8c1d2e3f4a5b6c7d8e9f8c1d2e3f4a5b6c7d8e9f snakemake --cores 1 --config 'replicas=[1, 2, 4]'",
        "The checkout had local changes that this commit does not contain.",
        "To cite it: sharebench, commit 8c1d2e3f4a5b",
        "data set of run 20250114-101112-4f2a, made into this report on 14 January 2025, 10:20 UTC",
        "numpy 2.4.6 60",
    ):
        assert told in page.text, told


def test_the_script_writes_the_same_report_and_nothing_else(root: Path, html: str, monkeypatch: Any) -> None:
    before = sorted(root.iterdir())
    (root / "report.html").write_text("old")
    monkeypatch.setattr(sys, "argv", ["job.py", "report", "--data", str(root), "--results", str(root)])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert (root / "report.html").read_text(encoding="utf-8") == html
    assert sorted(root.iterdir()) == before


def test_a_study_on_a_gpu_with_a_crash_is_reported(tmp_path: Path) -> None:
    """A GPU, strategies in order of time, a subset, a crash with its log, an open load, no intervals."""
    root = fabricated.write(tmp_path / "results", label="", strategies=["exclusive", "mps"])
    path = root / "cells/mps/hashing/n4/r1/raw.json"
    raw = json.loads(path.read_text())
    raw |= {"status": "crashed", "reason": "tenant 2 ended with code 1", "gates": []}
    raw["tenants"][2]["exit"] = {"code": 1, "reason": "it raised", "log_tail": "ValueError: <b>no</b>"}
    path.write_text(json.dumps(raw))
    fabricated.table_again(root, ["exclusive", "mps"])
    manifest = json.loads((root / "manifest.json").read_text())
    manifest |= {"order": "strategy", "not_shown": "Not shown: mig.", "git_commit": None, "git_dirty": None}
    manifest["config"]["workload_catalogue"]["hashing"]["load"] = {"arrival": "poisson", "rate_of_capacity": 0.2}
    (root / "manifest.json").write_text(json.dumps(manifest))
    summary = pd.read_csv(root / "tables" / "summary.csv")
    summary.loc[:, summary.columns.str.endswith(("_low", "_high"))] = float("nan")
    summary.loc[summary["strategy"] == "exclusive", "slowdown"] = float("nan")
    summary.to_csv(root / "tables" / "summary.csv", index=False)
    report.write_report(root, root)
    html = (root / "report.html").read_text(encoding="utf-8")
    text = Page(html).text
    assert 'class="banner"' not in html and "not a GPU" not in text
    assert "strategy and time are confounded" in text
    assert "Not shown: mig." in text
    assert "MPS hashing 4 crashed 1 tenant 2 ended with code 1 Last lines of its log tenant 2: ValueError" in text
    assert "<b>" not in html
    assert "open: poisson arrivals, 0.2 of what one exclusive tenant can do" in text
    assert "git checkout" not in text and "local changes" not in text


def test_the_report_loads_no_library_that_draws() -> None:
    script = "import sys, sharebench.read.report.page; print({'matplotlib', 'seaborn'} & set(sys.modules))"
    environment = {"PYTHONPATH": str(SCRIPT.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_remark_common_to_all_rows_is_shown_once() -> None:
    rows = [
        row("mps", 1, notes="memory per tenant not known"),
        row("mps", 2, notes="p99 needs 299 iterations, had 175; memory per tenant not known"),
        row("mps", 4, n=0, status="oom", reason="out of memory", notes="3 of 3 cells oom"),
    ]
    assert report.add_remarks(rows) == ["memory per tenant not known"]
    assert [each["remarks"] for each in rows] == [
        [],
        ["p99 needs 299 iterations, had 175"],
        ["oom", "out of memory", "3 of 3 cells oom"],
    ]
    assert report.add_remarks([row("mps", 1, notes="memory per tenant not known")]) == []


def row(strategy: str, replicas: int, **changes: Any) -> dict[str, Any]:
    """A row of the summary with round numbers."""
    base = {"strategy": strategy, "workload": "matmul", "tenant_workload": "matmul", "replicas": replicas}
    base |= {"status": "ok", "reason": "", "notes": "", "n": 3, "n_expected": 3}
    metrics = {"latency_p50_seconds": 0.01, "throughput_total_hz": 100.0, "slowdown": 1.0}
    ends = {f"{name}_{end}": float("nan") for name in metrics for end in ("low", "high")}
    return base | {"warnings": 0} | metrics | ends | changes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.012345, "0.0123"),
        (1.005, "1.00"),
        (99.96, "100.0"),
        (12345.6, "12\u202f346"),
        (float("nan"), ""),
    ],
)
def test_format_number(value: float, text: str) -> None:
    assert words.format_number(value) == text


def test_an_interval_has_the_decimals_of_its_value() -> None:
    summary = {"m": 0.0098, "m_low": 0.00951, "m_high": 0.01012}
    assert words.format_interval(summary, "m", 1000) == ("9.80", "9.51", "10.12")
    assert words.format_interval(summary | {"m_low": float("nan"), "m_high": float("nan")}, "m") == ("0.00980", "", "")
    assert words.format_interval(dict.fromkeys(summary, float("nan")), "m") == ("", "", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"batch_size": 8, "dtype": "float32"}, "batch size 8, dtype float32"),
        ([["mig", "mps"], 2.0, True], "mig, mps, 2, yes"),
        (None, "not known"),
    ],
)
def test_value_text(value: Any, text: str) -> None:
    assert words.value_text(value) == text


def test_long_lists_are_cut_with_a_note(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(root, tmp_path / "copy")
    change(tmp_path / "copy", "mps/matmul/n4/r1", evidence={"holds": False, "observed": "second failure"})
    fabricated.table_again(tmp_path / "copy")
    monkeypatch.setattr(report, "MAX_LISTED", 1)
    report.write_report(tmp_path / "copy", tmp_path / "copy")
    text = Page((tmp_path / "copy" / "report.html").read_text(encoding="utf-8")).text
    assert "the first 1 of 2 (tables/gates.csv has all)" in text
    assert "mps, matmul, N = 4, repeat 1" not in text
    assert "evidence invalid 52 2 0" in text
