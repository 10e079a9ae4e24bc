"""Ready tables of published data sets agree with those that the code makes from the records, except for rounding."""

from pathlib import Path

import pytest

from publication import ready, rebuild
from sharebench.datasets import archive, dataset, publish

PUBLISHED = Path(__file__).resolve().parents[3] / "published"
# A thorough test in test_findings.py checks all of them; these take a second.
SMALLEST = sorted(
    dataset.list_published(PUBLISHED), key=lambda name: (PUBLISHED / name / "tables/cells.csv").stat().st_size
)


@pytest.mark.parametrize("name", SMALLEST[:2])
def test_ready_tables_agree_with_the_records(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = PUBLISHED / name
    rebuild.write_tables(*dataset.open_complete(folder), tmp_path / "made")
    wanted = ready.ready_files(folder, tmp_path / "made")
    assert set(wanted) - {*publish.READY_WHERE_MADE} == {*publish.READY_TABLES, archive.CHECKSUMS}
    assert ("tables/isolation.csv" in wanted) == ("faults" in name)
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
    return ready.ready_files(folder, folder.parent / "made")


def test_a_difference_in_the_last_digit_changes_neither_table_nor_checksum(folder: Path) -> None:
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
    before = ready.ready_files(folder, folder.parent / "made")
    for name in publish.READY_TABLES:
        (folder / name).unlink()
    (folder / archive.CHECKSUMS).write_text(archive.checksum_lines({"manifest.json": b"{}"}))
    assert ready.ready_files(folder, folder.parent / "made") == before


def test_a_folder_that_was_not_published_gets_none(folder: Path) -> None:
    (folder / archive.CHECKSUMS).unlink()
    assert ready.ready_files(folder, folder.parent / "made") == {}
