"""The driver on a test cluster: nodes, single cells, and whole runs of snakemake."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.harness import PYTHON_IMAGE, Cluster
from cluster.testbed import programs

from sharebench import cli
from sharebench.measure.nodes.contract import Grant, PlannedLoad, State
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.pods.tenants import PodTenants
from sharebench.model.config import load as configuration
from sharebench.model.config_nodes import Timeouts
from sharebench.model.workload import Workload
from sharebench.study.study import Study

REPOSITORY = Path(__file__).resolve().parents[2]
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
RUN_SECONDS = 900
PATIENT_SECONDS = 1800.0
RUN = "20261120-000000-aaaa"
TIMEOUTS: Timeouts = {"start_seconds": 180, "record_seconds": 60}


def documented(page: str, section: str) -> list[str]:
    """The blocks of commands of a section of a page of docs/cluster."""
    text = (REPOSITORY / "docs" / "cluster" / page).read_text()
    (found,) = re.findall(rf"^#+ {section}$(.*?)(?=^#|\Z)", text, re.S | re.M)
    return re.findall(r"^```bash\n(.*?)^```", found, re.S | re.M)


def typed(cluster: Cluster, commands: str, **variables: str) -> str:
    """Type commands in a shell that has kubectl and the cluster's KUBECONFIG; returns what they print."""
    folder = programs.obtain(programs.KUBE)["kubectl"].parent
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.kubeconfig)}
    command = ["bash", "-e", "-o", "pipefail", "-c", commands]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def study_of(namespace: str, **changes: Any) -> dict[str, Any]:
    """The config of a study with CPU tenants; `kubernetes` among the changes is merged into that section."""
    cluster = {
        "namespace": namespace,
        "image": PYTHON_IMAGE,
        "device": "cpu",
        "stable_seconds": 2,
        "publish_seconds": 4,
        "switch_seconds": 300,
    } | changes.pop("kubernetes", {})
    given = {
        "results": "results",
        "node": "kubernetes",
        "strategies": ["exclusive", "time-slicing", "mps"],
        "replicas": [1, 3],
        "workloads": ["matmul-small"],
        # A small matmul and a lenient rule, since these tests check control, not measurements.
        "workload_catalogue": {"matmul-small": {"module": "matmul", "params": {"size": 64}}},
        "repeats": 1,
        "window_seconds": 1,
        "warmup": {"max_seconds": 3, "tolerance_percent": 50},
    }
    return given | changes | {"kubernetes": cluster}


def normalised(given: Mapping[str, Any]) -> Study:
    """The study of a config merged into the catalogues."""
    merged: dict[str, Any] = {}
    for name in ("strategies", "workloads", "config"):
        merged |= yaml.safe_load((REPOSITORY / "config" / f"{name}.yaml").read_text())
    for key, value in given.items():
        merged[key] = {**merged[key], **value} if isinstance(merged.get(key), dict) else value
    return Study(configuration.load(merged))


def node_of(study: Study, folder: Path, run_id: str) -> ClusterNode:
    """The study's node with its Lease taken, as in a run's first process."""
    os.environ["SHAREBENCH_RUN_ID"] = run_id
    node = ClusterNode(study.node_options(), folder)
    node.claim(run_id)
    return node


@contextmanager
def owned(cluster: Cluster, study: Study, folder: Path, run_id: str = RUN) -> Iterator[ClusterNode]:
    """The study's node on this cluster, owned by this run, and restored and released afterwards."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(cluster.kubeconfig))
        patched.setenv("SHAREBENCH_RUN_ID", run_id)
        node = node_of(study, folder / "node", run_id)
        try:
            yield node
        finally:
            node.restore()
            node.release()


def state(study: Study, strategy: str, replicas: int | None = None) -> State:
    """A state of the node."""
    return State(study.strategies[strategy], replicas, 0)


def tenants_of(node: ClusterNode, study: Study, count: int, **workload: Any) -> PodTenants:
    """This number of tenants, not started yet; `workload` has changes of the spec's workload."""
    cell = next(each for each in study.cells)
    spec = study.spec(cell)
    assert isinstance(spec.workload, Workload)
    # Some of these workloads no config would have.
    spec = spec.changed(workload=Workload.model_validate(spec.workload.spec() | workload), replicas=count)
    loads: list[PlannedLoad] = [{"arrival": "closed", "seed": 1, "before": 0}] * count
    made = node.tenants(spec, {"timeouts": TIMEOUTS, "loads": loads, "cell_folder": f"cells/{time.time()}"})
    assert isinstance(made, PodTenants)
    return made


def grants(count: int) -> list[Grant]:
    """A grant for each tenant."""
    return [Grant(index, 0) for index in range(count)]


@dataclass
class Run:
    """A run of snakemake, or a command, in a folder of its own."""

    folder: Path
    kubeconfig: Path
    given: dict[str, Any]
    seconds: float = RUN_SECONDS

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the run, in a process group that a test can end."""
        (self.folder / "study.yaml").write_text(yaml.safe_dump(self.given))
        command = [str(SNAKEMAKE), "--snakefile", str(REPOSITORY / "Snakefile"), "--cores", "1", *arguments]
        command += ["--profile", str(REPOSITORY / "profiles" / "default")]
        if not cli.commands.commands.keys().isdisjoint(arguments):
            command = [sys.executable, "-m", "sharebench.cli", *arguments]
        command += ["--configfile", "study.yaml"]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(REPOSITORY / "scripts")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def passed(self, *arguments: str) -> str:
        """Run it to its end, which must be a success; returns its output."""
        code, out = self.finish(*arguments)
        assert code == 0, out
        return out

    def finish(self, *arguments: str) -> tuple[int, str]:
        """Run it to its end; returns exit code and output."""
        process = self.start(*arguments)
        try:
            out, _ = process.communicate(timeout=self.seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out
