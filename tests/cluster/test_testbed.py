"""The test bed itself: several at a time, and nothing left of one that ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster.harness import FOREVER, Cluster, eventually
from cluster.testbed import cgroups, gpu, instance, lifecycle, programs, real, requirements, sources
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import Instance

pytestmark = pytest.mark.testbed
TESTS = Path(__file__).parents[1]


@pytest.fixture
def other_name(machine: None) -> Iterator[str]:
    """A name for one more test bed; what a test starts under it ends."""
    name = f"other-{os.getpid()}"
    yield name
    lifecycle.down(name)


def ids_in(namespace: str) -> list[str]:
    """Numbers of the processes of a mount namespace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "ns" / "mnt").readlink()) == namespace:
                found.append(process.name)
        except OSError:
            continue
    return found


def traces(found: Instance) -> dict[str, list[str]]:
    """What an instance could leave on this machine, other than processes."""
    routes = subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout.splitlines()
    return {
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(found.folder) in line],
        "links": [found.link] * Path("/sys/class/net", found.link).exists(),
        "routes": [line for line in routes if found.pod_subnet in line or found.host_ip in line],
        "cgroups": [str(folder) for folder in cgroups.folders(found.cgroup) if folder.exists()],
        "folders": [str(found.folder)] * found.folder.exists(),
    }


def host() -> dict[str, object]:
    """What a kubelet, containerd and their pods would make or set on the machine that they run on."""
    settings = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    folders = ("/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods", "/var/log/containers", "/run/containerd")
    folders += ("/run/nvidia", "/run/cni", "/run/netns", "/etc/cni", "/etc/cdi", "/opt/containerd")
    contents = {folder: sorted(Path(folder).glob("*")) for folder in folders}
    return contents | {setting: Path("/proc/sys", setting).read_text() for setting in settings}


def test_two_run_side_by_side_and_nothing_is_left_of_the_one_that_ends(cluster: Cluster, other_name: str) -> None:
    assert cluster.instance
    before = host()
    found = lifecycle.up(other_name)
    other = Cluster(found.kubeconfig, found)
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
    assert ids_in(mount_namespace) == []
    assert not any(traces(found).values())
    assert host() == before
    assert cluster.core.list_node(_request_timeout=5).items


def test_one_that_was_killed_is_cleared_away_by_the_next_start(machine: None, other_name: str) -> None:
    found = lifecycle.up(other_name)
    pid = found.init_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually("the end of the node", lambda: found.init_pid() is None)
    again = lifecycle.up(other_name)
    assert again.init_pid() not in (None, pid)


