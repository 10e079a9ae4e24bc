"""Data sets: their study, their results folder, and notes on cells that they do not show."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.edited import edited_json
from unit.studies import QUESTION, W, base_config, config_with, simulated, study_with

from publication import rebuild
from sharebench.datasets import dataset
from sharebench.datasets.archive import CHECKSUMS, checksum_lines
from sharebench.datasets.dataset import DataSetError, excluded_cells_note, open_for_rebuild, results_root
from sharebench.measure.run import ownership
from sharebench.model import run_record
from sharebench.model.config.load import load
from sharebench.model.study_config import to_json
from sharebench.study.study import Study

PUBLISHED = Path(__file__).parents[3] / "published"


def requested(**changes: Any) -> Study:
    """The default study on the simulated node, with the changes of a command line."""
    return study_with({"node": "simulated"} | changes)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({}, ""),
        ({"window_seconds": 10}, ""),
        ({"window_seconds": 9.5}, "Windows of 9.5 s are shorter than the catalogue's minimum for yolos (10 s)."),
        # This is another workload of the same name.
        ({"window_seconds": 6, f"{W}.yolos.params": {"batch": 2}}, ""),
        # Fixed work does not depend on the window.
        ({"workloads": ["batch-matmul"], "window_seconds": 0.1}, ""),
    ],
)
def test_windows_that_are_shorter_than_the_catalogue_asks_for_are_named(changes: dict[str, Any], words: str) -> None:
    lowered = {f"{W}.yolos.min_window_seconds": 0.1, f"{W}.batch-matmul.min_window_seconds": 0.1, "window_seconds": 20}
    assert dataset.short_windows_note(simulated({"workloads": ["yolos"]} | lowered | changes)) == words


def test_a_published_study_with_short_windows_has_a_note_in_table_and_manifest(tmp_path: Path) -> None:
    rebuild.write_tables(*dataset.open_complete(PUBLISHED / "h200/eager"), tmp_path)
    line = "Windows of 8 s are shorter than the catalogue's minimum for yolos (10 s)."
    assert line in (tmp_path / "tables/summary.md").read_text().splitlines()[0]
    assert line in json.loads((tmp_path / "manifest.json").read_text())["not_shown"]


def test_a_note_counts_the_cells_that_the_config_excludes() -> None:
    assert excluded_cells_note(study_with({"node": "simulated"})) == ""
    line = excluded_cells_note(study_with({"node": "simulated", "exclude": ["mps/*/n2"]}))
    assert re.fullmatch(r"Left out by the config: 6 of \d+ cells \(mps/\*/n2\)\.", line)
    line = excluded_cells_note(study_with({"node": "simulated", "exclude": ["exclusive/*"]}))
    assert line.endswith("(exclusive/*). Without exclusive, the baseline, nothing is compared with it.")


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    """The manifest of another user's study on the stand-in, in a folder that was moved."""
    folder = tmp_path / "their-results"
    folder.mkdir()
    config = load(config_with({"node": "cpu", "strategies": ["mps"], "replicas": [2], "results": "results/theirs"}))
    manifest = {"config": to_json(config) | {"node": "auto"}, "node_kind": "cpu"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_data_set_is_opened_with_its_own_study(data_set: Path) -> None:
    opened = open_for_rebuild(data_set)
    assert {(cell.strategy, cell.replicas) for cell in opened.cells} == {
        ("exclusive", 1),
        ("exclusive-again", 1),
        ("mps", 2),
    }
    assert opened.node_kind == "cpu", "`auto` keeps the meaning that it had there"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[" * 9999, "nested too deeply"),
        ("{", "Expecting property name"),
        ("[]", "has no config"),
        ('{"config": 5, "node_kind": "cpu"}', "config is not a mapping"),
    ],
)
def test_a_damaged_data_set_is_refused_without_advice_to_remove_it(data_set: Path, content: str, problem: str) -> None:
    (data_set / "manifest.json").write_text(content)
    with pytest.raises(DataSetError, match=rf"not a data set \(.*: damaged \({problem}.*\)\); give") as refused:
        dataset.read_study(data_set)
    assert "rm " not in str(refused.value) and "remove it" not in str(refused.value)


@pytest.mark.parametrize("older", [None, 50])
def test_an_older_data_set_has_one_number_for_an_slo(data_set: Path, older: int | None) -> None:
    manifest = json.loads((data_set / "manifest.json").read_text())
    del manifest["config"]["slo"]
    manifest["config"]["slo_ms"] = older
    (data_set / "manifest.json").write_text(json.dumps(manifest))
    assert dataset.read_study(data_set).config["slo"]["latency_ms"] == older


def test_a_data_set_with_withdrawn_config_keys_is_opened(data_set: Path) -> None:
    manifest = json.loads((data_set / "manifest.json").read_text())
    manifest["config"]["kubernetes"]["drain"] = True
    manifest["config"]["prometheus"]["buckets"] = [0.1, 1]
    manifest["config"]["parts"] = ["results/gpu0", "results/gpu1"]
    (data_set / "manifest.json").write_text(json.dumps(manifest))
    assert open_for_rebuild(data_set).config["kubernetes"].keys().isdisjoint({"drain"})


