"""Start and end of an instance."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cluster.testbed import certificates, cgroups, images, instance, node, programs, real, requirements
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import NODE, Gpu, Instance

CONFIG = Path(__file__).parent / "config"
TESTS = Path(__file__).parents[2]
KUBELET_PORT = 10250
START_SECONDS = 300.0  # a few on two idle cores
COMPONENT_SECONDS = 30.0
COMM_CHARACTERS = 15  # so much of a process's name Linux keeps
API_TO_KUBELET = "apiserver-to-kubelet"  # the name in its certificate


def wait_for(what: str, is_true: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Wait until `is_true` returns true. Raises TestbedError after this number of seconds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TestbedError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.1)


def run(*command: str | Path, text: str | None = None) -> str:
    """Run a command; returns its standard output. Raises TestbedError with its message if it fails."""
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"{' '.join(map(str, command))}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def kubectl(found: Instance, *command: str | Path, text: str | None = None) -> str:
    """Like `run`, with all rights."""
    return run(programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={found.kubeconfig}", *command, text=text)


def write_config(found: Instance, folder: Path, cgroup: str, number: int = 0) -> None:
    """Write the config of kubelet and containerd of a node; `number` is 1 for a second node on the same network."""
    values = {
        "@PKI@": str(found.pki),
        "@CONFIG@": str(folder / "config"),
        "@CGROUP@": cgroup,
        "@PODS@": found.pod_subnets[number],
        "@BRIDGE@": f"cni{number}",
        "@PORT@": str(KUBELET_PORT + number),
        "@CNI@": str(requirements.cni_folder()),
    }
    for source, target in {
        "kubelet.yaml": "",
        "containerd.toml": "",
        "audit.yaml": "",
        "cni.conflist": "cni/10-testbed.conflist",
    }.items():
        text = (CONFIG / source).read_text()
        for mark, value in values.items():
            text = text.replace(mark, value)
        file = folder / "config" / (target or source)
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)


def use_machine(found: Instance, ctr: Path) -> None:
    """Change containerd's config so that containers see the machine's folders."""
    config = found.folder / "config"
    spec = config / "runtime-spec.json"
    spec.write_text(real.runtime_spec(found, run(ctr, "oci", "spec")))
    runtime = config / "containerd.toml"
    kind = 'runtime_type = "io.containerd.runc.v2"\n'
    runtime.write_text(runtime.read_text().replace(kind, f'{kind}      base_runtime_spec = "{spec}"\n'))


def start_first(found: Instance, log: Path, cgroup: str, namespaces: Sequence[str], *arguments: str) -> int:
    """Start a node's first process in namespaces that a command creates or enters; returns its id."""
    folders = list(dict.fromkeys(str(file.parent) for file in node_binaries().values()))
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PATH": ":".join([*folders, "/usr/sbin:/usr/bin:/sbin:/bin"]),
    }
    first = [*namespaces, sys.executable, "-m", "cluster.testbed.node", json.dumps(asdict(found)), *arguments]
    with log.open("wb") as file:
        outer = subprocess.Popen(
            first, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    wait_for("the start of the node's first process", lambda: bool(children.read_text().strip()), 10.0)
    pid = int(children.read_text())
    cgroups.enter(cgroup, pid)
    return pid


def node_binaries() -> dict[str, Path]:
    return {key: file for program in programs.NODE_PROGRAMS for key, file in programs.obtain(program).items()}


def start_node(found: Instance) -> None:
    """Start the node's first process in new namespaces, and the link to it."""
    log = found.folder / "log" / "node.log"
    pid = start_first(found, log, found.cgroup, ["unshare", *requirements.namespaces(found.gpu)])
    found.init_file.write_text(json.dumps([pid, instance.started_ticks(pid)]))
    run("ip", "link", "add", found.link, "type", "veth", "peer", "name", node.LINK, "netns", str(pid))
    run("ip", "address", "add", f"{found.host_ip}/30", "dev", found.link)
    run("ip", "link", "set", found.link, "up")
    run("ip", "route", "add", found.pod_subnet, "via", found.node_ip)


def import_images(found: Instance, archive: Path, pid: int | None = None) -> None:
    """Import images into the containerd of a running instance, or of its second node with this process."""
    pid = pid or found.init_pid()
    ctr = programs.obtain(programs.CONTAINERD)["ctr"]
    inside: list[str | Path] = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--uts"]
    run(*inside, ctr, "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", archive)


def is_node_ready(found: Instance, name: str = NODE) -> bool:
    condition = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(found, "get", "nodes", name, "--ignore-not-found", "--output", condition) == "True"


def up(name: str, *, stays: bool = False, gpu: Gpu = "mock") -> Instance:
    """The instance of that name, with its node Ready and images imported; started if it is not running.

    It belongs to this process, and `sweep` ends it if this process is gone, unless it stays.
    Raises TestbedError with what this machine lacks, or with what failed; then nothing is left behind.
    """
    found = instance.find(name)
    if found and found.init_pid():
        return found
    lack = requirements.missing(gpu)
    if lack:
        raise TestbedError(lack)
    binaries = node_binaries()
    down(name)
    sweep()
    found = instance.create(name, None if stays else os.getpid(), gpu)
    try:
        for part in ("log", "hold"):
            (found.folder / part).mkdir()
        (found.folder / "hold" / node.HELD).touch()
        certificates.write(found)
        write_config(found, found.folder, found.cgroup)
        archive = real.archive(found) if found.is_real else images.archive()
        if found.is_real:
            use_machine(found, binaries["ctr"])
        cgroups.make(found.cgroup)
        start_node(found)
        containerd_socket = Path(f"/proc/{found.init_pid()}/root/run/containerd/containerd.sock")
        wait_for("the start of containerd", containerd_socket.exists)
        import_images(found, archive)
        wait_for("a ready API server", lambda: node.is_api_ready(found))
        binding = [API_TO_KUBELET, f"--user={API_TO_KUBELET}", "--clusterrole=system:kubelet-api-admin"]
        kubectl(found, "create", "clusterrolebinding", *binding)
        wait_for("a ready node", lambda: is_node_ready(found))
    except BaseException as error:
        logs = found.folder / "log"
        kept = instance.cache() / "logs" / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(logs, kept)
        down(name)
        if isinstance(error, TestbedError):
            raise TestbedError(f"{error}\nlogs: {kept}") from error
        raise
    return found


def down(name: str) -> bool:
    """End the instance and remove its cgroups and its folder; False if there was none."""
    found = instance.find(name)
    if found is None:
        return False
    pid = found.init_pid()
    if pid:
        os.kill(pid, signal.SIGKILL)  # and with it, in a PID namespace, all processes, mounts and links
        wait_for("the end of the node", lambda: found.init_pid() is None, 30.0)

    def is_removed() -> bool:
        try:
            cgroups.kill(found.cgroup)
            cgroups.remove(found.cgroup)
        except OSError:
            return False
        # A half-closed connection would keep the network namespace, and with it the link, for minutes.
        subprocess.run(["ip", "link", "delete", found.link], capture_output=True)
        return not Path("/sys/class/net", found.link).exists()

    wait_for("the removal of cgroups and link", is_removed, 30.0)
    shutil.rmtree(found.folder)
    return True


def sweep() -> list[str]:
    """End the instances whose owners were killed; returns their names."""
    with instance.locked("sweep"):
        gone = [name for name in names() if (found := instance.find(name)) and found.is_abandoned()]
        for name in gone:
            down(name)
    return gone


def names() -> list[str]:
    """All instances with a folder, running or not."""
    return sorted(file.parent.name for file in (instance.cache() / "instances").glob("*/instance.json"))


def hold(found: Instance, component: str) -> None:
    """Kill a component of the node (`node.components`) and keep it down."""
    (found.folder / "hold" / component).touch()


def release(found: Instance, component: str) -> None:
    """Let a component start again."""
    (found.folder / "hold" / component).unlink(missing_ok=True)


def restart(found: Instance, *components: str) -> None:
    """Kill these components of the node, which restart at once. Raises TestbedError."""
    children = Path(f"/proc/{found.init_pid()}/task/{found.init_pid()}/children")

    def are_gone() -> bool:
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in children.read_text().split()}
        return not any(component[:COMM_CHARACTERS] in names for component in components)

    for component in components:
        hold(found, component)
    try:
        wait_for(f"the end of {', '.join(components)}", are_gone, COMPONENT_SECONDS)
    finally:
        for component in components:
            release(found, component)


@contextmanager
def frozen(found: Instance, component: str) -> Iterator[None]:
    """Suspend a component: its connections stay, but it does not answer. Raises TestbedError."""
    children = Path(f"/proc/{found.init_pid()}/task/{found.init_pid()}/children").read_text().split()
    names = {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in children}
    if (pid := names.get(component[:COMM_CHARACTERS])) is None:
        raise TestbedError(f"{component} does not run")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
