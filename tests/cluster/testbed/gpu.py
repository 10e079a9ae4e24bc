"""NVIDIA's device plugin, GPU feature discovery and MPS control daemon on a mock GPU, in a test cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from cluster.testbed import programs
from cluster.testbed.lifecycle import run, wait_for

MANIFESTS = Path(__file__).parent / "manifests"
PARTS = ("device-plugin.yaml", "gfd.yaml", "mps.yaml")
READY_SECONDS = 120.0


def install(kubeconfig: Path, kubectl: str | Path | None = None) -> None:
    """Apply the manifests, and wait for one GPU to be allocatable and described by labels.

    `kubectl` is the test bed's own by default. Raises TestbedError if that takes longer than 120 s.
    """
    command = [str(kubectl or programs.obtain(programs.KUBE)["kubectl"]), f"--kubeconfig={kubeconfig}"]
    definitions = programs.obtain(programs.NFD)["nfd-api-crds.yaml"]
    run(*command, "apply", "-f", definitions)
    run(*command, "wait", "--for=condition=Established", "--timeout=30s", "-f", definitions)
    run(*command, "apply", *(f"--filename={MANIFESTS / part}" for part in PARTS))

    def is_usable() -> bool:
        done = subprocess.run([*command, "get", "nodes", "-o", "json"], capture_output=True)
        nodes = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        return any(
            int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) > 0
            and "nvidia.com/gpu.product" in node["metadata"]["labels"]
            for node in nodes
        )

    wait_for("an allocatable GPU with labels", is_usable, READY_SECONDS)
