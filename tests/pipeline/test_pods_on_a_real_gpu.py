"""Records of pods on a real GPU become tables, figures, a report and advice.

The records are those of a study published from a host with an H200, with the facts of a Kubernetes node in place of the
host's, since the machines that run the tests have no cluster with a GPU.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline.harness import REPOSITORY, Checkout, draw_figures, unstub_jobs

from sharebench.datasets import archive

MEASURED = REPOSITORY / "published/h200/even"
# As ClusterNode.facts writes them with `device: cuda`.
FACTS: dict[str, Any] = {
    "kind": "kubernetes",
    "product": "NVIDIA H200",
    "units": None,
    "units_name": "SMs",
    "memory_bytes": 143771 << 20,
    "is_gpu": True,
    "label": "",
    "details": {
        "node": "node-0",
        "machine": "the-machine",
        "gpus": 1,
        "driver": "580.159.04",
        "device_plugin": "0.19.3",
        "dra_driver": None,
        "dra_gates": None,
        "kubernetes": "v1.34.1",
        "container_runtime": "containerd://2.1.4",
        "kernel": "6.18.0",
    },
}
POD_VIEW = {"mps_pipe": None, "is_mig": False, "nodes": ["nvidia0"]}


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def in_pods(content: dict[str, Any]) -> None:
    """Make a record or calibration like those of pods in a cluster."""
    # Each repeat was measured on another device.
    content["node"] = FACTS | {"device": content["node"]["device"]}
    if "tenants" in content:
        spec = json.loads(content["spec"])
        content["spec"] = json.dumps(spec | {"node": spec["node"] | {"kind": "kubernetes"}})
    for tenant in content.get("tenants", []):
        tenant["view"] |= POD_VIEW


def before_any_tenant(content: dict[str, Any]) -> None:
    """Make a device file like that of a cluster, where only a tenant learns the GPU's identity."""
    in_pods(content)
    content["node"]["device"] = "the-machine"


def by_claims(manifest: dict[str, Any]) -> None:
    manifest["node_kind"] = manifest["config"]["node"] = "kubernetes"
    manifest["config"]["kubernetes"] |= {"access": "dra", "device": "cuda"}


@pytest.mark.thorough
def test_a_study_of_pods_on_a_real_gpu_becomes_tables_figures_report_and_advice(untouched: Checkout) -> None:
    data = untouched.root / "tmp/pods"
    shutil.copytree(archive.verified_folder(MEASURED), data, ignore=shutil.ignore_patterns("checksums.sha256"))
    edited(data / "manifest.json", by_claims)
    measured = [*data.glob("cells/*/*/n*/r*/raw.json"), *data.glob("calibration/*.json"), data / "nodes/device.json"]
    assert len(measured) > 20
    for path in measured[:-1]:
        edited(path, in_pods)
    edited(measured[-1], before_any_tenant)
    unstub_jobs(untouched, "report", "decide")

    untouched.run(config=[f"from={data}"], cores=2).ok()
    made = untouched.root / "results/from/pods"
    report = (made / "report.html").read_text()
    assert "NVIDIA H200" in report and "stand-in" not in report
    draw_figures(made, "latency", "progress", data=data)
    assert json.loads((made / "manifest.json").read_text())["device_units"] == 132, "as CUDA reported to the tenants"

    assert "yolos-graph: " in untouched.ask("advise", str(data), "--slo", "latency_ms=100")
