"""Files that are written whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharebench.core import files
from sharebench.core.files import DamagedFile, read_json, replace_atomically, write_json

SCRIPTS = Path(files.__file__).resolve().parents[2]


def test_a_file_is_replaced_and_its_folder_created(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "raw.json"
    replace_atomically(path, "one\n")
    replace_atomically(path, "two ×\n")
    assert path.read_bytes() == "two ×\n".encode()
    assert [each.name for each in path.parent.iterdir()] == ["raw.json"]


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "raw.json"
    victim.write_text("mine")
    (tmp_path / ".raw.json.part").symlink_to(victim)
    replace_atomically(path, "new")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("mine", "new", False)


def test_a_replaced_file_is_on_the_disk_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    replace_atomically(tmp_path / "raw.json", "new")
    assert synced == [tmp_path / ".raw.json.part", tmp_path]


class Interrupt(BaseException):
    """The exception of a signal handler."""


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), Interrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: str
) -> None:
    path = tmp_path / "raw.json"
    replace_atomically(path, "old")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(*((os, "fsync", fail) if step == "fsync" else (Path, "replace", fail)))
    with pytest.raises(type(failure)):
        replace_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_leftover_of_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "raw.json"
    script = (
        "import os, signal, sys; from pathlib import Path; from sharebench.core import files\n"
        "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.replace_atomically(Path(sys.argv[1]), 'half')"
    )
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    assert subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False).returncode == -9
    assert not path.exists()
    assert len(list(tmp_path.iterdir())) == 1
    replace_atomically(path, "whole")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("raw.json", "whole")]


def test_json_is_readable_and_the_same_for_equal_values(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", {"b": 1, "a": "×"})
    write_json(tmp_path / "other.json", {"a": "×", "b": 1})
    text = (tmp_path / "one.json").read_text()
    assert text == (tmp_path / "other.json").read_text()
    assert "×" in text and text.endswith("}\n") and len(text.splitlines()) == 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"a":', b"\xff\xfe\x00", b"[" * 100_000, b"[1]", b"7", b"null", b'{"b": 1}']
)
def test_a_damaged_file_is_named_with_the_repair_command(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a name.json"
    path.write_bytes(content)
    with pytest.raises(DamagedFile) as damage:
        read_json(path, "a")
    line = str(damage.value)
    assert line.startswith(f"{path}: damaged (") and line.endswith(f"rm '{path}'") and "\n" not in line
