"""Published studies are complete, have checksums, are packed, share a device, and are read only unchanged."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.figures import fabricated

from sharebench.datasets import archive, dataset, publish, ro_crate
from sharebench.model.spec import parse_spec
from sharebench.study.public import accepted_spec

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "published"
DATA_SETS = dataset.list_published(PUBLISHED)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished study, in the working directory."""
    monkeypatch.chdir(tmp_path)
    root = fabricated.write(tmp_path / "results")
    (root / "cells/mps/matmul/n2/r1/run.log").write_text("/home/jane/warned")
    return root


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_study_is_published_as_one_archive_with_what_people_read_next_to_it(study: Path, tmp_path: Path) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    made = files(target)
    assert made.keys() == {archive.PACKED_NAME, archive.CHECKSUMS, *publish.READABLE, *publish.READY_TABLES}
    for name in ("manifest.json", "nodes/device.json", *publish.READY_TABLES):
        assert made[name] == (study / name).read_bytes()
    assert (
        yaml.safe_load(made["config.yaml"])["strategies"] == json.loads(made["manifest.json"])["config"]["strategies"]
    )
    check = subprocess.run(["sha256sum", "--strict", "-c", archive.CHECKSUMS], cwd=target, capture_output=True)
    assert check.returncode == 0
    assert dataset.list_published(tmp_path / "published") == ["device/study"]
    folder = dataset.verified_folder(target)
    assert folder.is_relative_to(archive.UNPACKED_FOLDER)
    packed = files(folder)
    for name in ("cells/mps/matmul/n2/r1/raw.json", "nodes/device.json", "manifest.json"):
        assert packed[name] == (study / name).read_bytes()
    assert not [name for name in packed if name.endswith(".log")], "logs of tenants may name paths"


def pack(study: Path, how: str) -> dict[str, bytes]:
    """The files of the study's archive, or of the one in its published data set."""
    target = study / "published/device/study"
    if how == "archive":
        (study / "report.html").touch()
        ro_crate.write(study, study, study / "archive.zip")
        return files(archive.unpack(study / "archive.zip"))
    publish.publish(study, study, target)
    return files(archive.verified_folder(target))


@pytest.mark.parametrize("how", ["archive", "publish"])
def test_what_other_studies_left_in_the_folder_is_not_packed(study: Path, how: str) -> None:
    before = pack(study, how)
    shutil.copytree(study / "cells/mps/matmul", study / "cells/mps/nan")
    shutil.copytree(study / "cells/mps/matmul/n2/r1", study / "cells/mps/matmul/n2/r9")
    shutil.copy(study / "calibration/matmul.json", study / "calibration/nan.json")
    (study / "nodes/hami.json").write_text("{}")
    assert pack(study, how) == before
    assert {"cells/mps/matmul/n2/r3/raw.json", "calibration/hashing.json", "nodes/device.json"} <= before.keys()


@pytest.mark.parametrize("how", ["archive", "publish"])
def test_a_packed_spec_names_no_private_path(study: Path, how: str) -> None:
    names = ("cells/mps/matmul/n2/r1/raw.json", "calibration/matmul.json")
    specs = {}
    for name in names:
        record = json.loads((study / name).read_text())
        spec = json.loads(record["spec"])
        spec["workload"] |= {"kind": "command", "command": ["/home/jane/bin/python", "{here}/run.py", "--fast"]}
        spec["workload"]["load"] = {"arrival": "trace", "trace": "/home/jane/day.csv"}
        spec["files"] = {"/home/jane/day.csv": "0123"}
        specs[name] = parse_spec(json.dumps(spec))
        (study / name).write_text(json.dumps(record | {"spec": specs[name].text}))
    packed = pack(study, how)
    assert not [name for name, content in packed.items() if b"/home/jane" in content]
    for name in names:
        record = json.loads(packed[name])
        public = parse_spec(record["spec"])
        assert public.workload.command == ("…/python", "{here}/run.py", "--fast")  # type: ignore[union-attr]
        assert public.files == {"…/day.csv": "0123"}
        # The study is joined from archives too.
        assert accepted_spec(specs[name], record) == record["spec"]
        assert accepted_spec(specs[name].changed(window_seconds=9), record) != record["spec"]


def test_the_config_does_not_name_the_folders_that_a_study_was_joined_from(study: Path, tmp_path: Path) -> None:
    manifest = json.loads((study / "manifest.json").read_text())
    manifest["config"] |= {"from": ["results/two"], "measured_elsewhere": True}
    (study / "manifest.json").write_text(json.dumps(manifest))
    publish.publish(study, study, tmp_path / "published/device/study")
    config = yaml.safe_load((tmp_path / "published/device/study/config.yaml").read_text())
    assert (config["from"], config["measured_elsewhere"]) == ([], False)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda folder: (folder / "manifest.json").write_text("{}"), "manifest.json is not what was published"),
        (lambda folder: (folder / "nodes/device.json").unlink(), "lacks nodes/device.json"),
        (lambda folder: (folder / "nodes/new.json").write_text("{}"), "nodes/new.json is not in its checksums"),
    ],
)
def test_a_changed_file_is_named(study: Path, tmp_path: Path, change: Any, words: str) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    change(target)
    with pytest.raises(dataset.DataSetError, match=words):
        dataset.verified_folder(target)


