"""The figures as files, and their contents."""

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from unit.edited import edited_table
from unit.figures import fabricated, serving

from sharebench.core.files import Refusal
from sharebench.model.study_config import from_json
from sharebench.read.figures import catalogue, data, draw, looks, over_replicas, panels, scatter_panels, style
from sharebench.read.figures import page as sheet

pytestmark = pytest.mark.usefixtures("themed")

SCRIPT = Path(__file__).parents[3] / "scripts" / "job.py"
PLAIN = catalogue.names_for({"interference": [], "faults": [], "workloads": []}, "nvidia")
PLAIN.remove("utilisation")  # test_serving.py has a device that counts its activity
IN_ALL_FORMATS = "throughput"
LOOKS = looks.strategy_looks(list(fabricated.MECHANISMS), [])


@pytest.fixture(scope="module")
def results(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results root apart from the data, with every figure drawn, one of them in all formats."""
    return drawn(root, tmp_path_factory.mktemp("results"), *PLAIN)


def drawn(root: Path, folder: Path, *names: str) -> Path:
    copy_of(root, folder)
    for name in names:
        draw.draw_figure(name, root, folder, ("svg",))
    if IN_ALL_FORMATS in names:
        draw.draw_figure(IN_ALL_FORMATS, root, folder)
    return folder


def copy_of(root: Path, folder: Path) -> Path:
    shutil.copytree(root / "tables", folder / "tables")
    shutil.copy(root / "manifest.json", folder)
    return folder


def texts(svg: Path) -> list[str]:
    """The texts of a figure: they are drawn as outlines, and matplotlib writes each as a comment next to them."""
    return re.findall(r"<!-- (.*?) -->", svg.read_text())


def said(page: sheet.Sheet) -> str:
    """All texts of a page that is not drawn yet."""
    return " ".join(text.get_text().replace("\n", " ") for text in page.figure.findobj(Text))


def line_of(ax: object, strategy: str, thick: bool = True) -> Line2D:
    lines = ax.get_lines()  # type: ignore[attr-defined]
    return next(
        line for line in lines if line.get_color() == LOOKS[strategy].color and (line.get_linewidth() > 1) == thick
    )


@pytest.mark.parametrize("name", PLAIN)
def test_every_figure_has_a_description_and_needs_no_date_or_font(results: Path, name: str) -> None:
    svg = results / "figures" / f"{name}.svg"
    assert svg.stat().st_size < 1_000_000
    assert catalogue.ENTRIES[name].title in texts(svg)
    subtitle = next(text for text in texts(svg) if "AMD EPYC" in text)
    for fact in (fabricated.LABEL, "2 s window", "3 repeats"):
        assert fact in subtitle
        assert fact in re.search("<dc:description>(.*?)</dc:description>", svg.read_text())[1]
    assert "<dc:date>" not in svg.read_text() and "<text" not in svg.read_text()


def test_a_figure_comes_in_three_formats(results: Path) -> None:
    pdf, png = ((results / f"figures/{IN_ALL_FORMATS}.{suffix}").read_bytes() for suffix in ("pdf", "png"))
    assert pdf.startswith(b"%PDF") and png.startswith(b"\x89PNG")
    assert fabricated.LABEL.encode() in png and b"/CreationDate" not in pdf
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf, "whole fonts, as publishers want them"
    assert not list(results.glob("figures/.*"))


@pytest.mark.thorough
def test_the_script_gives_the_same_bytes_in_another_process(root: Path, results: Path, tmp_path: Path) -> None:
    copy_of(root, tmp_path)
    arguments = ["--data", root, "--results", tmp_path, "--figures", "throughput"]
    subprocess.run([sys.executable, SCRIPT, "figures", *arguments], check=True, env={"PYTHONHASHSEED": "11"})
    drawn, expected = (folder / "figures" / "throughput.svg" for folder in (tmp_path, results))
    assert drawn.read_bytes() == expected.read_bytes()


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(Refusal, match="no figure 'pie'; use one of latency, "):
        draw.draw_figures(Path(), Path(), ["pie"])


def test_a_real_gpu_has_no_label_and_a_subset_has_a_remark(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path, label="", strategies=["exclusive", "mig"])
    manifest = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(manifest.replace('"not_shown": ""', '"not_shown": "Not shown: mps."'))
    draw.draw_figure("throughput", root, root)
    found = texts(root / "figures" / "throughput.svg")
    assert fabricated.LABEL not in " ".join(found)
    assert "Not shown: mps." in found
    assert LOOKS["mig"].color in (root / "figures" / "throughput.svg").read_text()
    assert LOOKS["time-slicing"].color not in (root / "figures" / "throughput.svg").read_text()


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "startup"])
def test_a_figure_without_data_is_explained(root: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(root, tmp_path)
    for table in ("cells", "summary"):
        path = folder / "tables" / f"{table}.csv"
        rows = pd.read_csv(path)
        rows[rows["status"] == "infeasible"].to_csv(path, index=False)
    fabricated.decide_again(folder, root)
    page = draw.DRAWERS[name](data.load_study(root, folder))
    assert "no valid" in said(page)
    # The other empty tables derive from the cells, and their figures give the reason.
    assert any("mig" in words for words in page.alt_text)


@pytest.mark.parametrize("name", PLAIN)
def test_a_figure_of_an_empty_table_is_explained(root: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(root, tmp_path)
    for table in ("cells", "summary", "startup"):
        path = folder / "tables" / f"{table}.csv"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    fabricated.decide_again(folder, root)
    assert "Nothing to draw" in said(draw.DRAWERS[name](data.load_study(root, folder)))


def rows_of(study: data.DrawnStudy, strategy: str, workload: str = "matmul") -> pd.DataFrame:
    table = study.table("summary")
    return table[(table["strategy"] == strategy) & (table["workload"] == workload)].sort_values("replicas")


def test_latency_shows_the_summary_in_milliseconds(study: data.DrawnStudy) -> None:
    page = over_replicas.latency(study)
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


def test_intervals_without_spread_do_not_end_on_the_wrong_side(study: data.DrawnStudy, tmp_path: Path) -> None:
    copy_of(study.results, tmp_path)
    with edited_table(tmp_path / "tables" / "summary.csv") as table:
        table["latency_p50_seconds_low"] = table["latency_p50_seconds"] * (1 + 1e-15)
        table["latency_p50_seconds_high"] = table["latency_p50_seconds"] * (1 - 1e-15)
    assert over_replicas.latency(data.load_study(study.data, tmp_path)).axes


def test_an_interval_that_begins_at_zero_leaves_the_panel(study: data.DrawnStudy, tmp_path: Path) -> None:
    copy_of(study.results, tmp_path)
    with edited_table(tmp_path / "tables" / "summary.csv") as table:
        table["latency_p50_seconds_low"] = 0.0
        lowest_ms = 1e3 * table.loc[table["workload"] == "matmul", "latency_p50_seconds"].min()
    ax = over_replicas.latency(data.load_study(study.data, tmp_path)).axes[0]
    assert ax.get_ylim()[0] == pytest.approx(lowest_ms / 1.25)


def without_a_value(study: data.DrawnStudy, folder: Path) -> data.DrawnStudy:
    """The study with `mps` at two tenants excluded by a gate."""
    copy_of(study.results, folder)
    with edited_table(folder / "tables" / "summary.csv") as table:
        excluded = (table["strategy"] == "mps") & (table["replicas"] == 2)
        table.loc[excluded, "n"] = 0
        table.loc[excluded, table.columns.str.startswith(("latency", "throughput", "slowdown"))] = np.nan
    return data.load_study(study.data, folder)


def test_a_line_stops_where_there_is_no_value(study: data.DrawnStudy, tmp_path: Path) -> None:
    ax = over_replicas.latency(without_a_value(study, tmp_path)).axes[0]
    y = np.array(line_of(ax, "mps").get_ydata(), dtype=float)
    assert np.isnan(y).tolist() == [False, True, False]


def test_missing_values_are_named_between_panel_and_ticks(study: data.DrawnStudy, tmp_path: Path) -> None:
    page = over_replicas.latency(without_a_value(study, tmp_path))
    page.figure.draw_without_rendering()
    for ax in page.axes:
        labels = {text.get_text(): text.get_window_extent() for text in ax.texts}
        assert set(labels) == {"MPS: excluded by a gate at 2", "MIG: infeasible at 4"}
        ticks = [tick.get_window_extent() for tick in ax.get_xticklabels()]
        for box in labels.values():
            assert box.y1 <= ax.bbox.y0 and all(tick.y1 <= box.y0 + 1 for tick in ticks)


def test_the_legend_of_percentiles_names_what_is_drawn(study: data.DrawnStudy) -> None:
    table = study.plain_summary().assign(latency_p99_seconds=None, latency_p50_seconds_low=0.1)
    keys = [each.get_label() for each in panels.percentile_keys(table, ["latency"])]
    assert keys == ["p50, bars: 95 % interval"]
    table = table.assign(latency_p99_seconds=0.1, latency_p50_seconds_low=None)
    assert [each.get_label() for each in panels.percentile_keys(table, ["latency"])] == ["p50", "p99"]


def test_ends_that_lie_close_together_share_a_number() -> None:
    ax = Figure().add_subplot(xlim=(0, 10), ylim=(1, 100), yscale="log")
    scatter_panels.label_ends(ax, [(7, 5, 10), (7, 5.2, 10.5), (3, 5, 10), (7, 5, 50)])
    assert [text.get_text() for text in ax.texts] == ["7", "3", "7"]


def test_throughput_has_the_ideal_line(study: data.DrawnStudy) -> None:
    page = over_replicas.throughput(study)
    ax = page.axes[0]
    alone_hz = rows_of(study, "exclusive")["throughput_total_hz"].iloc[0]
    ideal = next(line for line in ax.get_lines() if line.get_color() == style.GREY)
    assert ideal.get_ydata() == pytest.approx(ideal.get_xdata() * alone_hz)
    assert (ideal.get_xdata()[0], ideal.get_xdata()[-1]) == pytest.approx((1, 4))
    assert "ideal: N devices" in [text.get_text() for text in page.figure.legends[0].get_texts()]
    assert ax.get_ylim()[0] == 0
    total_hz = rows_of(study, "time-slicing")["throughput_total_hz"]
    assert line_of(ax, "time-slicing").get_ydata() == pytest.approx(total_hz)


def test_wide_ranges_of_tenants_are_logarithmic(study: data.DrawnStudy, tmp_path: Path) -> None:
    copy_of(study.results, tmp_path)
    with edited_table(tmp_path / "tables" / "summary.csv") as table:
        table["replicas"] = table["replicas"].replace({4: 48})
    ax = over_replicas.throughput(data.load_study(study.data, tmp_path)).axes[0]
    one, two, many = ax.get_xticks()
    assert (many - one) / (two - one) == pytest.approx(np.log2(48))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "48"]


@pytest.mark.parametrize("name", ["progress", "power"])
def test_a_scatter_panel_has_one_metric_across_and_one_up(study: data.DrawnStudy, tmp_path: Path, name: str) -> None:
    across, up = {"progress": ("stp", "antt"), "power": ("throughput_total_hz", "power_mean_watts")}[name]
    copy_of(study.results, tmp_path)
    with edited_table(tmp_path / "tables" / "summary.csv") as table:
        table["antt"], table["stp"] = table["slowdown"], table["replicas"] / table["slowdown"]
        table["power_mean_watts"] = 100 + 10 * table["replicas"]
        for metric in ("antt", "stp", "power_mean_watts"):
            table[f"{metric}_low"], table[f"{metric}_high"] = 0.9 * table[metric], 1.1 * table[metric]
    ax = draw.DRAWERS[name](data.load_study(study.data, tmp_path)).axes[0]
    rows = table[(table["strategy"] == "mps") & (table["workload"] == "matmul")].sort_values("replicas")
    line = next(bars.lines[0] for bars in ax.containers if bars.lines[0].get_color() == LOOKS["mps"].color)
    assert line.get_xdata() == pytest.approx(rows[across])
    assert line.get_ydata() == pytest.approx(rows[up])
    ends = {text.get_text(): text.xy for text in ax.texts if isinstance(text, Annotation)}
    assert set(ends) == {"1", "2", "4"}, "exclusive and mig end before four"


def test_every_figure_of_the_catalogue_can_be_drawn() -> None:
    assert list(draw.DRAWERS) == [*catalogue.ENTRIES, "answers", "timeslice", "strips", "devices"]
    assert all(drawer.__name__ == name.replace("-", "_") for name, drawer in draw.DRAWERS.items())


def test_a_figure_exists_only_for_studies_with_its_data() -> None:
    plain, served = from_json(fabricated.config()), from_json(serving.config())
    of_jobs = {"matmul": plain["workload_catalogue"]["matmul"].changed(kind="job")}
    jobs = plain | {"workload_catalogue": plain["workload_catalogue"] | of_jobs}
    not_asked_for = jobs | {"workloads": ["hashing"]}
    swept = catalogue.names_for(served, "cpu")
    unswept = {name: entry.changed(sweep=None) for name, entry in served["workload_catalogue"].items()}
    served |= {"workload_catalogue": unswept}
    found = {
        "power": (catalogue.names_for(plain, "nvidia"), catalogue.names_for(plain, "simulated")),
        "utilisation": (catalogue.names_for(plain, "nvidia"), catalogue.names_for(plain, "cpu")),
        "interference": (catalogue.names_for(plain | {"interference": ["matmul"]}, "cpu"), PLAIN),
        "isolation": (catalogue.names_for(plain | {"faults": ["killed"]}, "cpu"), PLAIN),
        "jobs": (catalogue.names_for(jobs, "cpu"), catalogue.names_for(not_asked_for, "cpu")),
        "serving": (catalogue.names_for(served, "cpu"), PLAIN),
        "load-curve": (swept, catalogue.names_for(served, "cpu")),
    }
    for name, (there, elsewhere) in found.items():
        assert name in there and name not in elsewhere, name


def test_long_texts_stay_on_the_page_and_off_the_panels(study: data.DrawnStudy) -> None:
    node = study.node | {"product": "An accelerator with a name that its maker likes a lot" + ", 141 GB" * 5}
    page = over_replicas.throughput(data.DrawnStudy(study.data, study.results, study.config, node, "word " * 45))
    sheet.explain_blank(
        page, page.axes[1], "matmul, mps-limited-200: no valid cell, nor a valid baseline in its block or another"
    )
    page.figure.draw_without_rendering()
    title, *subtitle, foot, last = page.figure.texts
    lines = [text.get_text() for text in subtitle]
    assert len(lines) == 2
    assert " ".join(lines) == f"{node['product']} · {fabricated.LABEL} · 2 s window · 3 repeats"
    assert foot.get_text().startswith("word word") and last.get_text().endswith("word")
    boxes = [text.get_window_extent() for text in (title, *subtitle)]
    boxes += [page.figure.legends[0].get_window_extent(), page.axes[0].get_tightbbox()]
    boxes += [text.get_window_extent() for text in (foot, last)]
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(boxes))
    assert all(box.x1 <= page.figure.bbox.width and box.y0 >= 0 for box in boxes)
    said = page.axes[1].texts[-1].get_window_extent()
    assert page.axes[1].bbox.x0 <= said.x0 and said.x1 <= page.axes[1].bbox.x1
