"""Logs of any size: searched once, cut, and shown as plain text."""

from pathlib import Path

import pytest

from sharebench.measure.nodes.host import logs
from sharebench.measure.nodes.host.logs import LogSearch, log_end, truncate_log


def test_a_text_is_found_anywhere_in_a_log_that_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loading the model ser")
    search = LogSearch(log, "server is up")
    assert not search.is_found()
    with log.open("a") as more:
        more.write("ver is ")
    assert not search.is_found()
    with log.open("a") as more:
        more.write("up, and so on")
    # Bytes that were read are not read again, except for the possible start of the text.
    with log.open("r+b") as file:
        file.write(b"#" * 10)
    assert search.is_found()


def test_a_log_that_its_program_cuts_is_searched_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loading\n" * 100)
    search = LogSearch(log, "server is up")
    assert not search.is_found()
    log.write_text("server is up\n")
    assert search.is_found()


def test_a_long_log_is_cut_to_its_end_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 1 << 20)
    log = tmp_path / "log"
    with log.open("ab") as printing:
        printing.write(b"step\n" * (1 << 18))
        printing.flush()
        search = LogSearch(log, "up")
        assert not search.is_found()
        truncate_log(log, search)
        assert log.stat().st_size < logs.KEPT_BYTES + 100
        assert log.read_text().startswith("[more than 1 MiB were printed: what came before was cut]\n")
        printing.write(b"up\n")
        printing.flush()
    assert search.is_found(), "it goes on in what comes after"
    assert log.read_text().endswith("step\nup\n")
    before = log.read_text()
    truncate_log(log)
    assert log.read_text() == before


def test_what_is_cut_is_searched_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 1 << 20)
    log = tmp_path / "log"
    log.write_bytes(b"step\n" * (1 << 18))
    search = LogSearch(log, "server is up")
    assert not search.is_found()
    with log.open("ab") as printing:
        printing.write(b"server is up\n" + b"step\n" * (1 << 15))
    truncate_log(log, search)
    assert b"server is up" not in log.read_bytes()
    assert search.is_found()


def test_a_cut_log_is_searched_from_its_start_however_fast_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 1 << 20)
    log = tmp_path / "log"
    log.write_bytes(b"step\n" * (1 << 18))
    search = LogSearch(log, "server is up")
    truncate_log(log, search)
    with log.open("ab") as printing:
        printing.write(b"server is up\n" + b"step\n" * (1 << 18))
    assert search.is_found()


def test_only_plain_lines_reach_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[31mred\x1b[0m\x07\x1b]0;a title\x07 \xff\n10 %\r20 %\n\x1b[2J" + b"x" * 600 + b"\n")
    red, ten, twenty, long = log_end(log).splitlines()
    assert (red, ten, twenty) == ("red \N{REPLACEMENT CHARACTER}", "10 %", "20 %")
    assert long == "x" * 500 + "… (600 characters)"
    assert log_end(tmp_path / "none") == ""
