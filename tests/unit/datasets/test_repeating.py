"""A published study can be repeated: its config is accepted on a GPU host, and its report names the command."""

import copy
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config
from unit.studies import base_config

from publication import rebuild
from sharebench.core.redact import redact
from sharebench.datasets import dataset
from sharebench.model import capabilities, gpu_python
from sharebench.model.config.load import load
from sharebench.read.report import page
from sharebench.study.study import Study

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("published/*/*/config.yaml"))


def repeated(path: str, **changes: Any) -> dict[str, Any]:
    """The config of `--configfile PATH --config results=results/mine`, over the defaults."""
    config = copy.deepcopy(base_config())
    update_config(config, yaml.safe_load((ROOT / path).read_text(encoding="utf-8")))
    return load(config | {"results": "results/mine"} | changes)


@pytest.mark.parametrize("path", CONFIGS)
def test_a_published_config_plans_the_cells_of_its_study(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path)
    monkeypatch.setattr(gpu_python, "GPU_ENVIRONMENT", Path(sys.executable))
    monkeypatch.chdir(tmp_path)
    # Whoever repeats the study must have the programs that it started.
    for name in set(re.findall(r"\{here\}/([^\s'\"]+)", (ROOT / path).read_text(encoding="utf-8"))):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    config = repeated(path)
    published = dataset.read_study(ROOT / Path(path).parent)
    assert {cell.raw for cell in Study(config).cells} == {cell.raw for cell in published.cells}
    python = gpu_python.gpu_python(config["nvidia"]["python"])
    assert python == Path(sys.executable), "the interpreter of the original's host is not here"


def test_every_study_has_its_config() -> None:
    folders = {ROOT / "published" / name for name in dataset.list_published(ROOT / "published")}
    assert folders and all((folder / "config.yaml").is_file() for folder in folders)


def test_an_interpreter_of_this_host_is_used_as_named() -> None:
    assert gpu_python.gpu_python("/opt/bin/python") == Path("/opt/bin/python")
    assert not gpu_python.has_own_python(redact("/opt/bin/python"))


def test_a_report_of_a_data_set_names_the_command_of_that_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    made = tmp_path / "made"
    study, data = dataset.open_complete(ROOT / "published/h200/faults")
    rebuild.write_tables(study, data, made)
    manifest = json.loads((made / "manifest.json").read_text())
    command = page.repeat_command(manifest | {"argv": ["snakemake", "advise"]}, data)
    assert command == (
        "snakemake --cores 1 --configfile published/h200/faults/config.yaml --config results=results/mine"
    )
    assert (ROOT / shlex.split(command)[4]).is_file()
    without = shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("config.yaml"))
    typed = json.loads((data / "manifest.json").read_text())["argv"]
    manifest["config"]["from"] = [str(without)]
    assert page.repeat_command(manifest, without) == shlex.join(typed), "it has no config"


def test_a_report_of_a_study_names_the_command_that_was_typed(tmp_path: Path) -> None:
    manifest = {"config": {"from": []}, "argv": ["snakemake", "--config", "strategies=[mps, mig]"]}
    assert page.repeat_command(manifest, tmp_path) == "snakemake --config 'strategies=[mps, mig]'"
