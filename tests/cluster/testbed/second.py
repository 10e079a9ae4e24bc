"""A second node of a running test bed: kubelet and containerd with their own folders on the first one's network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.testbed import cgroups, images, lifecycle
from cluster.testbed.instance import SECOND_NODE, Instance


@contextmanager
def second_node(found: Instance) -> Iterator[None]:
    """The node, ready and with images, removed afterwards. Raises TestbedError."""
    cgroup, folder = f"{found.cgroup}/second", found.second
    try:
        for part in ("log", "hold"):
            (folder / part).mkdir(parents=True)
        lifecycle.write_config(found, folder, cgroup, number=1)
        cgroups.make(cgroup)
        pid = lifecycle.start_first(found, folder / "log" / "node.log", cgroup, _namespaces(found), "second")
        socket = Path(f"/proc/{pid}/root/run/containerd/containerd.sock")
        lifecycle.wait_for("the start of the second containerd", socket.exists)
        lifecycle.import_images(found, images.archive(), pid)
        lifecycle.wait_for("a second node that is ready", lambda: lifecycle.is_node_ready(found, SECOND_NODE))
        yield
    finally:
        lifecycle.wait_for("the end of the second node", lambda: _is_removed(cgroup), 30.0)
        lifecycle.kubectl(found, "delete", "node", SECOND_NODE, "--ignore-not-found")
        _forget_pods(found)
        subprocess.run(["rm", "-rf", folder], check=True)


def _namespaces(found: Instance) -> list[str]:
    """A command that enters the first node's namespaces, except for mounts, which are the machine's."""
    first = [f"--target={found.init_pid()}", "--net", "--ipc", "--uts", "--pid"]
    return ["nsenter", *first, "unshare", "--mount", "--mount-proc", "--propagation=private"]


def _is_removed(cgroup: str) -> bool:
    try:
        cgroups.kill(cgroup)
        cgroups.remove(cgroup)
    except OSError:
        return False
    return True


def _forget_pods(found: Instance) -> None:
    """Delete the node's pods, since the controller would wait a minute for the node to return."""
    query = ["--all-namespaces", f"--field-selector=spec.nodeName={SECOND_NODE}"]
    lines = lifecycle.kubectl(found, "get", "pods", *query, "--no-headers", "--output=name").split()
    if lines:
        lifecycle.kubectl(found, "delete", "pods", *query, "--force", "--grace-period=0")
