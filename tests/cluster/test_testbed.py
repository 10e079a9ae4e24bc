"""The test bed itself: several at a time, and one that ends leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster.harness import FOREVER, Cluster, eventually
from cluster.testbed import cgroups, gpu, instance, lifecycle, real
from cluster.testbed.instance import Instance


@pytest.fixture
def other_name(machine: None) -> Iterator[str]:
    """A name for another test bed, which is ended afterwards."""
    name = f"other-{os.getpid()}"
    yield name
    lifecycle.down(name)


def ids_in(namespace: str) -> list[str]:
    """Ids of the processes in a mount namespace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "ns" / "mnt").readlink()) == namespace:
                found.append(process.name)
        except OSError:
            continue
    return found


def traces(found: Instance) -> dict[str, list[str]]:
    """Everything except processes that an instance could leave on this machine."""
    routes = subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout.splitlines()
    return {
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(found.folder) in line],
        "links": [found.link] * Path("/sys/class/net", found.link).exists(),
        "routes": [line for line in routes if found.pod_subnet in line or found.host_ip in line],
        "cgroups": [str(folder) for folder in cgroups.folders(found.cgroup) if folder.exists()],
        "folders": [str(found.folder)] * found.folder.exists(),
    }


def host() -> dict[str, object]:
    """Everything that a kubelet, containerd and their pods would create or set on their machine."""
    settings = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    folders = ("/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods", "/var/log/containers", "/run/containerd")
    folders += ("/run/nvidia", "/run/cni", "/run/netns", "/etc/cni", "/etc/cdi", "/opt/containerd")
    contents = {folder: sorted(Path(folder).glob("*")) for folder in folders}
    return contents | {setting: Path("/proc/sys", setting).read_text() for setting in settings}


def test_two_test_beds_run_at_once_and_one_that_ends_leaves_nothing(cluster: Cluster, other_name: str) -> None:
    before = host()
    found = lifecycle.up(other_name)
    other = Cluster(found)
    eventually("a service account", lambda: other.core.list_namespaced_service_account("default").items)
    other.start("default", "stays", FOREVER)
    other.wait_for_phase("default", "stays")
    assert other.core.read_namespaced_pod("stays", "default").status.pod_ip.startswith(f"10.88.{found.slot}.")
    pid = found.init_pid()
    assert pid
    mount_namespace = str(Path(f"/proc/{pid}/ns/mnt").readlink())
    assert ids_in(mount_namespace)
    assert {kind for kind, left in traces(found).items() if left} == {"links", "routes", "cgroups", "folders"}
    assert lifecycle.up(other_name) == found
    assert found.init_pid() == pid
    lifecycle.down(other_name)
    eventually("the end of its last process", lambda: not ids_in(mount_namespace))
    assert not any(traces(found).values())
    assert host() == before
    assert cluster.core.list_node(_request_timeout=5).items


def test_the_next_start_removes_a_killed_test_bed(machine: None, other_name: str) -> None:
    found = lifecycle.up(other_name)
    pid = found.init_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually("the end of the node", lambda: found.init_pid() is None)
    again = lifecycle.up(other_name)
    assert again.init_pid() not in (None, pid)


def test_manifests_for_a_real_driver_do_not_mention_the_mock() -> None:
    for file in ("device-plugin", "gfd", "mps", "dra", "schedulers/hami"):
        text = real.on_real_driver((gpu.MANIFESTS / f"{file}.yaml").read_text())
        assert "mock" not in text.lower()
        assert "LD_LIBRARY_PATH" not in text
        assert real.MPS_DAEMON not in text
        names = [each["kind"] for each in yaml.safe_load_all(text)]
        assert "DaemonSet" in names
    (daemon,) = yaml.safe_load_all(real.on_real_driver((gpu.MANIFESTS / "mps.yaml").read_text()))
    assert daemon["spec"]["template"]["spec"]["hostPID"] is True


def test_remains_of_killed_tests_are_removed(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREBENCH_TESTBED_CACHE", str(tmp_path))
    with subprocess.Popen(["sleep", "60"]) as tests:
        instance.create("theirs", tests.pid)
        instance.create("mine", os.getpid())
        instance.create("stays")
        assert lifecycle.sweep() == []
        tests.kill()
    assert lifecycle.sweep() == ["theirs"]
    assert lifecycle.names() == ["mine", "stays"]