def test_a_data_set_is_opened_in_its_own_folder(data_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = data_set / "results/theirs"
    here.mkdir(parents=True)
    (data_set / "manifest.json").rename(here / "manifest.json")
    for folder in (data_set, here):
        monkeypatch.chdir(folder)
        assert dataset.read_study(here).config["results"] == "results/theirs"
    with edited_json(here / "manifest.json") as manifest:
        manifest["config"]["results"] = str(here)
    assert dataset.read_study(Path()).config["results"] == str(here)


def list_files(folder: Path) -> None:
    """Write the checksums of what is there, as publishing does."""
    (folder / CHECKSUMS).unlink(missing_ok=True)
    there = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / CHECKSUMS).write_text(checksum_lines(there))


def test_the_other_studies_of_a_publication_are_found_by_each_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = (PUBLISHED / "h200/faults/nodes/device.json").read_text()
    for name in ("study", "faults", "faults-of-another"):
        for path, text in (("manifest.json", ""), ("nodes/device.json", device)):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    with edited_json(tmp_path / "faults-of-another/nodes/device.json") as facts:
        facts["node"]["product"] = "another"
    (tmp_path / "study/data.zip").touch()
    for name in ("study", "faults", "faults-of-another"):
        list_files(tmp_path / name)
    monkeypatch.chdir(tmp_path / "study")
    for path in (Path(), Path("data.zip"), tmp_path / "study", tmp_path / "study/data.zip"):
        assert dataset.other_studies([path]) == [Path("../faults")]
    assert dataset.other_studies([tmp_path]) == []
    # A further study that is named and in the publication counts once.
    (tmp_path / "faults/tables").mkdir()
    assert dataset.other_studies([Path(), tmp_path / "faults"]) == [Path("../faults")]
    for damage in (lambda path: path.write_text("{"), Path.unlink):
        damage(tmp_path / "faults/nodes/device.json")
        list_files(tmp_path / "faults")
        with pytest.raises(DataSetError, match=r"^\.\./faults: nodes/device\.json is missing or damaged, .* get that"):
            dataset.other_studies([Path()])
        notes: list[str] = []
        assert dataset.other_studies([Path()], "DATA", notes.append) == []
        assert len(notes) == 1 and notes[0].startswith("note: without ../faults, of the same publication: ")
    os.mkfifo(tmp_path / "faults/nodes/device.json")
    with pytest.raises(DataSetError, match=r"^config: from: .*faults.*device\.json"):
        dataset.other_studies([Path()])


def test_the_config_of_a_published_study_can_be_used() -> None:
    loaded = load(base_config() | {"slo_ms": None, "survey": {"url": None, "hours": None, "tenants": 5}})
    assert "survey" not in loaded
    assert loaded["slo"] == dict.fromkeys(("latency_ms", "ttft_ms", "itl_ms", "tpot_ms")) | {"workloads": {}}


def test_a_data_set_is_rebuilt_into_a_folder_of_its_own(data_set: Path) -> None:
    assert results_root(load(config_with({"results": "results/mine"}))) == Path("results/mine")
    for spelling in (str(data_set), f"{data_set}/", os.path.relpath(data_set)):
        assert results_root(load(config_with({"from": spelling}))) == Path("results/from/their-results")


@pytest.mark.parametrize("name", ["...zip", "..zip", ".zip", ".hidden", ".hidden.zip"])
def test_a_data_set_whose_name_is_no_folder_overwrites_nothing(name: str) -> None:
    config = load(config_with({}))
    config["from"] = [f"downloads/{name}"]
    with pytest.raises(DataSetError, match="names no folder for what is rebuilt; rename it"):
        results_root(config)


def test_a_data_set_of_a_gpu_is_opened_where_there_is_none(data_set: Path) -> None:
    path = data_set / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["node_kind"] = "nvidia"
    manifest["config"] |= {"workloads": ["yolos", "matmul-16384"], "window_seconds": 10}
    manifest["config"]["nvidia"] = {"python": "/their/python"}
    path.write_text(json.dumps(manifest))
    opened = open_for_rebuild(data_set)
    assert (opened.node_kind, opened.workloads()) == ("nvidia", ["matmul-16384", "yolos"])


