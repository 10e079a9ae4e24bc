"""The figures of streaming servers: TTFT and TPOT by tenants, the curve of a sweep, and the device's activity."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from unit.figures import fabricated, serving
from unit.figures.test_pages import line_of

from sharebench.model.study_config import from_json
from sharebench.read.figures import catalogue, data, draw, load_curve, over_replicas, scatter_panels, style

pytestmark = pytest.mark.usefixtures("themed")

NEW = ("serving", "load-curve", "utilisation")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> data.DrawnStudy:
    return serving.study(tmp_path_factory.mktemp("serving") / "results")


def rows_of(study: data.DrawnStudy, strategy: str) -> pd.DataFrame:
    table = study.table("summary")
    return table[table["strategy"] == strategy].sort_values("replicas", kind="stable")


def heights(ax: object) -> list[float]:
    """The y values of the lines across the whole panel."""
    return [line.get_ydata()[0] for line in ax.get_lines() if line.get_color() == style.GREY]  # type: ignore[attr-defined]


def test_serving_has_ttft_and_tpot_of_each_stream_with_their_slo(study: data.DrawnStudy) -> None:
    page = over_replicas.serving(study)
    titles = [ax.get_title(loc="left") for ax in page.axes]
    assert titles == [f"{name}\n{part}" for name in serving.SWEEP for part in ("TTFT", "TPOT")]
    rows = rows_of(study, "mps").query("workload == 'llm-concurrency-4'")
    for ax, part, slo_ms in zip(page.axes[2:4], ("ttft", "tpot"), (300, 40), strict=True):
        assert line_of(ax, "mps").get_ydata() == pytest.approx(1e3 * rows[f"{part}_p50_seconds"])
        assert line_of(ax, "mps", thick=False).get_ydata() == pytest.approx(1e3 * rows[f"{part}_p99_seconds"])
        assert heights(ax) == [slo_ms] and ax.get_ylim()[1] > slo_ms
    assert "llm-concurrency-1, TTFT: mig at 4 tenants is infeasible" in page.alt_text
    assert "SLO: TTFT 300 ms, TPOT 40 ms" in [text.get_text() for text in page.figure.legends[0].get_texts()]


def test_a_workload_that_does_not_stream_has_no_panel_of_serving(study: data.DrawnStudy) -> None:
    entries = study.config["workload_catalogue"]
    silent = {"llm-concurrency-1": entries["llm-concurrency-1"].changed(stream=False)}
    changed = replace(study, config=study.config | {"workload_catalogue": entries | silent})
    assert len(over_replicas.serving(changed).axes) == 4


def test_the_curve_goes_through_the_loads_and_one_alone_is_in_every_panel(study: data.DrawnStudy) -> None:
    page = load_curve.load_curve(study)
    titles = [ax.get_title(loc="left") for ax in page.axes]
    assert titles == [f"llm\n{part}, N = {n}" for part in ("TTFT", "TPOT") for n in (1, 2, 4)]
    rows, ax = rows_of(study, "mps").query("replicas == 4"), page.axes[2]
    line = line_of(ax, "mps")
    assert line.get_xdata() == pytest.approx(rows["output_tokens_total_hz"])
    assert line.get_ydata() == pytest.approx(1e3 * rows["ttft_p50_seconds"])
    assert line_of(ax, "mps", thick=False).get_ydata() == pytest.approx(1e3 * rows["ttft_p99_seconds"])
    alone = rows_of(study, "exclusive")
    assert line_of(ax, "exclusive").get_xdata() == pytest.approx(alone["output_tokens_total_hz"])
    assert [text.get_text() for text in ax.texts if text.get_text()].count("16") == 3, "of three lines"
    assert [text.get_text() for text in page.axes[0].texts] == ["1", "4", "16"], "one for points that lie together"
    assert heights(ax) == [300] and heights(page.axes[5]) == [40]
    assert len({other.get_ylim() for other in page.axes[:3]}) == 1
    assert "llm-concurrency-16: mig at 4 tenants is infeasible" in page.alt_text
    assert "at each point: requests in flight per tenant" in page.alt_text


def test_a_sweep_without_streams_shows_requests_and_latencies(study: data.DrawnStudy) -> None:
    entries = study.config["workload_catalogue"]
    silent = {name: entry.changed(stream=False) for name, entry in entries.items()}
    page = load_curve.load_curve(replace(study, config=study.config | {"workload_catalogue": silent}))
    rows, ax = rows_of(study, "mps").query("replicas == 2"), page.axes[1]
    assert ax.get_title(loc="left") == "llm\nlatency, N = 2" and ax.get_xlabel() == "Requests/s of all tenants"
    assert line_of(ax, "mps").get_xdata() == pytest.approx(rows["throughput_total_hz"])
    assert line_of(ax, "mps").get_ydata() == pytest.approx(1e3 * rows["latency_p50_seconds"])


def test_a_long_sweep_has_a_panel_for_some_loads_and_one_curve_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SWEEP", {f"llm-concurrency-{n}": n for n in range(1, 31)})
    swept = serving.study(tmp_path / "results")
    drawn = [1, 5, 9, 13, 18, 22, 26, 30]
    said = "Of the 30 loads of llm, 8 are drawn, evenly spaced; the tables have all."
    for figure in (over_replicas.throughput, scatter_panels.progress):
        page = figure(swept)
        assert [ax.get_title(loc="left") for ax in page.axes] == [f"llm-concurrency-{n}" for n in drawn]
        assert any(said in text for text in page.alt_text)
    page = load_curve.load_curve(swept)
    assert len(line_of(page.axes[0], "mps").get_xdata()) == 30
    assert {text.get_text() for text in page.axes[0].texts} == set(map(str, drawn))
    assert not any(said in text for text in page.alt_text)


def test_replicas_of_one_server_are_not_drawn_by_their_slowdowns(study: data.DrawnStudy) -> None:
    entries = study.config["workload_catalogue"]
    first, *others = serving.SWEEP
    shared = entries[first].load.changed(concurrency=None, concurrency_total=16)
    some = study.config | {"workload_catalogue": entries | {first: entries[first].changed(load=shared)}}
    page = scatter_panels.progress(replace(study, config=some))
    assert [ax.get_title(loc="left") for ax in page.axes] == others
    every = {name: entry.changed(load=shared) for name, entry in entries.items()}
    page = scatter_panels.progress(replace(study, config=study.config | {"workload_catalogue": every}))
    assert page.alt_text[-1] == "Nothing to draw: the summary has no rows of tenants with a load of their own."


def test_a_load_that_was_excluded_is_a_gap(study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    table = study.table("summary")
    gone = (table["strategy"] == "mps") & (table["replicas"] == 4) & (table["workload"] == "llm-concurrency-4")
    table.loc[gone, table.columns.str.contains("seconds|_hz")] = np.nan
    table.loc[gone, "n"] = 0
    monkeypatch.setattr(data.DrawnStudy, "table", lambda *_: table)
    page = load_curve.load_curve(study)
    assert np.isnan(np.array(line_of(page.axes[2], "mps").get_ydata(), dtype=float)).tolist() == [False, True, False]
    assert "llm-concurrency-4: mps at 4 tenants is excluded by a gate" in page.alt_text


def test_utilisation_has_a_panel_for_each_counter(study: data.DrawnStudy) -> None:
    page = over_replicas.utilisation(study)
    assert [ax.get_title(loc="left").split("\n")[1] for ax in page.axes[:3]] == [
        "SMs active",
        "occupancy",
        "DRAM traffic",
    ]
    rows = rows_of(study, "mps").query("workload == 'llm-concurrency-1'")
    assert line_of(page.axes[1], "mps").get_ydata() == pytest.approx(rows["sm_occupancy_percent"])
    assert page.axes[0].get_ylim() == (0, 105) and page.axes[0].get_ylabel() == "Share (%)"


def test_a_device_without_activity_counters_has_no_figure_of_them(tmp_path: Path) -> None:
    root = serving.write(fabricated.write(tmp_path / "results"), with_activity=False)
    page = over_replicas.utilisation(data.load_study(root, root))
    assert "Nothing to draw: the device does not count its activity." in page.alt_text
    path = root / "tables" / "summary.csv"
    config = from_json(serving.config())
    assert "utilisation" not in catalogue.names_for(config, "nvidia", path)
    serving.write(fabricated.write(tmp_path / "other"))
    assert "utilisation" in catalogue.names_for(config, "nvidia", tmp_path / "other/tables/summary.csv")


def test_an_interval_over_decades_leaves_the_panel(study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    table = study.table("summary")
    wide = table["ttft_p50_seconds"] * 1e4
    monkeypatch.setattr(data.DrawnStudy, "table", lambda *_: table.assign(ttft_p50_seconds_high=wide))
    for page in (over_replicas.serving(study), load_curve.load_curve(study)):
        assert page.axes[0].get_ylim()[1] <= 4 * 1e3 * table["ttft_p99_seconds"].max()


@pytest.mark.parametrize("name", NEW)
def test_without_a_valid_cell_there_is_a_reason(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = study.table("summary").assign(n=0, status="hung")
    table = table.assign(**dict.fromkeys(table.columns[table.columns.str.contains("seconds|_hz|percent")], np.nan))
    monkeypatch.setattr(data.DrawnStudy, "table", lambda *_: table)
    page = draw.DRAWERS[name](study)
    texts = [text.get_text() for ax in page.axes for text in ax.texts]
    assert len(page.axes) > 1 and sum("no valid" in text.replace("\n", " ") for text in texts) == len(page.axes)
    assert any("mps at 4 tenants is hung" in words for words in page.alt_text)
