"""What `make cluster-install` runs, with kubectl and helm that only note how they were called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "cluster_install.py"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a line for each call."""
    noted = tmp_path / "calls"
    noted.touch()
    for name in ("kubectl", "helm"):
        program = tmp_path / name
        found = f'[ "$1" = get ] && {{ [ -e {tmp_path}/lacking ] || echo "namespace/$3"; exit; }}'
        program.write_text(f'#!/bin/sh\n{found}\necho "{name} $*" >> {noted}\n[ ! -e {tmp_path}/broken ]\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return noted


def install(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


def test_by_default_nothing_is_changed(calls: Path) -> None:
    done = install("operator", "clusterpolicy")
    assert done.returncode == 0, done.stderr
    assert "would run: helm upgrade --install gpu-operator gpu-operator" in done.stdout
    lines = calls.read_text().splitlines()
    assert lines
    assert all(line.startswith("kubectl apply --dry-run=client ") for line in lines)


def test_a_program_that_is_not_there_is_named_before_anything_is_done(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (calls.parent / "helm").unlink()
    monkeypatch.setenv("PATH", str(calls.parent))
    assert install("plugin").returncode == 0, "a dry run only shows what Helm would do"
    calls.write_text("")
    done = install("--apply", "plugin")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("helm is not on PATH: install it first")
    assert calls.read_text() == ""


def test_charts_come_first_and_rights_go_to_their_namespace(calls: Path) -> None:
    assert install("--apply", "operator", "clusterpolicy", "drain").returncode == 0
    lines = calls.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["helm", *["kubectl"] * 5]
    assert "--values config/cluster/operator-values.yaml" in lines[0]
    assert "--version v26.7.0" in lines[0]
    assert lines[1:] == [
        "kubectl apply --filename config/cluster/namespace.yaml",
        "kubectl apply --filename config/cluster/rbac.yaml",
        "kubectl apply --namespace gpu-operator --filename config/cluster/rbac-plugin.yaml",
        "kubectl apply --namespace gpu-operator --filename config/cluster/rbac-clusterpolicy.yaml",
        "kubectl apply --filename config/cluster/rbac-drain.yaml",
    ]


@pytest.mark.usefixtures("calls")
def test_a_name_may_be_a_chart_and_rights() -> None:
    done = install("prometheus")
    assert "would run: helm upgrade --install kps" in done.stdout
    assert "--filename config/cluster/rbac-prometheus.yaml" in done.stdout


def test_a_namespace_of_ones_own(calls: Path) -> None:
    assert install("--apply", "--plugin-namespace", "kube-system").returncode == 0
    assert calls.read_text().splitlines()[-1].split()[2:4] == ["--namespace", "kube-system"]


def test_rights_in_a_namespace_that_is_not_there_are_left_out(calls: Path) -> None:
    """As where only resource claims are used."""
    (calls.parent / "lacking").touch()
    done = install("--apply", "dra")
    assert done.returncode == 0
    assert "there is no namespace nvidia-device-plugin" in done.stdout
    assert [line.split("/")[-1] for line in calls.read_text().splitlines()] == [
        "namespace.yaml",
        "rbac.yaml",
        "rbac-dra.yaml",
    ]


def test_it_ends_with_the_first_failure(calls: Path) -> None:
    (calls.parent / "broken").touch()
    assert install("--apply").returncode == 1
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [(["plugins"], "there is no 'plugins': WITH takes plugin, operator"), (["plugin", "operator"], "name one of them")],
)
def test_what_cannot_be_is_refused_before_anything_runs(calls: Path, names: list[str], words: str) -> None:
    done = install("--apply", *names)
    assert done.returncode == 2
    assert words in done.stderr
    assert calls.read_text() == ""


def test_every_chart_has_values_and_every_values_file_a_chart() -> None:
    folder = ROOT / "config" / "cluster"
    charts = yaml.safe_load((folder / "charts.yaml").read_text())
    assert {f"{name}-values.yaml" for name in charts} == {path.name for path in folder.glob("*-values.yaml")}
    for name in charts:
        assert yaml.safe_load((folder / f"{name}-values.yaml").read_text())
