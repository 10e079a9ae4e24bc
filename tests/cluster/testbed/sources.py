"""Files of other projects that are used as they are: charts, and definitions of custom resources.

They lie in Go modules, which the module proxy serves and `programs/sources/go.sum` pins.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

from cluster.testbed.errors import TestbedError
from cluster.testbed.programs import SOURCES

FOLDER = SOURCES / "sources"
PLUGIN = "github.com/NVIDIA/k8s-device-plugin"
NFD = "sigs.k8s.io/node-feature-discovery"
PROMETHEUS = "github.com/prometheus-operator/prometheus-operator"
KARPENTER = "github.com/aws/karpenter-provider-aws"


@cache
def version(module: str) -> str:
    """The pinned version of a module."""
    lines = (line.split() for line in (FOLDER / "go.mod").read_text().splitlines())
    return next(words[1] for words in lines if words[:1] == [module])


@cache
def folder(module: str) -> Path:
    """The sources of a module in Go's cache, which is read-only; fetched if need be. Raises TestbedError."""
    command = ["go", "mod", "download", "-json", f"{module}@{version(module)}"]
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    except FileNotFoundError:
        raise TestbedError(f"no Go (go) on PATH to fetch {module} with") from None
    found = json.loads(done.stdout or "{}")
    if "Dir" not in found:
        raise TestbedError(f"{module} cannot be had: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])


def fetch_all() -> None:
    """Whatever the tests need, so that no test waits for it. Raises TestbedError."""
    for module in (PLUGIN, NFD, PROMETHEUS, KARPENTER):
        folder(module)


# Definitions of custom resources: file in the module.
NODE_POOL = (KARPENTER, "pkg/apis/crds/karpenter.sh_nodepools.yaml")
NODE_CLASS = (KARPENTER, "pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml")
POD_MONITOR = (PROMETHEUS, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml")


def file(module: str, path: str) -> Path:
    """A file of a module's sources."""
    return folder(module) / path
