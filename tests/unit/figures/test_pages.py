"""The figures as files, and what they show."""

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text
from unit.figures import fabricated

from sharebench import figures
from sharebench.figures import data, distribution, latency, palette, sheet, style, throughput, timeline

SCRIPT = Path(__file__).parents[3] / "scripts" / "plot_figures.py"
PLAIN = figures.names_for({"interference": [], "workloads": []})
MODULES = {"latency": latency, "throughput": throughput, "distribution": distribution, "timeline": timeline}
LOOKS = palette.looks(list(fabricated.MECHANISMS), [])


@pytest.fixture(autouse=True)
def themed() -> Iterator[None]:
    """Pages made here look like those of a run."""
    with style.theme():
        yield


@pytest.fixture(scope="module")
def results(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results root apart from the data, with every figure drawn."""
    folder = copy_of(root, tmp_path_factory.mktemp("results"))
    for name in PLAIN:
        figures.draw(name, root, folder)
    return folder


def copy_of(root: Path, folder: Path) -> Path:
    shutil.copytree(root / "tables", folder / "tables")
    shutil.copy(root / "manifest.json", folder)
    return folder


def texts(svg: Path) -> list[str]:
    """The texts of a figure: they are drawn as outlines, and matplotlib writes each as a comment beside them."""
    return re.findall(r"<!-- (.*?) -->", svg.read_text())


def said(page: sheet.Sheet) -> str:
    """All texts of a page that is not drawn yet."""
    return " ".join(text.get_text().replace("\n", " ") for text in page.figure.findobj(Text))


def line_of(ax: object, strategy: str, thick: bool = True) -> Line2D:
    found = [
        line
        for line in ax.get_lines()  # type: ignore[attr-defined]
        if line.get_color() == LOOKS[strategy].color and (line.get_linewidth() > 1) == thick
    ]
    return found[0]


@pytest.mark.parametrize("name", PLAIN)
def test_every_figure_comes_in_three_formats_and_says_what_it_shows(results: Path, name: str) -> None:
    svg, pdf, png = (results / "figures" / f"{name}.{suffix}" for suffix in ("svg", "pdf", "png"))
    assert pdf.read_bytes().startswith(b"%PDF") and png.read_bytes().startswith(b"\x89PNG")
    assert svg.stat().st_size < 1_000_000
    assert figures.NAMES[name].title in texts(svg)
    subtitle = next(text for text in texts(svg) if "AMD EPYC" in text)
    for fact in (fabricated.LABEL, "2 s window", "3 repeats"):
        assert fact in subtitle
        assert fact in re.search("<dc:description>(.*?)</dc:description>", svg.read_text())[1]
    assert fabricated.LABEL.encode() in png.read_bytes()
    assert not list(results.glob("figures/.*"))


@pytest.mark.parametrize("name", PLAIN)
def test_no_file_has_a_date_or_needs_a_font(results: Path, name: str) -> None:
    assert "<dc:date>" not in (results / "figures" / f"{name}.svg").read_text()
    assert "<text" not in (results / "figures" / f"{name}.svg").read_text()
    assert b"/CreationDate" not in (results / "figures" / f"{name}.pdf").read_bytes()


@pytest.mark.parametrize("name", PLAIN)
def test_a_rebuild_gives_the_same_bytes(root: Path, results: Path, name: str, tmp_path: Path) -> None:
    figures.draw(name, root, copy_of(root, tmp_path))
    for suffix in ("svg", "pdf", "png"):
        path = Path("figures") / f"{name}.{suffix}"
        assert (tmp_path / path).read_bytes() == (results / path).read_bytes()


def test_the_script_gives_the_same_bytes_in_another_process(root: Path, results: Path, tmp_path: Path) -> None:
    copy_of(root, tmp_path)
    arguments = ["--data", root, "--results", tmp_path, "--figures", "throughput"]
    subprocess.run([sys.executable, SCRIPT, *arguments], check=True, env={"PYTHONHASHSEED": "11"})
    drawn, expected = (folder / "figures" / "throughput.svg" for folder in (tmp_path, results))
    assert drawn.read_bytes() == expected.read_bytes()


def test_the_script_refuses_an_unknown_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["plot_figures.py", "--data", ".", "--results", ".", "--figures", "pie"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_asking_for_the_names_loads_no_plotting_library() -> None:
    code = "import sys, sharebench.figures as f; list(f.NAMES); assert not {'matplotlib', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SCRIPT.parent)


@pytest.mark.parametrize("name", ["latency", "throughput"])
def test_what_has_no_value_is_marked(results: Path, name: str) -> None:
    assert texts(results / "figures" / f"{name}.svg").count("mig infeasible") == 2


def test_a_number_of_tenants_in_the_legend_where_it_is_not_the_largest(results: Path) -> None:
    found = texts(results / "figures" / "distribution.svg")
    assert {"exclusive (N = 1)", "time-slicing", "mps", "mig (N = 2)", "matmul, N = 4"} <= set(found)


def test_a_real_gpu_has_no_label_and_a_subset_says_what_is_left_out(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path, label="", strategies=["exclusive", "mig"])
    manifest = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(manifest.replace('"not_shown": ""', '"not_shown": "Not shown: mps."'))
    figures.draw("throughput", root, root)
    found = texts(root / "figures" / "throughput.svg")
    assert fabricated.LABEL not in " ".join(found)
    assert "Not shown: mps." in found
    assert LOOKS["mig"].color in (root / "figures" / "throughput.svg").read_text()
    assert LOOKS["time-slicing"].color not in (root / "figures" / "throughput.svg").read_text()


@pytest.mark.parametrize("name", PLAIN)
def test_a_figure_without_data_says_so(root: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(root, tmp_path)
    for table in ("cells", "summary"):
        path = folder / "tables" / f"{table}.csv"
        rows = pd.read_csv(path)
        rows[rows["status"] == "infeasible"].to_csv(path, index=False)
    page = MODULES[name].draw(data.load(root, folder))
    assert "no valid" in said(page)
    assert any("mig" in words for words in page.words)


@pytest.mark.parametrize("name", PLAIN)
def test_a_figure_of_an_empty_table_says_so(root: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(root, tmp_path)
    for table in ("cells", "summary"):
        path = folder / "tables" / f"{table}.csv"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "Nothing to draw" in said(MODULES[name].draw(data.load(root, folder)))


def rows_of(study: data.Study, strategy: str, workload: str = "matmul") -> pd.DataFrame:
    table = data.summary(study)
    return table[(table["strategy"] == strategy) & (table["workload"] == workload)].sort_values("replicas")


def test_latency_shows_the_summary_in_milliseconds(study: data.Study) -> None:
    page = latency.draw(study)
    rows, ax = rows_of(study, "mps"), page.axes[0]
    line, thin = line_of(ax, "mps"), line_of(ax, "mps", thick=False)
    assert line.get_ydata() == pytest.approx(1e3 * rows["latency_p50_seconds"])
    assert np.array(line.get_xdata(), dtype=float).round() == pytest.approx([1, 2, 4])
    assert thin.get_ydata() == pytest.approx(1e3 * rows["latency_p99_seconds"], nan_ok=True)
    bars = next(bars for bars in ax.containers if bars.lines[0] is line).lines[2][0].get_segments()
    ends = 1e3 * rows[["latency_p50_seconds_low", "latency_p50_seconds_high"]].to_numpy()
    assert np.array(bars)[:, :, 1] == pytest.approx(ends)
    assert ax.get_yscale() == "log" and ax.get_ylabel() == "Latency (ms)"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4"]


def test_intervals_without_spread_do_not_end_on_the_wrong_side(study: data.Study, tmp_path: Path) -> None:
    copy_of(study.results, tmp_path)
    path = tmp_path / "tables" / "summary.csv"
    table = pd.read_csv(path)
    table["latency_p50_seconds_low"] = table["latency_p50_seconds"] * (1 + 1e-15)
    table["latency_p50_seconds_high"] = table["latency_p50_seconds"] * (1 - 1e-15)
    table.to_csv(path, index=False)
    assert latency.draw(data.load(study.data, tmp_path)).axes


def test_throughput_has_the_ideal_line(study: data.Study) -> None:
    page = throughput.draw(study)
    ax = page.axes[0]
    alone_hz = rows_of(study, "exclusive")["throughput_total_hz"].iloc[0]
    ideal = next(line for line in ax.get_lines() if line.get_color() == style.GREY)
    assert ideal.get_ydata() == pytest.approx(ideal.get_xdata() * alone_hz)
    assert (ideal.get_xdata()[0], ideal.get_xdata()[-1]) == pytest.approx((1, 4))
    assert "ideal: N devices" in [text.get_text() for text in ax.texts]
    assert ax.get_ylim()[0] == 0
    total_hz = rows_of(study, "time-slicing")["throughput_total_hz"]
    assert line_of(ax, "time-slicing").get_ydata() == pytest.approx(total_hz)


def test_wide_ranges_of_tenants_are_logarithmic(study: data.Study, tmp_path: Path) -> None:
    copy_of(study.results, tmp_path)
    path = tmp_path / "tables" / "summary.csv"
    table = pd.read_csv(path)
    table["replicas"] = table["replicas"].replace({4: 48})
    table.to_csv(path, index=False)
    ax = throughput.draw(data.load(study.data, tmp_path)).axes[0]
    one, two, many = ax.get_xticks()
    assert (many - one) / (two - one) == pytest.approx(np.log2(48))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "48"]


def test_distribution_is_the_share_of_iterations_up_to_each_bound(study: data.Study) -> None:
    page = distribution.draw(study)
    line = line_of(page.axes[0], "mig")
    sample = next(sample for sample in data.samples(study) if sample.strategy == "mig")
    upper_seconds, count = data.histogram(study, sample)
    assert line.get_xdata()[1:] == pytest.approx(1e3 * upper_seconds)
    assert line.get_ydata()[1:] == pytest.approx(count.cumsum() / count.sum())
    assert line.get_drawstyle() == "steps-post"
    assert page.axes[0].get_xscale() == "log"


def test_overflow_leaves_the_distribution_below_one(study: data.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "histogram", lambda *_: (np.array([0.01, 0.02, np.inf]), np.array([2.0, 1.0, 1.0])))
    line = line_of(distribution.draw(study).axes[0], "mps")
    assert list(line.get_ydata()) == [0, 0.5, 0.75]


def test_timeline_shows_the_mean_of_every_slot_of_every_tenant(study: data.Study) -> None:
    page = timeline.draw(study)
    sliced = page.axes[1]
    assert sliced.get_title(loc="left") == "matmul\ntime-slicing, N = 4"
    tenants = data.timelines(study, data.Sample("time-slicing", "matmul", 4, 4, 1, ""))
    assert len(sliced.get_lines()) == len(tenants) == 4
    for line, tenant in zip(sliced.get_lines(), tenants, strict=True):
        expected = 1e3 * np.array(tenant["sum_seconds"]) / np.array(tenant["count"])
        assert line.get_ydata() == pytest.approx(expected)
        assert line.get_xdata()[0] == pytest.approx(tenant["slot_seconds"] / 2)
    assert len({ax.get_ylim() for ax in page.axes[:4]}) == 1
    assert page.axes[0].get_ylim() != page.axes[4].get_ylim()
    assert sliced.get_xlim() == pytest.approx((0, 2))


def test_an_empty_slot_is_a_gap(study: data.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = {"slot_seconds": 0.1, "count": [2, 0, 1, 0], "sum_seconds": [0.04, 0, 0.05, 0]}
    monkeypatch.setattr(data, "timelines", lambda *_: [slots])
    line = timeline.draw(study).axes[0].get_lines()[0]
    assert line.get_ydata() == pytest.approx([20, np.nan, 50, np.nan], nan_ok=True)
    assert line.get_markevery() == [0, 2]


def test_nothing_is_left_of_a_figure_that_cannot_be_drawn(
    study: data.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = throughput.draw(study)
    sheet.save(page, tmp_path, "figure")
    before = (tmp_path / "figure.svg").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space"):
        sheet.save(page, tmp_path, "figure")
    assert (tmp_path / "figure.svg").read_bytes() == before


def test_long_subtitles_break_between_facts(study: data.Study) -> None:
    node = study.node | {"product": "An accelerator with a name that its maker likes a lot" + ", 141 GB" * 5}
    page = throughput.draw(data.Study(study.data, study.results, study.config, node, "word " * 45))
    page.figure.draw_without_rendering()
    title, *subtitle, foot, last = page.figure.texts
    lines = [text.get_text() for text in subtitle]
    assert len(lines) == 2
    assert " · ".join(lines) == f"{node['product']} · {fabricated.LABEL} · 2 s window · 3 repeats"
    assert foot.get_text().startswith("word word") and last.get_text().endswith("word")
    boxes = [text.get_window_extent() for text in (title, *subtitle)]
    boxes += [page.figure.legends[0].get_window_extent(), page.axes[0].get_tightbbox()]
    boxes += [text.get_window_extent() for text in (foot, last)]
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(boxes))
    assert all(box.x1 <= page.figure.bbox.width and box.y0 >= 0 for box in boxes)
