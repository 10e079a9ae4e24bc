"""The commit of the checkout that a run notes."""

import pytest

from sharebench.run import lifecycle


def test_the_state_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, str | None] = {"rev-parse": "abc123", "status": ""}
    monkeypatch.setattr(lifecycle, "_git", lambda *arguments: answers[arguments[0]])
    assert lifecycle.git_state() == {"git_commit": "abc123", "git_dirty": False}
    answers["status"] = " M scripts/sharebench/cell/cell.py"
    assert lifecycle.git_state() == {"git_commit": "abc123", "git_dirty": True}
    answers.update({"rev-parse": None, "status": None})
    assert lifecycle.git_state() == {"git_commit": None, "git_dirty": None}

    def no_git(*_: str) -> str:
        raise FileNotFoundError("git")

    monkeypatch.setattr(lifecycle, "_git", no_git)
    assert lifecycle.git_state() == {"git_commit": None, "git_dirty": None}
