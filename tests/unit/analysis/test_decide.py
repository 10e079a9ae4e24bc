"""From a study on disk to its decision: tables, answers as text, and refusals in one line."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.edited import edited_json, edited_table
from unit.figures import fabricated
from unit.studies import NO_SLO, QUESTION

from sharebench.core.files import Refusal
from sharebench.read.decide import decide, documented

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study as of a GPU: of a stand-in there is no answer."""
    return fabricated.write(tmp_path_factory.mktemp("study") / "results", label="")


def asked(root: Path, tmp_path: Path, **question: Any) -> tuple[pd.DataFrame, str]:
    """Advice on a copy of the tables."""
    folder = tmp_path / "copy"
    if not folder.exists():
        shutil.copytree(root / "tables", folder / "tables")
        shutil.copy(root / "manifest.json", folder)
    text = decide.decide(root, folder, QUESTION | question, folder / ".sharebench/decided/question", [])  # type: ignore[arg-type]
    return pd.read_csv(folder / "tables" / "advice.csv"), text


def answer_about(tmp_path: Path, workload: str) -> dict[str, Any]:
    """The answer in tables/advice.json of the copy."""
    answers = json.loads((tmp_path / "copy/tables/advice.json").read_text())["answers"]
    return next(each for each in answers if each["workload"] == workload)


def reasons(tmp_path: Path, workload: str, kind: str) -> list[str]:
    return [text for of, text in answer_about(tmp_path, workload)["reasons"] if of == kind]


def test_the_answer_names_strategy_reason_change_and_confidence(root: Path, tmp_path: Path) -> None:
    """Two cores: an iteration of matmul takes 4.3 ms alone, twice that with four tenants on both."""
    table, text = asked(root, tmp_path, slo=NO_SLO | {"latency_ms": 12}, tenants=4, price_per_hour=2.0)
    flat = re.sub(r"\s+", " ", text)
    assert "matmul: take mps on 1 GPU instead of 4: a month $1,440 (720 h" in flat
    assert re.search(
        r"mean latency [\d.]+ ms \(× [\d.]+ of one alone, [\d.]+ to [\d.]+\), p95 .* per GPU [\d.]+/s \(× [\d.]+ of",
        flat,
    )
    assert re.match(r"with an SLO below [\d.]+ ms it is", reasons(tmp_path, "matmul", "change")[0])
    assert re.match(
        r"How sure: (within the SLO with|the 95 % interval of)", reasons(tmp_path, "matmul", "certainty")[0]
    )
    first = table[table["workload"] == "matmul"].iloc[0]
    assert (first["strategy"], first["devices"]) == ("mps", 1)
    summary = pd.read_csv(root / "tables/summary.csv").set_index(["strategy", "workload", "replicas"])
    row = summary.loc[("mps", "matmul", 4)]
    assert first["latency_ms"] == pytest.approx(1e3 * row["latency_p95_seconds"])
    assert first["margin_percent"] == pytest.approx(100 * (12 / first["latency_ms"] - 1))
    assert first["dollars_per_million_iterations"] == pytest.approx(2 / (3600 * row["throughput_total_hz"]) * 1e6)


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"slo": NO_SLO | {"latency_ms": 12}, "tenants": 4, "price_per_hour": 2.0},
    {"slo": NO_SLO | {"latency_ms": 0.001}, "isolation": "fault"},
    {"slo": NO_SLO | {"latency_ms": 1e6}, "tenants": 9, "isolation": "performance", "price_per_hour": 1234.5},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_the_answer_fits_into_a_terminal(root: Path, tmp_path: Path, question: dict[str, Any]) -> None:
    _, text = asked(root, tmp_path, **question)
    lines = text.splitlines()
    assert max(map(len, lines[:-1])) <= 100 and not re.search(r"\b(nan|None)\b", text)
    assert len(lines) <= 40 and not any(line.startswith("---") for line in lines), "sentences only"
    _, text = asked(root, tmp_path, **question, workloads=["matmul"])
    (rule,) = [line for line in text.splitlines() if line.startswith("---")]
    assert len(rule.split()) == 5 + ("price_per_hour" in question) and max(map(len, text.splitlines()[:-1])) <= 100


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_stand_in_names_no_winner_nor_who_is_ahead(tmp_path: Path, question: dict[str, Any]) -> None:
    root = fabricated.write(tmp_path / "results")
    table, text = asked(root, tmp_path, **question, workloads=["matmul"])
    found = answer_about(tmp_path, "matmul")
    if table["rank"].notna().any():
        assert found["sentence"] == "matmul: no winner, since it was not a GPU." and found["strategy"] == ""
    assert not re.search(r"ahead|least effort|What would change|How sure|\btake\b", text)


