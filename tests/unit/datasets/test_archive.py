"""Archives: the same bytes for the same data, and no changed byte gets through."""

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from unit.figures import fabricated

from sharebench.datasets import archive, ro_crate
from sharebench.datasets.archive import ArchiveError

FILES: dict[str, Path | bytes] = {"manifest.json": b'{"a": 1}\n', "cells/x/raw.json": b"0123456789" * 50}


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small archive, in the working directory."""
    monkeypatch.chdir(tmp_path)
    archive.write(tmp_path / "data.zip", FILES, 1.7e9)
    return tmp_path / "data.zip"


def test_an_archive_is_unpacked_once(packed: Path) -> None:
    folder = archive.unpack(packed)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    (folder / "mark").touch()
    assert archive.unpack(packed) == folder and (folder / "mark").exists()
    assert [path.name for path in archive.UNPACKED_FOLDER.iterdir()] == [folder.name]


@pytest.mark.parametrize("change", ["other", None])
def test_an_unpacked_copy_that_has_changed_is_unpacked_again(packed: Path, change: str | None) -> None:
    folder = archive.unpack(packed)
    record = folder / "cells/x/raw.json"
    if change is None:
        record.unlink()
    else:
        record.write_text(change)
    (folder / "cells/x/more.json").touch()
    killed = folder.with_name(f"{folder.name}.{2**22 + 1}")
    killed.mkdir()
    assert archive.unpack(packed) == folder
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert list(archive.UNPACKED_FOLDER.iterdir()) == [folder] and not (folder / "cells/x/more.json").exists()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, target: str = "/dev/zero") -> None:
    path.unlink()
    path.symlink_to(target)


def _huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(2**31)


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("name", ["manifest.json", "cells/x/raw.json", archive.CHECKSUMS])
@pytest.mark.parametrize("change", [_pipe, _link, lambda path: _link(path, "/etc/hostname"), _huge])
def test_only_regular_files_of_bounded_size_are_read(packed: Path, name: str, change: Any, has_checksums: bool) -> None:
    folder = packed.with_name("folder")
    shutil.unpack_archive(packed, folder)
    change(folder / name)
    if not has_checksums:
        (folder / archive.CHECKSUMS).unlink()
        if name == archive.CHECKSUMS:
            return
    with pytest.raises(ArchiveError, match=f"{name} (is a link or a device|has 2048 MiB)"):
        archive.verified_folder(folder)


def test_the_same_files_give_the_same_bytes_at_any_time(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b'{"a": 1}\n')
    other = tmp_path / "other.zip"
    archive.write(other, {"cells/x/raw.json": FILES["cells/x/raw.json"], "manifest.json": tmp_path / "source"}, 1.7e9)
    assert other.read_bytes() == packed.read_bytes()
    assert not list(tmp_path.glob(".*part"))


def test_sha256sum_can_check_it(packed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed) as zip_file:
        zip_file.extractall(tmp_path / "out")
    command = ["sha256sum", "--strict", "-c", archive.CHECKSUMS]
    assert subprocess.run(command, cwd=tmp_path / "out", capture_output=True, check=False).returncode == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_changed_content_gets_through(packed: Path, data: Any) -> None:
    content = bytearray(packed.read_bytes())
    with zipfile.ZipFile(packed) as zip_file:
        entry = data.draw(st.sampled_from(zip_file.infolist()))
    begin = entry.header_offset + 30 + len(entry.filename)
    at = data.draw(st.integers(begin, begin + entry.compress_size - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    changed = packed.with_name("changed.zip")
    changed.write_bytes(content)
    try:
        folder = archive.unpack(changed)
    except ArchiveError as refused:
        assert entry.filename in str(refused) and "\n" not in str(refused)
    else:
        # A few bits of the compression, such as the mark of the last block, do not affect the contents.
        assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert not list(archive.UNPACKED_FOLDER.glob("*.*"))


def repacked(path: Path, changes: dict[str, bytes | None]) -> Path:
    """The archive with some contents replaced, removed (None) or added by hand, and new CRCs."""
    with zipfile.ZipFile(path) as zip_file:
        contents: dict[str, bytes | None] = {name: zip_file.read(name) for name in zip_file.namelist()}
    target = path.with_name("repacked.zip")
    with zipfile.ZipFile(target, "w") as new:
        for name, content in (contents | changes).items():
            if content is not None:
                new.writestr(name, content)
    return target


def test_a_file_that_was_changed_by_hand_is_named(packed: Path) -> None:
    for changes, words in (
        ({"manifest.json": b"{}"}, "manifest.json is not what was archived"),
        ({"manifest.json": None}, "lacks manifest.json"),
        ({"extra.txt": b"hello"}, "'extra.txt' is not in its checksums"),
        ({archive.CHECKSUMS: None}, "has no checksums.sha256"),
        ({archive.CHECKSUMS: b"nothing\n"}, "checksums.sha256 is not what was archived"),
        ({archive.CHECKSUMS: b"0  \x1b[31ma\n"}, "checksums.sha256 is not what was archived"),
        ({archive.CHECKSUMS: b"0  a\n"}, "checksums.sha256 lists no manifest.json"),
    ):
        with pytest.raises(ArchiveError, match=words):
            archive.unpack(repacked(packed, changes))


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "./outside", ".", "cells//outside"])
def test_nothing_is_unpacked_outside(packed: Path, tmp_path: Path, name: str) -> None:
    sums = f"{hashlib.sha256(b'x').hexdigest()}  {name}\n".encode()
    with pytest.raises(ArchiveError):
        archive.unpack(repacked(packed, {name: b"x", archive.CHECKSUMS: sums}))
    assert not list(tmp_path.rglob("outside")) and not Path("/outside").exists()


def test_a_file_that_is_not_a_zip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.zip").write_text("hello")
    with pytest.raises(ArchiveError, match="damaged"):
        archive.unpack(tmp_path / "data.zip")


def test_an_archive_that_unpacks_to_far_more_than_a_study_is_refused(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "UNSUSPICIOUS_BYTES", 2**20)
    zeros = packed.with_name("zeros.zip")
    archive.write(zeros, {"cells/raw.json": bytes(2**22)}, 1.7e9)
    with pytest.raises(ArchiveError, match=r"would unpack to 4 MiB from 0\.0 MiB"):
        archive.unpack(zeros)
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 100)
    with pytest.raises(ArchiveError, match="if you trust it, unpack it by hand"):
        archive.unpack(packed)


def test_another_run_may_unpack_the_same_archive_meanwhile(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        shutil.copytree(self, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    folder = archive.unpack(packed)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert list(archive.UNPACKED_FOLDER.iterdir()) == [folder]


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        archive.write(tmp_path / "data.zip", {"a": tmp_path / "missing"}, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_described_as_a_workflow_run(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path / "results")
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "report.html").write_text("<html>")
    for target in (root / "archive.zip", tmp_path / "again.zip"):
        ro_crate.write(root, root, target)
    assert (root / "archive.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()
    with zipfile.ZipFile(root / "archive.zip") as packed:
        names = set(packed.namelist())
        graph = json.loads(packed.read(ro_crate.METADATA))["@graph"]
    assert {"cells/mps/matmul/n2/r1/raw.json", "config.yaml", "report.html", "tables/summary.csv"} <= names
    entities = {entity["@id"]: entity for entity in graph}
    # Every file is described except the metadata and the checksums, and every description has its file.
    described = {name for name, entity in entities.items() if "File" in entity["@type"]}
    assert described == names - {ro_crate.METADATA, archive.CHECKSUMS}
    study = entities["./"]
    assert {profile["@id"] for profile in study["conformsTo"]} == set(ro_crate.PROFILES)
    assert study["mainEntity"] == {"@id": "workflow/Snakefile"}
    assert "ComputationalWorkflow" in entities["workflow/Snakefile"]["@type"]
    assert fabricated.LABEL in study["name"]
    (run,) = (entities[mention["@id"]] for mention in study["mentions"])
    assert (run["@type"], run["instrument"]) == ("CreateAction", {"@id": "workflow/Snakefile"})
    assert {"@id": "config.yaml"} in run["object"] and {"@id": "tables/summary.csv"} in run["result"]
    assert manifest["run_id"] in run["@id"] and run["endTime"] == study["datePublished"] == "2025-01-14T10:20:00+00:00"


OUTSIDE = ("../out", "/out", "a/../../out", "a\\..\\out")
NAMES = (*OUTSIDE, "cells/y.json", "./a", ".", "", "manifest.json/x", "cells/x", "é\n")


@pytest.mark.thorough
@settings(
    max_examples=150,
    phases=[Phase.generate],
    print_blob=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_an_archive_of_a_stranger_is_refused_or_is_what_its_checksums_say(packed: Path, data: Any) -> None:
    """Entries of any name, with true or false checksums, then changed, cut or repeated bytes."""
    contents = {name: content for name, content in FILES.items() if isinstance(content, bytes)}
    for _ in range(data.draw(st.integers(0, 3))):
        contents[data.draw(st.sampled_from(NAMES))] = data.draw(st.binary(max_size=20))
    listed = {name: content for name, content in contents.items() if data.draw(st.integers(0, 9))}
    target = packed.with_name("strange.zip")
    with zipfile.ZipFile(target, "w") as new:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = data.draw(st.sampled_from([0o644, 0o120777, 0o010644, 0o040755])) << 16
            new.writestr(entry, content)
        new.writestr(archive.CHECKSUMS, archive.checksum_lines(listed))
    raw = bytearray(target.read_bytes())
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    target.write_bytes(raw[: len(raw) - data.draw(st.sampled_from([0, 0, 0, 1, 30, len(raw) - 1]))])
    try:
        folder = archive.unpack(target)
    except ArchiveError as refused:
        assert "\n" not in str(refused) and str(refused).isprintable()
    else:
        found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        assert not any(path.is_symlink() for path in found.values())
        sums = dict(reversed(line.split("  ", 1)) for line in archive.checksum_lines(listed).splitlines())
        assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == sums
        shutil.rmtree(folder)
    assert not [*packed.parent.rglob("*out"), *archive.UNPACKED_FOLDER.glob("*")] and not Path("/out").exists()