def test_publishing_again_works_where_the_old_data_set_is_read_only(study: Path, tmp_path: Path) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    for folder in (target / "nodes", target / "tables", target):
        folder.chmod(0o555)
    before = files(target)
    publish.publish(study, study, target)
    assert files(target) == before
    assert [path.name for path in target.parent.iterdir() if path.is_dir()] == ["study"]


def test_a_data_set_that_cannot_be_replaced_stays_whole(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    before, rename = files(target), Path.rename

    def fail(self: Path, new: Path) -> Path:
        if self.name == ".study.part":
            raise OSError("no")
        return rename(self, new)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no"):
        publish.publish(study, study, target)
    assert files(target) == before
    # As after a kill between the two renames.
    target.rename(target.with_name(".study.old"))
    with pytest.raises(OSError, match="no"):
        publish.publish(study, study, target)
    assert files(target) == before


def test_publishing_again_replaces_the_study_and_keeps_documents(study: Path, tmp_path: Path) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    about = yaml.safe_load((target.parent / "CITATION.cff").read_text())
    assert about["type"] == "dataset" and fabricated.LABEL in about["title"] and about["date-released"] == "2025-01-14"
    assert "published/device/STUDY" in (target.parent / "README.md").read_text()
    (target.parent / "README.md").write_text("by hand")
    (target / "nodes/left-over").mkdir()
    publish.publish(study, study, target)
    assert (target.parent / "README.md").read_text() == "by hand"
    assert not (target / "nodes/left-over").exists()
    assert [path.name for path in sorted(target.parent.iterdir())] == ["CITATION.cff", "README.md", "study"]


def test_publishing_again_deletes_no_unlisted_file(study: Path, tmp_path: Path) -> None:
    target = tmp_path / "published/device/study"
    publish.publish(study, study, target)
    (target / "NOTES.md").write_text("by hand")
    (target / "nodes/link").symlink_to(tmp_path)
    before = files(target)
    with pytest.raises(publish.PublishError, match=r"not in its checksums.sha256: NOTES.md, nodes/link; move them"):
        publish.publish(study, study, target)
    assert files(target) == before
    for name in ("NOTES.md", "nodes/link", archive.CHECKSUMS):
        (target / name).unlink()
    with pytest.raises(publish.PublishError, match=r"config.yaml, .* and \d+ more; move them"):
        publish.publish(study, study, target)
    (target / archive.CHECKSUMS).write_text("another program's list")
    with pytest.raises(publish.PublishError, match=r"config.yaml, .* and \d+ more; move them"):
        publish.publish(study, study, target)


@pytest.mark.parametrize("product", ['a "GPU" \\ b', "two\nlines", "key: value # and", "Ünï 日本"])
def test_any_product_can_be_cited(study: Path, tmp_path: Path, product: str) -> None:
    device = json.loads((study / "nodes/device.json").read_text())
    device["node"]["product"] = product
    (study / "nodes/device.json").write_text(json.dumps(device))
    publish.publish(study, study, tmp_path / "published/device/study")
    about = yaml.safe_load((tmp_path / "published/device/CITATION.cff").read_text())
    assert product in about["title"] and product in about["abstract"] and product in about["keywords"][-1]


def test_one_publication_is_of_one_kind_of_device(study: Path, tmp_path: Path) -> None:
    publish.publish(study, study, tmp_path / "published/device/study")
    device = json.loads((study / "nodes/device.json").read_text())
    device["node"] |= {"label": "", "product": "NVIDIA H200"}
    (study / "nodes/device.json").write_text(json.dumps(device))
    with pytest.raises(publish.PublishError, match=r"would be of NVIDIA H200.*is of .*publish it under another name"):
        publish.publish(study, study, tmp_path / "published/device/other")
    assert not (tmp_path / "published/device/other").exists()


def test_a_gpu_of_a_host_and_the_same_in_pods_share_a_publication(study: Path, tmp_path: Path) -> None:
    device = json.loads((study / "nodes/device.json").read_text())
    for kind, name in (("nvidia", "pods-host"), ("kubernetes", "pods")):
        device["node"] |= {"label": "", "product": "NVIDIA H200", "is_gpu": True, "kind": kind}
        (study / "nodes/device.json").write_text(json.dumps(device))
        publish.publish(study, study, tmp_path / "published/device" / name)
    assert (tmp_path / "published/device/pods/checksums.sha256").is_file()


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_of_this_repository_is_unchanged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = PUBLISHED / name
    assert (folder / archive.CHECKSUMS).is_file()
    opened = archive.verified_folder(folder)
    plain = files(folder) if opened != folder else {}
    packed = files(opened)
    assert {path: content for path, content in plain.items() if packed.get(path, content) != content} == {}


@pytest.mark.parametrize(
    "citation", [ROOT / "CITATION.cff", *sorted(PUBLISHED.glob("*/CITATION.cff"))], ids=lambda path: path.parent.name
)
def test_citations_have_the_keys_that_a_data_repository_asks_for(citation: Path) -> None:
    about = yaml.safe_load(citation.read_text())
    assert {"cff-version", "message", "title", "type", "authors", "version", "license", "abstract"} <= about.keys()


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_is_called_clean_only_where_all_its_records_are(name: str) -> None:
    records = archive.verified_folder(PUBLISHED / name).glob("cells/**/raw.json")
    dirty = {json.loads(path.read_text())["provenance"]["git_dirty"] for path in records}
    assert json.loads((PUBLISHED / name / "manifest.json").read_text())["git_dirty"] is not False or dirty == {False}
