"""What is known of sources is used again, and never for anything else."""

import json
from pathlib import Path

import pytest

from sharebench import digests, fingerprint
from sharebench.digests import KnownDigests


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    return tmp_path / "digests.json"


def remember(path: Path, *sources: str) -> None:
    known = KnownDigests(path)
    for source in sources:
        assert known.digest_of(source) == fingerprint.digest_of(source)
    known.keep()


def test_a_source_that_is_known_is_not_cut_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fingerprint.digest_of("a = 1\n")
    remember(path, "a = 1\n")
    monkeypatch.setattr(fingerprint, "digest_of", lambda source: pytest.fail(f"cut again: {source}"))
    assert KnownDigests(path).digest_of("a = 1\n") == expected


def test_another_source_or_another_way_to_digest_is_not_known(path: Path) -> None:
    remember(path, "a = 1\n")
    remember(path, "a = 2\n")
    kept = json.loads(path.read_text())
    assert len(kept["digests"]) == 2
    wrong = {key: "wrong" for key in kept["digests"]}
    path.write_text(json.dumps({"maker": "another", "digests": wrong}))
    remember(path, "a = 1\n")


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"maker": 1}', "\0"])
def test_a_damaged_file_is_as_none(path: Path, damaged: str) -> None:
    path.write_text(damaged)
    remember(path, "a = 1\n")


def test_nothing_is_written_where_python_keeps_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    remember(path, "a = 1\n")
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_no_error(path: Path) -> None:
    path.mkdir()
    remember(path, "a = 1\n")


def test_old_digests_are_not_kept_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST", 2)
    remember(path, "a = 1\n", "a = 2\n", "a = 3\n")
    remember(path, "a = 4\n")
    assert len(json.loads(path.read_text())["digests"]) == 1
