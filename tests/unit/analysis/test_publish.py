"""summary.md, the readable summary."""

import re

import numpy as np
import pytest
from unit.factories import record

from sharebench.model.records.references import device_name
from sharebench.read import text as publish
from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.tables.summary import summary_table
from sharebench.study.cells import Cell


@pytest.fixture
def summary():
    """Baseline, a strategy with short samples, and one that the device cannot do."""
    records = [record("exclusive", [np.full(400, mean)], repeat=k) for k, mean in ((1, 0.0040), (2, 0.0041))]
    records += [record("mps_50%", [np.full(100, mean)] * 2, repeat=k) for k, mean in ((1, 0.0122), (2, 0.0124))]
    records += [record("mig", status="infeasible", reason="8 > 7 | slices", replicas=8, repeat=1)]
    cells = [reduce_record(each) for each in records]
    expected = [Cell(cell.strategy, cell.workload, cell.replicas, cell.repeat) for cell in cells]
    expected = [(cell, "matmul") for cell in [*expected, Cell("mig", "matmul", 8, 2)]]
    return summary_table(cells, expected, Baseline(cells, "exclusive"))


def test_a_mix_has_a_row_by_tenant_workload():
    mix = record("mps", [np.full(400, 0.002), np.full(400, 0.016)], workload="both", tenants_run=["light", "heavy"])
    parts = split_by_workload(mix, reduce_record(mix))
    expected = [(Cell("mps", "both", 2, 1), name) for name in ("light", "heavy")]
    text = publish.summary_markdown(summary_table(parts, expected, Baseline([], None)), "A caption.")
    assert [row.split("|")[2].strip() for row in text.splitlines() if row.startswith("| mps")] == [
        "light in both",
        "heavy in both",
    ]


def rows_of(markdown):
    """Cells of the Markdown table's rows, by strategy; `|` inside a cell is escaped."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return dict(zip(split[0], range(99), strict=False)), {cells[0]: cells for cells in split[2:]}


def test_markdown_shows_milliseconds_with_intervals_and_explains_blanks(summary):
    text = publish.summary_markdown(summary, "Caption.")
    assert text.startswith("Caption.\n\n|")
    column, rows = rows_of(text)
    assert list(rows) == ["exclusive", "mps_50%", "mig"]
    mps = rows["mps_50%"]
    assert re.fullmatch(r"12\.3 \[11\.\d, 13\.\d\]", mps[column["mean (ms)"]])
    assert mps[column["p95 (ms)"]] == "12.3"
    assert mps[column["p99 (ms)"]] == "-"
    assert mps[column["tenants"]] == "2"
    assert mps[column["total (1/s)"]].startswith("100 [")
    assert re.fullmatch(r"3\.0\d \[\d\.\d\d, \d\.\d\d\]", mps[column["slowdown"]])
    assert mps[column["cells"]] == "2 (1)"
    assert "- (1) p99 needs 299 iterations, had 200 (windows of about 3 s have as many)\n" in text
    mig = rows["mig"]
    assert mig[column["mean (ms)"]] == "infeasible"
    assert mig[column["cells"]] == "0 of 2 (2)"
    assert "- (2) 8 > 7 | slices; 1 of 2 cells missing; 1 of 2 cells infeasible\n" in text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0123456, "12.3"), (1.2345, "1234"), (0.000001234, "0.00123"), (0.09996, "100.0"), (0.1, "100")],
)
def test_numbers_keep_three_figures_and_no_exponent(summary, seconds, shown):
    row = summary.iloc[0].to_dict() | {"latency_p50_seconds": seconds}
    assert publish._value(row, publish.METRIC_LOOKS[1]) == shown


def test_the_caption_names_device_window_and_repeats():
    text = publish.caption(device="Xeon", window_seconds=2, repeats="3 repeats", remarks=["Not shown: mps.", ""])
    assert text == ("Xeon, 2 s window, 3 repeats. Geometric means over repeats, with 95 % intervals. Not shown: mps.")


def test_a_device_that_is_no_real_gpu_is_named_with_its_label():
    named = {"Xeon": "CPU stand-in, not a GPU", "A100 (simulated)": "simulated", "A100": ""}
    names = [device_name({"product": product, "label": label}) for product, label in named.items()]
    assert names == ["Xeon (CPU stand-in, not a GPU)", "A100 (simulated)", "A100"]


def test_energy_has_a_column_only_where_it_is_known(summary):
    assert "energy" not in publish.summary_markdown(summary, "")
    known = summary.assign(energy_per_iteration_joules=[0.0123456, None, None])
    column, rows = rows_of(publish.summary_markdown(known, ""))
    assert rows["exclusive"][column["energy (J/iteration)"]] == "0.0123"
    assert rows["mps_50%"][column["energy (J/iteration)"]] == "-"
