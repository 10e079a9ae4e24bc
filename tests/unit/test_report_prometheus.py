"""What Prometheus would have said, in the report: there where it watched, and nowhere else."""

import json
from pathlib import Path

import pandas as pd
import pytest
from unit import factories
from unit.figures import fabricated

from sharebench.analysis.tables.prometheus import prometheus_rows
from sharebench.records.tables import frame
from sharebench.report import page

SVG = '<svg width="252pt" xmlns="http://www.w3.org/2000/svg"><dc:description>coarse</dc:description></svg>'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def table() -> pd.DataFrame:
    rows = []
    for repeat, missing in ((1, 0.0), (2, 8.0)):
        measured = factories.record("mps", repeat=repeat)
        measured["cell"]["workload"] = "matmul"
        rows += prometheus_rows(factories.watched(measured, count=400 - missing))
    rows[1]["restarted"] = True
    return frame("prometheus", rows)


def test_a_study_that_nobody_watched_says_nothing_of_it(root: Path) -> None:
    page.write(root, root)
    assert "Prometheus would have said" not in (root / "report.html").read_text(encoding="utf-8")


def test_both_sides_stand_beside_each_other_with_the_worst_of_what_may_be_wrong(root: Path) -> None:
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["config"]["prometheus"] = {"url": "http://prometheus", "buckets": None}
    (root / "manifest.json").write_text(json.dumps(manifest))
    (root / "tables/prometheus.csv").write_text(table().to_csv(index=False))
    (root / "figures").mkdir()
    (root / "figures/buckets.svg").write_text(SVG)
    page.write(root, root)
    text = (root / "report.html").read_text(encoding="utf-8")
    section = text.split('<section id="prometheus">')[1].split("</section>")[0]
    assert "What Prometheus would have said" in section
    # Mean and median of the record, the quantile of 5.5 ms that it gave, how wide its bucket is, the worst count.
    for number in ("5.00", "5.50", "81.8", "-2.00"):
        assert f">{number}<" in section, number
    assert "Prometheus was started anew in a window" in section
    assert "What coarse buckets hide" in section and "data:image/svg+xml" in section
    assert 'href="#prometheus"' in text
