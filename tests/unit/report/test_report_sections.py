"""Sections of the report that only studies with their data have, and the length of sections."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
import yaml
from unit.edited import edited_json
from unit.figures import fabricated

from sharebench.read.columns import table_frame
from sharebench.read.figures.looks import COLORS
from sharebench.read.report import page
from sharebench.read.report.sections.cards import SWEEP_LOOKS
from sharebench.read.report.sections.comparisons import several_tenants
from sharebench.read.text import METRIC_LOOKS

CONTRAST = {
    "strategy": "mps", "reference": "time-slicing", "workload": "matmul", "tenant_workload": "matmul", "replicas": 4,
    "ratio": 0.482, "ratio_low": 0.461, "ratio_high": 0.504, "n": 3, "n_reference": 3, "paired": True,
    "p": 0.0021, "p_holm": 0.0042, "separable": "yes", "reason": "",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def html_of(root: Path, section: str) -> str:
    """The section of the written report; empty if it is missing."""
    page.write_report(root, root)
    html = (root / "report.html").read_text(encoding="utf-8")
    found = re.search(rf'<section id="{section}">(.*?)</section>', html, flags=re.DOTALL)
    return found[1] if found else ""


def text_of(root: Path, section: str) -> str:
    """The section without tags and line breaks."""
    return " ".join(re.sub(r"<[^>]+>", " ", html_of(root, section)).replace("&nbsp;", " ").split())


def change(root: Path, table: str, where: dict[str, Any], **values: Any) -> None:
    """Set these columns in the rows of a table with the values of `where`."""
    path = root / "tables" / f"{table}.csv"
    rows = pd.read_csv(path)
    chosen = (rows[list(where)] == pd.Series(where)).all(axis=1)
    assert chosen.any()
    for column, value in values.items():
        rows[column] = rows[column].astype(object)
        rows.loc[chosen, column] = value
    rows.to_csv(path, index=False)


@pytest.mark.parametrize("section", ["energy", "interference", "jobs", "isolation"])
def test_a_study_without_its_data_has_no_such_section(root: Path, section: str) -> None:
    assert html_of(root, section) == ""


def test_devices_are_compared_where_there_are_several(root: Path) -> None:
    alone = {"strategy": "exclusive", "workload": "matmul", "tenant_workload": "matmul", "replicas": 1}
    spread = {"between_devices_percent": 1.234, "within_device_percent": 0.5}
    rows = [alone | spread | {"device": device} for device in ("aa", "bb")]
    rows += [row | {"workload": "hashing", "within_device_percent": None} for row in rows]
    rows += [row | {"strategy": "mps", "between_devices_percent": 7.0} for row in rows[:2]]
    table_frame("devices", rows).to_csv(root / "tables" / "devices.csv", index=False)
    found = text_of(root, "comparisons")
    assert "1.23 % with matmul (2 devices; 0.50 % on one device), 1.23 % with hashing (2 devices)." in found
    assert "7.00" not in found


def test_declared_comparisons_have_ratio_interval_and_adjusted_p(root: Path) -> None:
    rows = [CONTRAST, CONTRAST | {"strategy": "mig", "separable": "no", "p_holm": 0.4}]
    blank = {"ratio": None, "p_holm": None, "separable": "", "reason": "no <slices>"}
    rows.append(CONTRAST | {"workload": "hashing"} | blank)
    pd.DataFrame(rows).to_csv(root / "tables" / "contrasts.csv", index=False)
    found = text_of(root, "comparisons")
    assert "MPS time-slicing matmul 4 0.482 0.461 – 0.504 0.0042" in found
    assert re.search(r"MIG time-slicing matmul 4 .* 0\.4 not separable", found)
    assert "matmul in hashing 4 – – no &lt;slices&gt;" in found


def test_the_a_a_control_has_a_sentence(root: Path) -> None:
    again = {"strategy": "exclusive-again", "slowdown": 1.0123, "slowdown_low": 0.98, "slowdown_high": 1.04}
    change(root, "summary", {"strategy": "mig", "workload": "matmul"}, **again)
    assert "Its mean latency was × 1.01 (0.98 to 1.04) with matmul" in text_of(root, "comparisons")


def test_metrics_of_several_tenants_have_a_table(root: Path) -> None:
    found = text_of(root, "comparisons").partition("What the tenants of matmul make of the device together")[2]
    assert re.search(r"Isolation 1 is perfect time-slicing 2 2.20 2.10 – 2.30 0.911 .* MPS 4 2.20", found)
    assert " 1 1.00" not in found, "one tenant is not several"


def test_a_mix_has_one_row_for_all_its_workloads() -> None:
    row = {"strategy": "mps", "replicas": 2, "antt": 3.0, "tenant_workload": "light"}
    rows = {"both": [row, row | {"tenant_workload": "heavy"}, row | {"replicas": 1}], "alone": [row | {"replicas": 1}]}
    assert several_tenants(rows) == {"both": [row]}


@pytest.mark.parametrize(("fit", "shown"), [({"tenants_that_fit": 116}, "116"), ({}, "–")])
def test_energy_has_only_rows_with_values(tmp_path: Path, fit: dict[str, float], shown: str) -> None:
    root = fabricated.write(tmp_path / "results", label="")
    energy = {"": 1.5, "_low": 1.4, "_high": 1.6}
    known = {f"energy_per_iteration_joules{end}": joules for end, joules in energy.items()}
    point = {"strategy": "mps", "workload": "matmul", "replicas": 2}
    change(root, "summary", point, power_mean_watts=312.4, **known, **fit)
    text = text_of(root, "energy")
    assert "Power, energy and memory of matmul" in text and "hashing" not in text
    # No interval of the power, none above idle known.
    assert f"MPS 2 312 1.50 1.40 – 1.60 – – {shown}" in text
    assert html_of(root, "energy").count("<tr>") == 2


def test_a_study_without_an_slo_says_how_many_tenants_its_memory_holds(root: Path) -> None:
    path = root / "tables" / "capacity.csv"
    table = pd.read_csv(path).drop(columns=["best_of_sweep", "capacity_hz"], errors="ignore")
    table.assign(max_tenants_by_memory=57).to_csv(path, index=False)
    assert '<td class="number">57</td>' in html_of(root, "advice")


def test_tenants_of_which_no_tail_is_known_are_shown_with_the_reason(root: Path) -> None:
    path, why = root / "tables" / "capacity.csv", "1 tenant: only the p50 is known"
    pd.read_csv(path).assign(percentile="p50", capacity_tenants=None, reason=why).to_csv(path, index=False)
    assert why in html_of(root, "advice")


def test_a_workload_that_is_only_a_baseline_is_not_shared() -> None:
    alone, pair = [{"strategy": "exclusive"}, {"strategy": "exclusive-again"}], [{"strategy": "mps"}]
    assert page.shared_workloads({"a": alone, "a+b": pair}, "exclusive") == {"a+b": pair}
    assert page.shared_workloads({"a": [*alone, *pair]}, "exclusive").keys() == {"a"}
    assert page.shared_workloads({"a": alone}, "exclusive") == {"a": alone}, "or there would be nothing"


def test_strategies_beyond_the_colours_have_another_shape(root: Path) -> None:
    with edited_json(root / "manifest.json") as manifest:
        known = manifest["config"]["strategy_catalogue"]
        manifest["config"]["strategy_catalogue"] = known | {f"mps-{n}": known["mps"] for n in range(len(COLORS))}
    found = page.report_context(root, root)
    again = {each for each, color in found["colors"].items() if color == found["colors"]["mps"]} - {"mps"}
    assert again and again <= set(found["square_swatches"]) and "mps" not in found["square_swatches"]


def test_long_tables_are_cut_with_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_ROWS", 6)
    monkeypatch.setattr(page, "MIN_ROWS", 1)
    assert "The first 3 of 10 rows; tables/summary.csv has all." in text_of(root, "numbers")


def test_each_section_is_a_link_at_the_top_and_the_config_a_file(root: Path) -> None:
    page.write_report(root, root)
    html = (root / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="#(\w+)">', html.split("<nav")[1].split("</nav>")[0])
    assert links == re.findall(r'<section id="(\w+)">', html)
    (config,) = re.findall(r'download="config.yaml" href="data:text/yaml;charset=utf-8,(.*?)"', html)
    assert yaml.safe_load(unquote(config))["workloads"]


def test_headings_of_metrics_say_what_they_are(root: Path) -> None:
    titles = dict(re.findall(r'class="number" title="([^"]+)">(\w+)', html_of(root, "numbers")))
    assert titles["99th percentile."] == "p99" and titles["Throughput of all tenants together."] == "Total"
    assert all(look.header[2] for look in (*METRIC_LOOKS, *SWEEP_LOOKS))


def test_a_section_that_shows_every_metric_names_none() -> None:
    template = (page.TEMPLATES / "sections" / "numbers.html.j2").read_text()
    assert not [look.metric for look in METRIC_LOOKS if look.metric in template], "say it in METRIC_LOOKS"