def test_a_median_within_the_slo_is_named_as_a_median(root: Path, tmp_path: Path) -> None:
    asked(root, tmp_path)
    with edited_table(tmp_path / "copy/tables/summary.csv") as summary:
        summary[[name for name in summary if "_p95_" in name or "_p99_" in name]] = None
    with edited_table(tmp_path / "copy/tables/cells.csv") as cells:
        cells["effective_count"] = 5
    _, text = asked(root, tmp_path, slo=NO_SLO | {"latency_ms": 12}, tenants=4, workloads=["matmul"])
    assert "How sure: only the p50 is known; a longer window_seconds gives the tail." in text
    assert re.search(r"^mps .* not known: only p50$", text, flags=re.MULTILINE)


def test_an_answer_from_cells_with_warnings_mentions_them(root: Path, tmp_path: Path) -> None:
    asked(root, tmp_path)
    assert not any("carry a warning" in text for text in reasons(tmp_path, "hashing", "certainty"))
    with edited_table(tmp_path / "copy/tables/summary.csv") as summary:
        own = summary["workload"] == "hashing"
        summary.loc[own & (summary["strategy"] == "mps"), "warnings"] = 1
    warned, cells = int(summary.loc[own, "warnings"].sum()), int(summary.loc[own, "n"].sum())
    asked(root, tmp_path)
    expected = f"Of the {cells} cells behind this, {warned} carry a warning."
    assert reasons(tmp_path, "hashing", "certainty")[-1] == expected
    with edited_table(tmp_path / "copy/tables/summary.csv") as summary:
        summary.loc[own, ["n", "warnings"]] = 0
        summary.loc[summary.index[own][-1], ["n", "warnings"]] = 1
    asked(root, tmp_path)
    assert reasons(tmp_path, "hashing", "certainty")[-1] == "Of the 1 cell behind this, 1 carries a warning."


def test_more_devices_where_one_is_not_enough(root: Path, tmp_path: Path) -> None:
    asked(root, tmp_path, slo=NO_SLO | {"latency_ms": 8}, tenants=4)
    found = answer_about(tmp_path, "matmul")
    assert found["headline"].endswith(" on 2 GPUs instead of 4, at most 2 tenants on each")
    (against,) = reasons(tmp_path, "matmul", "devices")
    assert against.startswith("Nothing that was measured serves 4 tenants on fewer devices (")


def test_no_strategy_may_be_the_answer(root: Path, tmp_path: Path) -> None:
    table, text = asked(root, tmp_path, slo=NO_SLO | {"latency_ms": 0.001})
    assert "matmul: no strategy that was measured serves 4 tenants within 0.001 ms.\n" in text
    without = reasons(tmp_path, "matmul", "no plan")
    assert re.search(r"No plan with exclusive: p\d\d of 1 tenant is [\d.]+ ms, more than 0.001 ms\.", " ".join(without))
    assert table["rank"].isna().all() and set(table["verdict"]) == {"no"}


def test_the_question_has_defaults(root: Path, tmp_path: Path) -> None:
    table, text = asked(root, tmp_path)
    assert text.startswith("Advice for 4 tenants, no SLO, from AMD EPYC 7B13")
    assert set(table["tenants"]) == {4} and table["slo_ms"].isna().all()


def test_the_control_queues_and_jobs_are_not_options(root: Path, tmp_path: Path) -> None:
    asked(root, tmp_path)
    folder = tmp_path / "copy"
    with edited_json(folder / "manifest.json") as manifest:
        catalogue = manifest["config"]["strategy_catalogue"]
        catalogue["exclusive-again"] = catalogue["exclusive"]
        catalogue["sequential"] = catalogue["exclusive"] | {"mechanism": ["sequential"], "replicas": None}
        manifest["config"]["workload_catalogue"]["hashing"]["kind"] = "job"
    summary = pd.read_csv(folder / "tables/summary.csv")
    again = summary[summary["strategy"] == "exclusive"].assign(strategy="exclusive-again")
    pd.concat([summary, again]).to_csv(folder / "tables/summary.csv", index=False)
    results = decide.read_results(root, folder)
    assert list(results.strategies) == ["exclusive", "time-slicing", "mps", "mig"] and results.workloads == ["matmul"]


