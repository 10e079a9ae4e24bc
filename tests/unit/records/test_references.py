"""Damaged reference files are named; a node with a damaged saved state is set up as from an unknown one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.figures import fabricated
from unit.studies import config_with

from sharebench.core.files import SCRIPTS, DamagedFile, write_json
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.kinds import open_node
from sharebench.measure.nodes.node import UNKNOWN_STATE
from sharebench.measure.run import jobs, ownership
from sharebench.model.config.load import load
from sharebench.model.records.references import read_calibration, read_device
from sharebench.model.study_config import to_json
from sharebench.study.study import Study

DEVICE: dict[str, Any] = {"node": fabricated.node(""), "roofs": None, "idle_power_watts": None}
CALIBRATION = DEVICE | {"workload": "matmul", "output_digest": [1.0], "capacity_hz": 2.0}


def test_valid_reference_files_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "device.json", DEVICE)
    write_json(tmp_path / "matmul.json", CALIBRATION)
    assert read_device(tmp_path / "device.json") == DEVICE
    assert read_calibration(tmp_path / "matmul.json") == CALIBRATION


@pytest.mark.parametrize(
    "content",
    ['{"a":', "[]", "{}", json.dumps(DEVICE | {"node": {}}), json.dumps(DEVICE | {"roofs": {"fp16": "fast"}})],
)
def test_a_damaged_device_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "device.json").write_text(content)
    with pytest.raises(DamagedFile, match=rf"^{tmp_path}/device.json: damaged \(.*\); remove it"):
        read_device(tmp_path / "device.json")


@pytest.mark.parametrize("change", [{"capacity_hz": "many"}, {"workload": 3}, {"output_digest": ["x"]}])
def test_a_calibration_with_wrong_types_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    write_json(tmp_path / "matmul.json", CALIBRATION | change)
    with pytest.raises(DamagedFile, match=r"matmul.json: damaged"):
        read_calibration(tmp_path / "matmul.json")


def test_a_character_that_the_terminal_cannot_show_is_replaced() -> None:
    script = r"from sharebench.core import console; console.run_job(lambda: 'mps \xd7 2', [])"
    environment = {"PYTHONPATH": str(SCRIPTS), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    content = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (content.returncode, content.stdout) == (0, "mps ? 2\n")


def test_a_cell_with_a_damaged_calibration_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of = Study(load(config_with({"strategies": ["exclusive"]})))
    run = ownership.claim(tmp_path, {"config": to_json(of.config), "planned": 1, "git_commit": None, "git_dirty": None})
    monkeypatch.setenv(RUN_ID_VARIABLE, run.run_id)
    cell = of.cells[0]
    (tmp_path / "calibration.json").write_text('{"workload":')
    with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(tmp_path) as job:
        jobs.measure_cells(job, [cell.raw], "code", [tmp_path / "calibration.json"])
    content = capsys.readouterr()
    assert "calibration.json: damaged" in content.out and "Traceback" not in content.out + content.err
    run.release()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"state": 7}', "\udcff"])
def test_a_node_with_a_damaged_state_file_is_in_no_known_state(tmp_path: Path, content: str) -> None:
    node = open_node("cpu", {"cores": "auto"}, tmp_path)
    (tmp_path / "state.json").write_text(content, errors="surrogateescape")
    assert node.current() == UNKNOWN_STATE
    assert node.restore()
    assert node.current() is None