def test_a_stranger_under_an_old_process_number_is_not_the_node(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREBENCH_TESTBED_CACHE", str(tmp_path))
    found = instance.create("old")
    found.init_file.write_text(f"[{os.getpid()}, {(instance.started_ticks(os.getpid()) or 0) - 1}]")
    assert found.init_pid() is None
    found.init_file.write_text(f"[{os.getpid()}, {instance.started_ticks(os.getpid())}]")
    assert found.init_pid() == os.getpid()


def test_instances_get_addresses_of_their_own(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREBENCH_TESTBED_CACHE", str(tmp_path))
    first, second = instance.create("first"), instance.create("second")
    assert first.slot != second.slot
    assert instance.find("second") == second
    with pytest.raises(TestbedError, match="is not a name for a test bed"):
        instance.find("../first")


def test_a_folder_that_lacks_binaries_is_refused_in_one_line(machine: None, tmp_path: Path) -> None:
    environment = {**os.environ, "SHAREBENCH_TESTBED_BIN": str(tmp_path), "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "cluster.testbed", "up", "--name", "never"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().startswith(f"SHAREBENCH_TESTBED_BIN={tmp_path} lacks kube, etcd")
    assert len(done.stderr.splitlines()) == 1
    assert instance.find("never") is None


def test_what_a_machine_lacks_is_said_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(requirements.missing())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SHAREBENCH_TESTBED_BIN", raising=False)
    assert "no Go compiler" in str(requirements.missing())
    monkeypatch.setenv("SHAREBENCH_TESTBED_BIN", str(tmp_path))
    assert requirements.missing() == "no runc on PATH: apt-get install runc"


def test_cgroups_are_checked_before_anything_starts(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    assert "no cgroup rights" in str(requirements.missing())
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    assert str(requirements.missing()).startswith("no cgroup controller cpuset in ")
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset memory pids")
    assert "cgroup" not in str(requirements.missing())


@pytest.fixture
def version_2(tmp_path: Path) -> Iterator[Path]:
    """Where a hierarchy of v2 is mounted: also on a machine with v1, but then without most controllers."""
    folder = tmp_path / "v2"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "cgroup2", "none", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no cgroup v2 here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_node_has_one_cgroup_of_v2(machine: None, version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes in a folder of their own below it: one that hands controllers down may have none itself."""
    monkeypatch.setattr(cgroups, "ROOT", version_2)
    name = f"sharebench-testbed-trial-{os.getpid()}"
    process = subprocess.Popen(["sleep", "600"])
    try:
        cgroups.make(name)
        assert cgroups.folders(name) == [version_2 / name]
        handed = [
            (folder / "cgroup.controllers").read_text() for folder in (version_2 / name, version_2 / name / "node")
        ]
        assert handed[0] == handed[1] == (version_2 / "cgroup.controllers").read_text()
        cgroups.enter(name, process.pid)
        assert cgroups.processes(name) == {process.pid}
        cgroups.kill(name)
        assert process.wait() == -signal.SIGKILL
        eventually("no process", lambda: not cgroups.processes(name))
        cgroups.remove(name)
        assert not (version_2 / name).exists()
    finally:
        process.kill()


def test_a_real_gpu_is_asked_for_where_there_is_none(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "CONTROL_DEVICE", Path("/nonexistent"))
    assert str(requirements.missing("real")).startswith("no NVIDIA driver here: there is no /nonexistent")


def test_manifests_on_a_real_driver_have_nothing_of_the_mock() -> None:
    for file in ("device-plugin", "gfd", "mps", "dra", "schedulers/hami"):
        text = real.on_real_driver((gpu.MANIFESTS / f"{file}.yaml").read_text())
        assert "mock" not in text.lower()
        assert "LD_LIBRARY_PATH" not in text
        assert real.MPS_DAEMON not in text
        names = [each["kind"] for each in yaml.safe_load_all(text)]
        assert "DaemonSet" in names
    (daemon,) = yaml.safe_load_all(real.on_real_driver((gpu.MANIFESTS / "mps.yaml").read_text()))
    assert daemon["spec"]["template"]["spec"]["hostPID"] is True


def test_containers_of_a_real_gpu_see_the_machine_but_not_its_driver_where_cdi_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "LIBRARY_FOLDERS", (str(tmp_path),))
    default = json.dumps({"ociVersion": "1", "mounts": [{"destination": "/proc"}]})
    seen = {
        kind: [
            mount["destination"] for mount in json.loads(real.runtime_spec(Instance("a", 0, kind), default))["mounts"]
        ]
        for kind in instance.GPUS[1:]
    }
    assert seen["real"][:2] == ["/proc", "/usr"]
    assert "/usr" not in seen["real-cdi"]
    assert {"/usr/bin", "/usr/lib"} <= set(seen["real-cdi"])
    assert "/usr/lib64" not in seen["real-cdi"]


def test_what_the_kernel_refuses_is_found_beforehand(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "TRIAL", "mount -t no-such-type none /run")
    assert str(requirements.missing()).startswith("no namespaces, mounts or links here: mount: /run:")


def test_modules_that_cannot_be_had_are_found_beforehand(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREBENCH_TESTBED_CACHE", str(tmp_path))
    monkeypatch.delenv("SHAREBENCH_TESTBED_BIN", raising=False)
    monkeypatch.setenv("GOPROXY", "off")
    assert str(programs.unobtainable([programs.KUBE])).startswith("Go gets no modules here:")
    assert programs.unobtainable([]) is None


def test_sources_that_are_not_what_is_pinned_are_refused(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = sources.version(sources.CGROUPS)
    monkeypatch.setattr(sources, "pins", lambda: {sources.CGROUPS: (pinned, "h1:of-others")})
    with pytest.raises(TestbedError, match=r"has the sum h1:\S+, not the pinned h1:of-others"):
        sources.folder.__wrapped__(sources.CGROUPS)


def test_what_killed_tests_left_is_swept(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREBENCH_TESTBED_CACHE", str(tmp_path))
    with subprocess.Popen(["sleep", "60"]) as tests:
        instance.create("theirs", tests.pid)
        instance.create("mine", os.getpid())
        instance.create("stays")
        assert lifecycle.sweep() == []
        tests.kill()
    assert lifecycle.sweep() == ["theirs"]
    assert lifecycle.names() == ["mine", "stays"]
