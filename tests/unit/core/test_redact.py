"""What is private in a command or a config is not published."""

from pathlib import Path

import pytest

from sharebench.core.redact import redact


def test_published_words_name_no_outside_folder_and_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert redact("--cores") == "--cores"
    assert redact("strategies=[mps,mig]") == "strategies=[mps,mig]"
    assert redact(str(tmp_path / "config/mine.yaml")) == "config/mine.yaml"
    assert redact("--configfile=/home/jane/mine.yaml") == "--configfile=…/mine.yaml"
    assert redact("from=../../jane/results") == "from=…/results"
    assert redact("nvidia={python: /home/jane/bin/python, gpu: GPU-4c57ba52-437c}") == (
        "nvidia={python: …/python, gpu: GPU-…}"
    )
    assert redact("nvidia={gpu: 1}") == "nvidia={gpu: 1}"
