"""The linter of documents reads every file that git does not ignore, tracked or new."""

import runpy
import subprocess
from pathlib import Path

import pytest

LINTER = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "prose.py"))


def test_a_new_document_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored.md\n")
    (tmp_path / "Makefile").touch()
    twice = "A line that stands twice, one after the other.\n" * 2
    for name in ("new.md", "ignored.md"):
        (tmp_path / name).write_text(twice)
    monkeypatch.setitem(LINTER["main"].__globals__, "ROOT", tmp_path)
    assert LINTER["main"]([]) == 1
    assert capsys.readouterr().out.startswith("new.md:2: ")
