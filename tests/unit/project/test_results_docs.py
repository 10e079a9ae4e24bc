"""results/README.md agrees with the code on columns, gates, paths, statuses and histograms; links in documents work."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from unit.factories import (
    QUIET,
    Load,
    closed_load,
    lognormal,
    poisson_load,
    record,
    scraped,
    served,
    tenant,
    with_prometheus,
)

import results_manual
from sharebench.measure.nodes.contract import State
from sharebench.measure.nodes.kinds import open_node
from sharebench.measure.run import ownership, progress
from sharebench.model import run_record
from sharebench.model.config import checks
from sharebench.model.config import load as config
from sharebench.model.records import telemetry
from sharebench.model.records.record import SCHEMA_PATH
from sharebench.read import checker, compare
from sharebench.read.cells.rows import reduce_record
from sharebench.read.columns import SHARED_TABLE, schema, table_columns
from sharebench.read.figures.catalogue import ENTRIES as FIGURES
from sharebench.read.gates import drift, gates
from sharebench.read.gates import load as gates_load
from sharebench.read.tables import summary
from sharebench.read.tables.registry import TABLES
from sharebench.study.study import Study
from tenant.contract import TIMELINE_SLOTS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
SCHEMA = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[a-z]*/README.md")]
CELL = "cells/{strategy}/{workload}/n{replicas}/r{repeat}"
# The limits of these gates are a constant plus an allowance for noise or the window's edges.
BASE_LIMITS = {
    "drift": drift.DRIFT_RATIO,
    "littles_law": gates_load.LITTLES_LAW_RATIO,
}


def tables(heading: str) -> list[dict[str, dict[str, str]]]:
    """The tables of a section, in order: code word in a row's first cell → column title → text."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE):
        titles, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        table = {}
        for line in lines:
            for word in re.findall(r"`([^`]+)`", line[0]):
                assert word not in table, f"{word} is documented twice"
                table[word] = dict(zip(titles, line, strict=True))
        found.append(table)
    return found


def table(heading: str) -> dict[str, dict[str, str]]:
    (only,) = tables(heading)
    return only


