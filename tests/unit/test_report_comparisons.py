"""The report's section on comparisons: strategies, the baseline against itself, and tenants together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.records.tables import frame
from sharebench.report import page
from sharebench.report.sections.comparisons import together

CONTRAST = {
    "strategy": "mps", "reference": "time-slicing", "workload": "matmul", "tenant_workload": "matmul", "replicas": 4,
    "ratio": 0.482, "ratio_low": 0.461, "ratio_high": 0.504, "n": 3, "n_reference": 3, "paired": True,
    "p": 0.0021, "p_holm": 0.0042, "separable": "yes", "reason": "",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def text(root: Path) -> str:
    """The section's text, tags and line breaks left out; empty without the section."""
    page.write(root, root)
    html = (root / "report.html").read_text(encoding="utf-8")
    found = re.search(r'<section id="comparisons">(.*?)</section>', html, flags=re.DOTALL)
    assert ('href="#comparisons"' in html) == bool(found)
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split()) if found else ""


def change_summary(root: Path, of_strategy: str, **columns: Any) -> None:
    """Set these columns of the rows of `matmul` under this strategy."""
    path = root / "tables" / "summary.csv"
    summary = pd.read_csv(path)
    chosen = (summary["strategy"] == of_strategy) & (summary["workload"] == "matmul")
    for column, value in columns.items():
        summary[column] = summary[column].astype(object)
        summary.loc[chosen, column] = value
    summary.to_csv(path, index=False)


def test_without_anything_to_compare_there_is_no_such_section(root: Path) -> None:
    assert text(root) == ""


def test_devices_are_held_against_each_other_where_there_are_several(root: Path) -> None:
    alone = {"strategy": "exclusive", "workload": "matmul", "tenant_workload": "matmul", "replicas": 1}
    spread = {"between_devices_percent": 1.234, "within_device_percent": 0.5}
    rows = [alone | spread | {"device": device} for device in ("aa", "bb")]
    rows += [row | {"workload": "hashing", "within_device_percent": None} for row in rows]
    rows += [row | {"strategy": "mps", "between_devices_percent": 7.0} for row in rows[:2]]
    frame("devices", rows).to_csv(root / "tables" / "devices.csv", index=False)
    found = text(root).replace("&nbsp;", " ")
    assert "1.23 % with matmul (2 devices; 0.50 % on one device), 1.23 % with hashing (2 devices)." in found
    assert "7.00" not in found


def test_declared_comparisons_have_ratio_interval_and_adjusted_p(root: Path) -> None:
    rows = [CONTRAST, CONTRAST | {"strategy": "mig", "separable": "no", "p_holm": 0.4}]
    rows.append(
        CONTRAST | {"workload": "hashing", "ratio": None, "p_holm": None, "separable": "", "reason": "no <slices>"}
    )
    pd.DataFrame(rows).to_csv(root / "tables" / "contrasts.csv", index=False)
    found = text(root)
    assert "mps time-slicing matmul 4 0.482 0.461 – 0.504 0.0042" in found
    assert re.search(r"mig time-slicing matmul 4 .* 0\.4 not separable", found)
    assert "matmul in hashing 4 – – no &lt;slices&gt;" in found


def test_the_baseline_against_itself_is_said_in_a_sentence(root: Path) -> None:
    change_summary(root, "mig", strategy="exclusive-again", slowdown=1.0123, slowdown_low=0.98, slowdown_high=1.04)
    assert "It took 1.01 (0.98 to 1.04) times as long with matmul" in text(root)


def test_metrics_of_several_tenants_have_a_table(root: Path) -> None:
    change_summary(root, "mps", antt=2.11, stp=1.9, stp_low=1.8, stp_high=2.0, jain_index=0.987, worst_slowdown=2.5)
    found = text(root)
    assert "What the tenants of matmul make of the device together" in found
    assert found.count("2.11 1.90 1.80 – 2.00 – 0.987 2.50 –") == 2, "two and four tenants, not one"


def test_a_mix_has_one_row_for_all_its_workloads() -> None:
    row = {"strategy": "mps", "replicas": 2, "antt": 3.0, "tenant_workload": "light"}
    rows = {"both": [row, row | {"tenant_workload": "heavy"}, row | {"replicas": 1}], "alone": [row | {"replicas": 1}]}
    assert together(rows) == {"both": [row]}