def test_files_that_a_data_sets_config_names_are_not_opened(data_set: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("mine")
    path = data_set / "manifest.json"
    request = {"path": "/", "method": "POST", "body_file": str(tmp_path / "private")}
    web = {"kind": "http", "url": "http://127.0.0.1:1", "request": request}
    changes = {"node": "cpu", "strategies": ["mps"], "workloads": ["web"], "workload_catalogue": {"web": web}}
    study = study_with(changes)
    path.write_text(json.dumps({"config": to_json(study.config), "node_kind": "cpu"}))
    assert study.spec(study.cells[0]).files, "of the user's own study it is"
    opened = open_for_rebuild(data_set)
    assert opened.spec(opened.cells[0]).files == {}


@pytest.mark.parametrize("text", [None, "{", "{}", '{"config": {}}', '{"config": [], "node_kind": "cpu"}', "[]"])
def test_a_folder_that_is_not_a_data_set_is_refused_in_a_line(data_set: Path, text: str | None) -> None:
    (data_set / "manifest.json").unlink()
    if text is not None:
        (data_set / "manifest.json").write_text(text)
    with pytest.raises(DataSetError) as refused:
        open_for_rebuild(data_set)
    assert "\n" not in str(refused.value)
    assert "manifest.json" in str(refused.value)


def test_a_manifest_with_an_invalid_config_is_refused(data_set: Path) -> None:
    manifest = json.loads((data_set / "manifest.json").read_text())
    manifest["config"]["strategies"] = ["spindle"]
    manifest["config"]["order"] = "sideways"
    (data_set / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataSetError, match=r"config: from: .*: its config: order: .sideways"):
        open_for_rebuild(data_set)


def test_the_digest_changes_exactly_with_what_tables_show() -> None:
    before = dataset.tables_digest(requested())
    assert dataset.tables_digest(requested(**{"results": "elsewhere"})) == before
    assert dataset.tables_digest(requested(**{"strategy_catalogue.mps.description": "another"})) == before
    changes: list[dict[str, Any]] = [{"window_seconds": 3}, {"replicas": [1, 2]}, {"repeats": 2}, {"seed": 2}]
    assert len({before, *(dataset.tables_digest(requested(**change)) for change in changes)}) == 5


def test_the_rebuild_of_another_folder_of_the_same_name_is_not_overwritten(
    data_set: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for there in ("elsewhere/of-that-name", ["elsewhere/of-that-name", "mine"]):
        run = dict.fromkeys(run_record.ALWAYS_THERE) | {"config": {"from": there}}
        ownership.write_run(Path("results/from") / data_set.name, run)
        with pytest.raises(DataSetError, match="what was rebuilt from elsewhere/of-that-name;"):
            open_for_rebuild(data_set)


def test_a_further_study_must_have_tables_and_the_same_kind_of_gpu(tmp_path: Path) -> None:
    h200, h100 = PUBLISHED / "h200/load", PUBLISHED / "h100/core"
    with pytest.raises(DataSetError, match=rf"^DATA: {tmp_path} has no tables/"):
        dataset.other_studies([h200, tmp_path], "DATA")
    with pytest.raises(DataSetError, match="was measured on NVIDIA H100 80GB HBM3, not on NVIDIA H200; leave"):
        dataset.other_studies([h200, h100])
    for path, message in (
        (tmp_path / "nothing", "does not exist"),
        (PUBLISHED / "h200", "has no tables/, .* give one of its studies: eager, "),
        (PUBLISHED / "literature.csv", "is a file, and a further study is read from its folder"),
    ):
        with pytest.raises(DataSetError, match=rf"^config: from: {path} {message}"):
            dataset.other_studies([h200, path])


def test_a_further_study_must_be_as_it_was_published(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(PUBLISHED / "h200/faults", tmp_path / "faults"))
    assert copy in dataset.other_studies([PUBLISHED / "h200/load", copy])
    table = copy / "tables/isolation.csv"
    table.write_text(table.read_text().replace("0", "1"))
    with pytest.raises(DataSetError, match=r"^DATA: .*isolation\.csv"):
        dataset.other_studies([PUBLISHED / "h200/load", copy], "DATA")
    study = PUBLISHED / "h200/load"
    assert study / "tables/summary.csv" in dataset.fact_files([study])


def test_a_question_takes_given_keys_and_else_those_of_the_data_set() -> None:
    study = requested(isolation="fault", slo={"latency_ms": 5}, tenants=3)
    asked = load(base_config() | {"isolation": "none", "slo": None, "price_per_hour": 2.0})
    given = ["isolation", "slo", "price_per_hour"]
    nothing = dict.fromkeys(("latency_ms", "ttft_ms", "itl_ms", "tpot_ms")) | {"workloads": {}}
    expected = QUESTION | {"slo": nothing, "tenants": 3, "price_per_hour": 2.0}
    assert dataset.resolve_question(asked, given, [], study) == expected, "defaults can be asked for"
    assert dataset.resolve_question(asked, [], [], study) == {key: study.config[key] for key in dataset.QUESTION_KEYS}


def test_the_advice_may_be_asked_about_some_workloads() -> None:
    study = requested(workloads=["matmul", "detector"])
    assert dataset.resolve_question({"workloads": ["detector"]}, [], ["workloads"], study)["workloads"] == ["detector"]
    with pytest.raises(DataSetError, match=r"^config: workloads: bert: not in .*; it has detector, matmul$"):
        dataset.resolve_question({"workloads": ["matmul", "bert"]}, [], ["workloads"], study)


def test_a_key_without_effect_on_a_data_set_is_refused() -> None:
    dataset.refuse_ignored(["from", "workloads", *dataset.QUESTION_KEYS])
    with pytest.raises(DataSetError, match=r"^config: replicas, repeats: no effect with from, .* \(workloads, slo, "):
        dataset.refuse_ignored(["replicas", "from", "repeats"])
