"""Sources of other projects: Go modules that a module proxy serves and `programs/pins.txt` pins by version and sum.

Programs are built from them; charts and definitions of custom resources are used as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from cluster.testbed.errors import TestbedError

OWN = Path(__file__).parent / "programs"
ATTEMPTS = 3  # at what needs the network
CGROUPS = "github.com/opencontainers/cgroups"
CONTAINERD = "github.com/containerd/containerd/v2"
DRA = "sigs.k8s.io/dra-driver-nvidia-gpu"
HELM = "helm.sh/helm/v3"
HTTPBIN = "github.com/mccutchen/go-httpbin/v2"
KARPENTER = "github.com/aws/karpenter-provider-aws"
KUBERNETES = "k8s.io/kubernetes"
MIG = "github.com/NVIDIA/mig-parted"
NFD = "sigs.k8s.io/node-feature-discovery"
OPERATOR = "github.com/prometheus-operator/prometheus-operator"
PLUGIN = "github.com/NVIDIA/k8s-device-plugin"
PROMETHEUS = "github.com/prometheus/prometheus"
TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"


def go(*arguments: str | Path, folder: Path = OWN, **variables: str) -> str:
    """Standard output of go. Raises TestbedError with its message.

    Tried again when it fails: what has been downloaded and compiled by then is kept.
    """
    if not shutil.which("go"):
        raise TestbedError(
            "no Go compiler (go) on PATH: install Go, or name a folder of binaries: SHAREBENCH_TESTBED_BIN"
        )
    environment = os.environ | variables
    for _ in range(ATTEMPTS):
        done = subprocess.run(["nice", "go", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
    raise TestbedError(f"go {arguments[0]} failed in {folder}:\n{last}")


@cache
def pins() -> dict[str, tuple[str, str]]:
    """Version and sum of each module."""
    lines = (line.split() for line in (OWN / "pins.txt").read_text().splitlines())
    return {module: (version, digest) for module, version, digest in lines}


def version(module: str) -> str:
    """The pinned version of a module, with its `v`."""
    return pins()[module][0]


@cache
def folder(module: str) -> Path:
    """Folder of a pinned module's sources in Go's read-only cache, fetched if necessary. Raises TestbedError."""
    pinned, digest = pins()[module]
    found = json.loads(go("mod", "download", "-json", f"{module}@{pinned}"))
    if found["Sum"] != digest:
        raise TestbedError(f"{module} {pinned} has the sum {found['Sum']}, not the pinned {digest}")
    return Path(found["Dir"])


def fetch_all() -> None:
    """Fetch all files that the tests need, so that no test waits for them. Raises TestbedError."""
    for module in (PLUGIN, NFD, OPERATOR, KARPENTER):
        folder(module)


# Custom resource definitions: file in the module.
NODE_POOL = (KARPENTER, "pkg/apis/crds/karpenter.sh_nodepools.yaml")
NODE_CLASS = (KARPENTER, "pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml")
POD_MONITOR = (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml")


def file(module: str, path: str) -> Path:
    """A file of a module's sources."""
    return folder(module) / path
