"""The node's first process: mounts, addresses, and Kubernetes' components under supervision.

Runs as PID 1 of its own mount, network, PID, IPC and UTS namespaces, so that ending it ends all that it ever started:
components, containers, mounts, links. A file `hold/NAME` in the instance's folder ends a component and keeps it down.
A second node (`second`) has a mount namespace of its own and shares the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from cluster.testbed.instance import NODE, SECOND_NODE, SERVICE_IP, Instance

LINK = "node0"
NAMES = ("etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
HELD = "kube-proxy"  # until a test wants Services
# What DRA drivers and classes of devices may say, which is on by default in later Kubernetes: placements of instances,
# devices for several claims, and extended resources that claims serve.
GATES = "--feature-gates=DRAPartitionableDevices=true,DRAConsumableCapacity=true,DRAExtendedResource=true"
BEFORE_API = ("etcd", "containerd", "kube-apiserver")
RESTART_SECONDS = 1.0
LINK_SECONDS = 60.0
# The kubelet would set these for the whole machine, so it gets private files with the values that it wants.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def mount_folders(folder: Path) -> None:
    """Private folders on every path that components, containers and manifests write to."""
    run("mount", "--make-rshared", "/")
    for path in ("/run", "/var/lib", "/var/log"):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    for path in ("/run/lock", "/run/netns", "/run/cdi"):
        Path(path).mkdir()
    for name in ("kubelet", "containerd"):
        source = folder / name
        target = Path("/var/lib", name)
        source.mkdir()
        target.mkdir()
        run("mount", "--bind", str(source), str(target))
        run("mount", "--make-rshared", str(target))
    for key, value in SYSCTLS.items():
        own = folder / "sysctl" / key
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(value)
        if Path("/proc/sys", key).exists():
            run("mount", "--bind", str(own), f"/proc/sys/{key}")


def set_addresses(instance: Instance) -> None:
    """Wait for the link to the host, which the starting process creates, and set the addresses."""
    deadline = time.monotonic() + LINK_SECONDS
    while subprocess.run(["ip", "link", "show", LINK], capture_output=True).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"no link {LINK} after {LINK_SECONDS:.0f} s")
        time.sleep(0.02)
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{SERVICE_IP}/32", "dev", "lo")
    run("ip", "address", "add", f"{instance.node_ip}/30", "dev", LINK)
    run("ip", "link", "set", LINK, "up")
    run("ip", "route", "add", "default", "via", instance.host_ip)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def components(instance: Instance) -> dict[str, list[str]]:
    """Commands of the components, by name, in the order of their start."""
    pki = instance.pki
    etcd = "https://127.0.0.1:2379"

    def as_client(name: str) -> list[str]:
        file = str(pki / f"{name}.kubeconfig")
        access = ["--kubeconfig", file, "--authentication-kubeconfig", file, "--authorization-kubeconfig", file]
        return [f"kube-{name}", *access, "--bind-address=127.0.0.1", "--leader-elect=false"]

    return {
        "etcd": [
            "etcd",
            f"--data-dir={instance.folder}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--cert-file={pki}/etcd.crt",
            f"--key-file={pki}/etcd.key",
            "--client-cert-auth",
            f"--trusted-ca-file={pki}/ca.crt",
        ],
        "containerd": containerd(instance.folder),
        "kube-apiserver": [
            "kube-apiserver",
            "--bind-address=0.0.0.0",
            "--secure-port=443",
            f"--advertise-address={instance.node_ip}",
            f"--etcd-servers={etcd}",
            f"--etcd-cafile={pki}/ca.crt",
            f"--etcd-certfile={pki}/etcd.crt",
            f"--etcd-keyfile={pki}/etcd.key",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-to-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-to-kubelet.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=false",
            f"--audit-policy-file={instance.folder}/config/audit.yaml",
            f"--audit-log-path={instance.folder}/log/audit.log",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--allow-privileged",
            "--profiling=false",
            "--enable-aggregator-routing",  # to the pods of a webhook's service, without kube-proxy
            GATES,
        ],
        "kube-controller-manager": [
            *as_client("controller-manager"),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
        ],
        "kube-scheduler": [*as_client("scheduler"), GATES],
        "kubelet": kubelet(instance, instance.folder, NODE),
        "kube-proxy": [
            "kube-proxy",
            f"--kubeconfig={pki}/proxy.kubeconfig",
            f"--hostname-override={NODE}",
            "--proxy-mode=nftables",
            # Limits of the whole machine, which it would set.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
    }


def containerd(folder: Path) -> list[str]:
    return ["containerd", "-c", f"{folder}/config/containerd.toml"]


def kubelet(instance: Instance, folder: Path, name: str) -> list[str]:
    """Command of a node's kubelet; the folder has its config and kubeconfig."""
    return [
        "kubelet",
        f"--config={folder}/config/kubelet.yaml",
        f"--kubeconfig={instance.pki}/{name}.kubeconfig",
        f"--node-ip={instance.node_ip}",
        f"--hostname-override={name}",
        "--v=2",
    ]


def is_api_ready(instance: Instance) -> bool:
    """Whether the API server is ready, with the bootstrap roles, without which the other components exit."""
    context = ssl.create_default_context(cafile=str(instance.pki / "ca.crt"))
    context.load_cert_chain(instance.pki / "admin.crt", instance.pki / "admin.key")
    try:
        with urllib.request.urlopen(f"https://{instance.node_ip}/readyz", context=context, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def supervise(instance: Instance, folder: Path, commands: dict[str, list[str]]) -> None:
    """Keep every component running that is not held, and reap ended processes; never returns."""
    hold = folder / "hold"
    running: dict[str, int] = {}
    ended = dict.fromkeys(commands, 0.0)
    api_was_ready = False
    while True:
        while pid := reaped():
            for name in [name for name, number in running.items() if number == pid]:
                del running[name]
                ended[name] = time.monotonic()
        api_was_ready = api_was_ready or is_api_ready(instance)
        for name, command in commands.items():
            held = (hold / name).exists()
            if held and name in running:
                os.kill(running[name], signal.SIGKILL)
                continue
            is_allowed = api_was_ready or name in BEFORE_API
            if not held and is_allowed and name not in running and time.monotonic() - ended[name] > RESTART_SECONDS:
                with (folder / "log" / f"{name}.log").open("ab") as log:
                    running[name] = subprocess.Popen(command, stdout=log, stderr=log).pid
        time.sleep(0.1)


def reaped() -> int:
    """Reap an ended process; returns its id, or 0 if there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def be_second(instance: Instance) -> None:
    """Run a second node, whose kubelet has the same address and another port; never returns."""
    folder = instance.second
    mount_folders(folder)
    own_id = folder / "machine-id"
    own_id.write_text(hashlib.sha256(SECOND_NODE.encode()).hexdigest()[:32] + "\n")
    run("mount", "--bind", str(own_id), "/etc/machine-id")
    supervise(instance, folder, {"containerd": containerd(folder), "kubelet": kubelet(instance, folder, SECOND_NODE)})


def main() -> None:
    instance = Instance(**json.loads(sys.argv[1]))
    if sys.argv[2:]:
        be_second(instance)
    socket.sethostname(NODE)
    mount_folders(instance.folder)
    set_addresses(instance)
    supervise(instance, instance.folder, components(instance))


if __name__ == "__main__":
    main()
