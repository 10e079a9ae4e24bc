"""Tables for findings and documents have ratios where the baseline is steady, and else units."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from unit.edited import edited_table
from unit.papers import alone, data_set, publish

from publication import replication
from publication import tables as paper_tables
from publication.numbers import MissingNumber, Number

SHOWN = {"time-slicing": "TS", "mps": "MPS"}
MARKS = {"unsteady": " *", "once": " ?", "power": " !"}


def test_the_unit_depends_on_the_size() -> None:
    assert paper_tables.format_latency(Number(0.107, 0.1067, 0.1071)) == "107.0 ms (106.7 to 107.1)"
    assert paper_tables.format_latency(Number(1.23e-5)) == "12.3 µs"
    assert paper_tables.format_latency(Number(2.5)) == "2.50 s"
    assert paper_tables.format_latency_range([Number(0.0077), Number(0.0042)]) == "4.20 to 7.70 ms"
    assert [paper_tables.format_rate(hz) for hz in (406.2, 486_000.0)] == ["406/s", "486 k/s"]


def test_the_main_table_is_in_units(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.05])
    data = data_set(tmp_path)
    rows, empty = [(data, "net", "Net")], SimpleNamespace(table=lambda _: data.table("summary").head(0))
    table = paper_tables.main_table(rows, 2, SHOWN, MARKS)
    assert table.splitlines()[0] == "| 2 tenants | one alone | TS | MPS |"
    assert table.splitlines()[2] == "| Net | 1.00 s · 1.00/s | 2.00 s · 12.3 k/s | 1.00 s · 12.3 k/s |"
    for others, shown in (([empty, data, None], "2.00 s, 1.00 s"), ([empty], "")):
        wider = paper_tables.main_table(rows, 2, SHOWN, MARKS, ("there", cast(Any, others)))
        assert wider.splitlines()[0].endswith("| MPS | there |") and wider.endswith(f"12.3 k/s | {shown} |")
    with pytest.raises(MissingNumber, match="no cell with 9 tenants of net"):
        paper_tables.main_table(rows, 9, SHOWN, MARKS)


def test_an_unsteady_baseline_is_given_as_a_range_and_not_divided_by(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.2])
    data = data_set(tmp_path)
    assert "| Net | 1.00 to 1.20 s * |" in paper_tables.main_table([(data, "net", "Net")], 2, SHOWN, MARKS)
    assert "×" not in paper_tables.strategy_table(data, ["mps"], ["net"])
    assert "`net` (1.00 to 1.20 s alone)" in paper_tables.unsteady_clause(data, ["net"])
    # Only the shared cells count, whose bounds are a tenth from their values.
    assert paper_tables.widest_percent(data, 2, ["mps"], ["net"]).value == pytest.approx(10)


def test_a_workload_that_was_measured_once_is_marked(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.05])
    with edited_table(tmp_path / "made/gpu/study/tables/cells.csv") as table:
        table["repeat"] = 1
    assert "| Net ? |" in paper_tables.main_table([(data_set(tmp_path), "net", "Net")], 2, SHOWN, MARKS)


def test_a_workload_at_the_power_limit_is_marked(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.05])
    path = tmp_path / "made/gpu/study/tables/cells.csv"
    cells = pd.read_csv(path)
    pd.concat([cells, cells.assign(workload="huge", sm_clock_mean_mhz=1400)]).to_csv(path, index=False)
    path = path.with_name("summary.csv")
    summary = pd.read_csv(path)
    pd.concat([summary, summary.assign(workload="huge", tenant_workload="huge")]).to_csv(path, index=False)
    data = data_set(tmp_path)
    table = paper_tables.main_table([(data, "net", "Net"), (data, "huge", "Huge")], 2, SHOWN, MARKS)
    assert "| Net |" in table and "| Huge ! |" in table


def test_a_strategys_table_has_a_row_for_each_number_of_tenants(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.05])
    data = data_set(tmp_path)
    (line,) = paper_tables.strategy_table(data, ["mps"], ["net"]).splitlines()[2:]
    assert line == "| 2 | latency × 2.00 (1.90 to 2.10), throughput × 1.00 |"
    both = paper_tables.strategy_table(data, ["time-slicing", "mps"], ["net"])
    assert [line.split(" | ")[1] for line in both.splitlines()[2:]] == ["`time-slicing`", "`mps`"]
    with pytest.raises(MissingNumber, match="no cell of mig"):
        paper_tables.strategy_table(data, ["mig"], ["net"])


def test_spreads_mix_no_repeats(tmp_path: Path) -> None:
    publish(tmp_path)
    # The tenants of the three cells have 100 and 200, 200 and 300, 300 and 400 MiB.
    found = data_set(tmp_path).spreads("memory_mib", strategy="mps")
    assert [each.value for each in found] == pytest.approx([4 / 3, 1.5, 2.0])
    assert data_set(tmp_path).max_over_min("memory_mib", "cells", strategy="mps").value == 4.0


def test_two_studies_of_the_same_cells_are_tested_cell_by_cell(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(tmp_path, "gpu/again")
    one, other = data_set(tmp_path), data_set(tmp_path, "gpu/again")
    same = replication.compare_collections([one], [other])
    assert (same.tested, same.below, same.expected) == (3, [], pytest.approx(0.15))
    with edited_table(tmp_path / "made/gpu/again/tables/cells.csv") as cells:
        cells.loc[cells["strategy"] == "mps", ["slowdown", "latency_mean_seconds"]] *= 2
    moved = replication.compare_collections([one], [data_set(tmp_path, "gpu/again")], "latency_mean_seconds")
    assert moved.below == moved.below_adjusted == [("mps", "net", 2, "net")]
    assert moved.below_text == "`net` under mps × 2" and moved.largest_percent("net") == pytest.approx(100)
    assert moved.ratio("mps", "net", 2).value == pytest.approx(2)
    header, _, row = moved.table.splitlines()
    assert header == "| workload | tested | p < 0.05 | by chance | Holm's p < 0.05 | middle change | largest change |"
    assert row == f"| `net` | {moved.tested} | 1 | {0.05 * moved.tested:.1f} | 1 | 0.0 % | 100.0 % |"
    with pytest.raises(MissingNumber, match="is not in both"):
        moved.ratio("mig", "net", 2)


def test_the_control_has_no_slowdown_of_sharing(tmp_path: Path) -> None:
    for name in ("gpu/study", "gpu/again"):
        publish(tmp_path, name)
        alone(tmp_path, [0.9, 0.95, 1.0], name, "exclusive-again")
        with edited_table(tmp_path / "made" / name / "tables/cells.csv") as cells:
            cells.loc[cells["strategy"] == "exclusive-again", "slowdown"] = [0.99, 1.0, 1.01]
    studies = [data_set(tmp_path)], [data_set(tmp_path, "gpu/again")]
    assert not any(group[0] == "exclusive-again" for group in replication.compare_collections(*studies).p)
    latencies = replication.compare_collections(*studies, "latency_mean_seconds")
    assert ("exclusive-again", "net", 1, "net") in latencies.p


def test_pairs_of_which_one_workload_moved_are_named(tmp_path: Path) -> None:
    pairs = []
    for name in ("gpu/pairs", "gpu/pairs-again"):
        publish(tmp_path, name)
        with edited_table(tmp_path / "made" / name / "tables/cells.csv") as cells:
            cells["workload"] = "big+net"
            cells["tenant_workload"] = cells["tenant"].map({0: "big", 1: "net"})
            if name == "gpu/pairs-again":
                cells.loc[(cells["strategy"] == "mps") & (cells["tenant"] == 1), "slowdown"] *= 2
        pairs.append(data_set(tmp_path, name))
    publish(tmp_path)
    publish(tmp_path, "gpu/again")
    plain = data_set(tmp_path), data_set(tmp_path, "gpu/again")
    found = replication.compare_collections([plain[0], pairs[0]], [plain[1], pairs[1]])
    assert found.tested == 9
    assert found.below == found.below_adjusted == [("mps", "net", 2, "big+net")]
    assert found.below_text == "`net` next to `big` under mps" and found.ratio("mps", "net", 2).value == 1


def test_setup_of_several_visits_has_the_software_of_all(tmp_path: Path) -> None:
    for repeat, (driver, torch) in enumerate([("580.159.03", "2.11.0"), ("580.159.04", "2.11.1")], 1):
        folder = tmp_path / f"cells/mps/net/n2/r{repeat}"
        folder.mkdir(parents=True)
        provenance = {"python": "3.12.3", "packages": {"torch": torch}}
        record = {"node": {"details": {"driver": driver}}, "provenance": provenance}
        (folder / "raw.json").write_text(json.dumps(record))
    data = SimpleNamespace(
        unpacked=tmp_path, device={"kind": "nvidia"}, manifest={"config": {"measured_elsewhere": True}}
    )
    text = paper_tables.setup_list(cast(Any, {"h100/core": data}))
    assert "driver 580.159.03 or 580.159.04" in text and "Python 3.12.3, torch 2.11.0 or 2.11.1." in text
