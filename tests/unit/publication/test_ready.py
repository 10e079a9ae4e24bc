"""Ready tables of a published data set: what the code makes of its records now, but for rounding."""

from pathlib import Path

import pytest

from publication import ready, rebuild
from sharebench.datasets import archive, dataset, publish

PUBLISHED = Path(__file__).resolve().parents[3] / "published"
# test_findings.py holds all of them; these take a second.
SMALLEST = sorted(
    dataset.list_published(PUBLISHED), key=lambda name: (PUBLISHED / name / "tables/cells.csv").stat().st_size
)


@pytest.mark.parametrize("name", SMALLEST[:2])
def test_ready_tables_are_what_the_records_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = PUBLISHED / name
    rebuild.table(folder, tmp_path / "made")
    wanted = ready.files(folder, tmp_path / "made")
    assert set(wanted) == {*publish.READY_TABLES, archive.CHECKSUMS}
    differ = [path for path, text in wanted.items() if (folder / path).read_text(encoding="utf-8") != text]
    assert differ == [], f"published/{name}: rewrite them: make findings"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A published data set with ready tables."""
    there = {name: b"name,hz\nmps,1.0000000000000002\n" for name in publish.READY_TABLES}
    for name, content in there.items():
        for root in ("there", "made"):
            (tmp_path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / root / name).write_bytes(content)
    (tmp_path / "there" / archive.CHECKSUMS).write_text(archive.checksum_lines(there | {"manifest.json": b"{}"}))
    return tmp_path / "there"


def made(folder: Path, cells: str) -> dict[str, str]:
    (folder.parent / "made/tables/cells.csv").write_text(cells)
    return ready.files(folder, folder.parent / "made")


def test_a_last_digit_leaves_the_table_and_its_checksum(folder: Path) -> None:
    there = {name: (folder / name).read_text() for name in (*publish.READY_TABLES, archive.CHECKSUMS)}
    assert made(folder, "name,hz\nmps,1.0\n") == there


@pytest.mark.parametrize(
    "cells", ["name,hz\nmps,1.00001\n", "name,hz\nmig,1.0\n", "name,hz\nmps,\n", "name,hz\n", "name\nmps\n"]
)
def test_another_number_word_row_or_column_is_written(folder: Path, cells: str) -> None:
    wanted = made(folder, cells)
    assert wanted["tables/cells.csv"] == cells
    contents = {"manifest.json": b"{}", **{name: wanted[name].encode() for name in publish.READY_TABLES}}
    assert wanted[archive.CHECKSUMS] == archive.checksum_lines(contents)


def test_a_set_without_ready_tables_gets_them(folder: Path) -> None:
    before = ready.files(folder, folder.parent / "made")
    for name in publish.READY_TABLES:
        (folder / name).unlink()
    (folder / archive.CHECKSUMS).write_text(archive.checksum_lines({"manifest.json": b"{}"}))
    assert ready.files(folder, folder.parent / "made") == before


def test_a_folder_that_was_not_published_gets_none(folder: Path) -> None:
    (folder / archive.CHECKSUMS).unlink()
    assert ready.files(folder, folder.parent / "made") == {}