def test_measured_faults_count(root: Path, tmp_path: Path) -> None:
    table, _ = asked(root, tmp_path, tenants=2, isolation="fault")
    assert "mps" not in set(table.loc[table["rank"].notna(), "strategy"])
    rows = [{"strategy": name, "fault": "assert", "n": 3, "failed": 0} for name in ("mps", "time-slicing")]
    pd.DataFrame(rows).to_csv(tmp_path / "copy/tables/isolation.csv", index=False)
    table, _ = asked(root, tmp_path, tenants=2, isolation="fault")
    assert {"mps", "time-slicing"} <= set(table.loc[table["rank"].notna(), "strategy"])
    of_mps = table[table["strategy"] == "mps"].iloc[0]
    assert of_mps["fault_isolation_basis"] == "measured: 0 of 3 neighbours died after assert"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("isolation", ""),
        ("isolation", "strategy,n\nmps,3\n"),
        ("conformance", "strategy,replicas,promise,measured,verdict\nmps,,answers,1,broken\n"),
        ("conformance", "strategy,replicas,promise,measured,verdict\nmps,2,answers,x,broken\n"),
    ],
)
def test_a_damaged_table_of_another_study_is_named(root: Path, tmp_path: Path, name: str, content: str) -> None:
    table = shutil.copytree(root, tmp_path / "faults") / f"tables/{name}.csv"
    table.write_text(content)
    with pytest.raises(Refusal, match=rf"^{table}: not a table \(.+\); get that study again"):
        decide.read_results(root, root, [tmp_path / "faults"])
    for manifest in ("{", "{}", '{"config": null}', '{"config": {}}', '{"config": {"node": "kubernetes"}}'):
        (tmp_path / "faults/manifest.json").write_text(manifest)
        with pytest.raises(Refusal, match=r"faults/manifest\.json: missing or damaged; get that study again"):
            decide.read_results(root, root, [tmp_path / "faults"])


def test_what_other_studies_know_counts_each_and_of_the_same_strategy(root: Path, tmp_path: Path) -> None:
    """Studies of two hosts may have the same names; `mps` may be another strategy there."""
    others = [Path(shutil.copytree(root, tmp_path / host / "results/gpu")) for host in ("a", "b", "c")]
    for folder, failed in zip(others, (4, 0, 1), strict=True):
        rows = [{"strategy": "mps", "fault": "assert", "n": 4, "failed": failed}]
        pd.DataFrame(rows).to_csv(folder / "tables/isolation.csv", index=False)
    with edited_json(others[2] / "manifest.json") as manifest:
        manifest["config"]["strategy_catalogue"]["mps"]["thread_percent"] = 5
    for order in (others, others[::-1]):
        (reason,) = decide.read_results(root, root, order).known.faults.values()
        assert (reason.holds, reason.text) == (False, "4 of 4 neighbours died after assert")
        assert reason.basis == "measured in a/results/gpu"


def test_mps_of_a_cluster_plugin_has_limits(root: Path, tmp_path: Path) -> None:
    limited = {}
    for kind in ("nvidia", "kubernetes"):
        folder = tmp_path / kind
        shutil.copytree(root / "tables", folder / "tables")
        manifest = json.loads((root / "manifest.json").read_text())
        manifest["config"]["kubernetes"] = {"access": "device-plugin"}
        (folder / "manifest.json").write_text(json.dumps(manifest | {"node_kind": kind}))
        results = decide.read_results(root, folder)
        limited[kind] = documented.has_limits(results.strategies["mps"])
    assert limited == {"nvidia": False, "kubernetes": True}


def test_a_device_of_unknown_size_is_advised(root: Path, tmp_path: Path) -> None:
    """A Kubernetes node does not report the number of SMs of its GPU; a tenant may."""
    data, folder = tmp_path / "data", tmp_path / "copy"
    shutil.copytree(root, data)
    (data / "nodes/device.json").write_text(
        json.dumps({"node": fabricated.node("") | {"units": None}, "idle_power_watts": None, "roofs": None})
    )
    asked(root, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    for units in (None, 2):
        (folder / "manifest.json").write_text(json.dumps(manifest | {"device_units": units}))
        assert "matmul: take mps on 1 GPU" in decide.write_answer(decide.read_results(data, folder), QUESTION)


def test_without_results_there_is_one_line(tmp_path: Path) -> None:
    where = ["--data", tmp_path, "--results", tmp_path, "--decided", tmp_path / "x/y", "--others"]
    where += ["--question", json.dumps(QUESTION)]
    ended = subprocess.run([sys.executable, SCRIPTS / "job.py", "decide", *where], capture_output=True, text=True)
    line = f"no finished results in {tmp_path} ({tmp_path}/manifest.json is missing); measure first\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, f"  {line}", line)
    assert list(tmp_path.iterdir()) == []


def test_a_workload_that_is_only_the_baseline_of_mixes_leaves_no_choice(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(root / "tables", folder / "tables")
    summary = pd.read_csv(folder / "tables/summary.csv")
    summary[summary["strategy"] == "exclusive"].to_csv(folder / "tables/summary.csv", index=False)
    shutil.copy(root / "manifest.json", folder)
    table, text = asked(root, tmp_path)
    assert table.empty
    assert "none: except faults and tests of promises, nothing was run under a strategy that shares\n" in text
