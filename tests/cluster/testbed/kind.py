"""The same GPU parts on kind, for machines with Docker. Never run where this was written: there was no Docker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.testbed import gpu, images
from cluster.testbed.lifecycle import run


def missing() -> str | None:
    """The first thing that kind needs and this machine lacks."""
    for tool in ("docker", "kind", "kubectl", "go", "gcc", "mmdebstrap"):
        if not shutil.which(tool):
            return f"no {tool} on PATH, which SHAREBENCH_CLUSTER=kind needs"
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        return "no Docker daemon answers, which SHAREBENCH_CLUSTER=kind needs"
    return None


@contextmanager
def cluster(name: str) -> Iterator[Path]:
    """The kubeconfig of a new kind cluster with the GPU parts; the cluster ends with the block."""
    with TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        run("kind", "create", "cluster", "--name", name, "--kubeconfig", kubeconfig)
        try:
            run("kind", "load", "image-archive", images.archive(), "--name", name)
            gpu.install(kubeconfig, kubectl="kubectl")
            yield kubeconfig
        finally:
            run("kind", "delete", "cluster", "--name", name, "--kubeconfig", kubeconfig)