def expand_braces(path: str) -> set[str]:
    """The paths that a pattern with `{a,b}` stands for; `{strategy}` stays."""
    pieces = re.split(r"\{([^{}]*,[^{}]*)\}", path)
    choices = [piece.split(",") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return {"".join(choice) for choice in itertools.product(*choices)}


def documented_paths() -> dict[str, str]:
    """Path → the rule or run that writes it."""
    return {single: row["rule"] for path, row in table("Paths").items() for single in expand_braces(path)}


def written_by_rules() -> dict[str, str]:
    """Output or log in a file of rules → the rule."""
    found = {}
    for file in sorted((ROOT / "rules").glob("*.smk")):
        # A rule for each sweep writes what run_cell writes.
        found |= {
            f"{CELL}/{name}": "run_cell" for name in re.findall(r'cell_files\("([^"]+)"', file.read_text("utf-8"))
        }
        for rule in re.split(r"^rule ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name = rule.split(":")[0]
            for block in re.findall(r"^    (?:output|log):\n((?: {8}.*\n)+)", rule, flags=re.MULTILINE):
                if "table_files(" in block:
                    found |= {f"tables/{table}.csv": name for table in TABLES}
                for path in re.findall(r'"<results>/([^"]+)"', block):
                    found[path] = name
                for path in re.findall(r'RESULTS / f"([^"]+)"', block):
                    found[re.sub(r"\{[A-Z_]+\}", lambda digest: digest[0].lower(), path)] = name
    # The rule for cells is made in a loop.
    measuring = (ROOT / "rules" / "measure.smk").read_text(encoding="utf-8")
    return found | {f"{CELL}/{path}": "run_cell" for path in re.findall(r'cell_files\("([^"]+)"', measuring)}


def test_outputs_of_rules_are_documented_with_their_rule_and_logs_are_in_one_folder() -> None:
    paths = written_by_rules()
    assert len(paths) >= 25
    documented = documented_paths()
    assert "logs/" in documented
    for path, rule in paths.items():
        assert documented.get(path) == f"`{rule}`" or re.fullmatch(r"logs/.*\.log", path), path


def test_a_rule_writes_every_documented_path() -> None:
    by_rules = {path for path, writer in documented_paths().items() if writer.startswith("`")}
    assert by_rules - written_by_rules().keys() == {".sharebench/refused.txt"}


def test_every_folder_of_results_is_known_where_a_config_names_one() -> None:
    folders = {path.split("/")[0] for path in documented_paths() if "/" in path}
    assert folders == checks.PARTS_OF_RESULTS | checks.NOT_FOREIGN - checks.MARKS


def test_state_files_are_documented(tmp_path: Path) -> None:
    study = Study(config.load({"node": "simulated", "strategy_catalogue": {"exclusive": EXCLUSIVE}, **SMALLEST_STUDY}))
    claim = ownership.claim(tmp_path, {"jobs": {}})
    folder = run_record.state_folder(tmp_path)
    node = open_node("simulated", study.config["simulated"], folder / "node")
    node.ensure(State(study.strategies["exclusive"], None, 1))
    checker.refusal_message({tmp_path / "raw.json": "for a test"}, tmp_path)
    shown = progress.Progress(claim)
    claim.cleanups.append(shown.stop)
    shown.started("aggregate")
    claim.release()
    written = {file.relative_to(tmp_path).as_posix() for file in folder.rglob("*") if file.is_file()}
    documented = documented_paths()
    assert written == {path for path in documented if path.startswith(".sharebench/")} - written_by_rules().keys()
    # `partial/` holds what the same function writes to `tables/`.
    assert {p.replace("partial/", "tables/") for p in documented if p.startswith("partial/")} == {
        path for path, writer in documented.items() if path.startswith("tables/") and writer == "`aggregate`"
    }


EXCLUSIVE = {"mechanism": "exclusive", "replicas": [1]}
SMALLEST_STUDY = {
    "strategies": ["exclusive"],
    "workloads": ["w"],
    "workload_catalogue": {"w": {"simulated": {"serial_seconds": 1}}},
}


def test_every_figure_is_documented() -> None:
    assert list(table("Figures")) == list(FIGURES)


def test_documented_columns_are_those_of_the_schema() -> None:
    assert results_manual.manual() == TEXT, "run `make docs`"
    tables = {column.table for column in schema()} - {SHARED_TABLE}
    assert tables == set(re.findall(r"<!-- columns of (\w+),", TEXT)) - {SHARED_TABLE}


def test_cells_csv_has_a_column_for_every_value_of_a_tenant() -> None:
    (row,) = reduce_record(record(is_gpu=True)).rows
    without = row.other_columns.keys() - {"affinity", *(column.name for column in table_columns("cells"))}
    assert not without, "write a line for each into read/columns.csv, then run `make docs`"


def test_compared_metrics_are_documented() -> None:
    assert set(compare.METRICS) <= set(summary.METRICS)
    section = TEXT.split("\n## `compare.csv`\n", 1)[1].split("<!--", 1)[0]
    assert tuple(re.findall(r"`([^`]+)`", section)) == compare.METRICS


def test_columns_of_telemetry_are_documented() -> None:
    assert tuple(table("`telemetry.csv`")) == telemetry.COLUMNS


def verdicts_of_a_clean_cell() -> dict[str, dict[str, object]]:
    """The verdicts of a clean cell to which every gate applies."""
    rng = np.random.default_rng(1)
    load: Load = poisson_load(rng, 0.005, 0.1, 20.0, 0.3)
    own, other = (tenant(index, load, 20.0) for index in range(2))
    third = tenant(2, closed_load(rng, 0.005, 0.1, 20.0), 20.0)
    server = served(third)
    server["generator"] |= {"lateness_p99_seconds": 0.0001, "connections": 0}
    server["load"] |= {"concurrency": 1}
    server["output_tokens"] = {"count": 9, "source": "usage", "reported": 9, "counted": 9}
    server["timeline"]["errors"] = [0] * TIMELINE_SLOTS
    ended = tenant(3, load, 20.0) | {"measured_by": "exit", "job": {"left_running": 0}}
    everyone = [own, scraped(other, [0.01, None], [400, 0]), server, ended]
    measured = with_prometheus(record(tenants=everyone, window_seconds=20.0, is_gpu=True))
    alone = [[{"status": 200, "tokens": ["a"], "logprobs": [-1.0]}]]
    measured["calibration"] |= {"capacity_hz": 10.0, "conditions": QUIET, "answers": alone}
    for each in measured["tenants"]:
        each["answers"] = alone
    found = gates.evaluate(measured)
    return {gate["name"]: gate for gate in found}


def documented_gates() -> dict[str, tuple[str, str, str]]:
    """Gate → its severity, its limit, and what it checks."""
    section = TEXT.split("\n## Gates\n", 1)[1].split("\n## ", 1)[0]
    invalid, warning = section.split("Severity `warning`", 1)
    line = r"^- `(\w+)`(?: \(`(.+?)`\))?: (.+?)(?: \*.+\*)?$"
    return {
        name: (severity, limit, checks)
        for severity, text in (("invalid", invalid), ("warning", warning))
        for name, limit, checks in re.findall(line, text, flags=re.MULTILINE)
    }


def test_gates_are_documented_with_severity_and_limit() -> None:
    real, documented = verdicts_of_a_clean_cell(), documented_gates()
    assert list(documented) == [*gates.INVALID, *gates.WARNING] == list(real)
    for name, (severity, text, _) in documented.items():
        assert severity == real[name]["severity"], name
        if name in ("load_achieved", "queue_growth"):
            assert text == "", "its limit depends on the number of requests"
        else:
            assert float(text) == BASE_LIMITS.get(name, real[name]["limit"]), name


def test_statuses_are_documented() -> None:
    documented = table("Statuses")
    owners = {status: row["of"] for status, row in documented.items()}
    cell = SCHEMA["$defs"]["status"]["enum"]
    tenant = SCHEMA["$defs"]["tenant"]["properties"]["status"]["enum"]
    assert {status for status, who in owners.items() if "cell" in who} == set(cell)
    assert {status for status, who in owners.items() if "tenant" in who} == set(tenant)
    assert {status for status, who in owners.items() if "summary" in who} == {"mixed", "missing"}


@pytest.mark.parametrize("cv", [0.02, 1.5])
def test_the_documented_quantile_code_is_right(cv: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = lognormal(np.random.default_rng(2), 0.01, cv, 3000)
    (tmp_path / "raw.json").write_text(json.dumps(record(latencies=[latencies])), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    namespace: dict[str, float] = {}
    exec(code, namespace)
    exact = np.quantile(latencies, 0.95, method="inverted_cdf")
    assert 0 <= namespace["p95_seconds"] / exact - 1 <= 0.011


def anchors(document: Path) -> set[str]:
    """The anchors of a document: its headings, as a web page would name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_have_a_target(document: Path) -> None:
    for target in re.findall(r"(?<!!)\[[^\]]+\]\((?!https:)([^)]+)\)", document.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        linked = document.parent / file if file else document
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target
