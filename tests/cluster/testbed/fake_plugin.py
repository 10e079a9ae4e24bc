"""A stand-in for NVIDIA's device plugin, next to its DaemonSets: a test sets what it offers to the kubelet."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cluster.testbed import programs
from cluster.testbed.instance import Instance
from cluster.testbed.lifecycle import run

# A container that looks like the plugin to its config-manager, and offers nothing.
IDLE = "exec -a nvidia-device-plugin bash -c 'trap : HUP; while :; do sleep 1; done'"


class FakePlugin:
    """One resource, offered by a process on the test bed's node that registers when it starts."""

    def __init__(self, found: Instance, folder: Path, name: str, resource: str = "nvidia.com/gpu") -> None:
        self._numbers = folder / name
        self.offer(0)
        binary = programs.obtain(programs.FAKE_PLUGIN)["fake-plugin"]
        command = ["nsenter", f"--target={found.init_pid()}", "--mount", str(binary)]
        command += [f"--resource={resource}", f"--socket=fake-{name}.sock", f"--file={self._numbers}"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def offer(self, healthy: int, unhealthy: int = 0) -> None:
        """This number of devices from now on."""
        changed = self._numbers.with_suffix(".new")
        changed.write_text(f"{healthy} {unhealthy}\n")
        changed.rename(self._numbers)

    def stop(self) -> None:
        """End it: the kubelet keeps the name, with no devices."""
        self._process.kill()
        self._process.wait()


def idle(found: Instance) -> None:
    """Have the plugin's own container do nothing, so that only stand-ins offer devices."""
    kubectl: list[str | Path] = [programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={found.kubeconfig}"]
    kubectl += ["--namespace=nvidia-device-plugin"]
    patch = (
        f'[{{"op": "replace", "path": "/spec/template/spec/containers/1/command", "value": ["bash", "-c", "{IDLE}"]}}]'
    )
    run(*kubectl, "patch", "daemonset", "nvidia-device-plugin", "--type=json", f"--patch={patch}")
    run(*kubectl, "rollout", "status", "daemonset", "nvidia-device-plugin", "--timeout=90s")
