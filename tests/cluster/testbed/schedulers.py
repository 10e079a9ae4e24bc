"""Other people's GPU schedulers on the mock GPU of a test bed.

Their programs come from a folder, SHAREBENCH_SCHEDULERS: the Go module proxy that was asked has none of their modules.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cluster.testbed import certificates, images, nvml, programs, real
from cluster.testbed.errors import TestbedError
from cluster.testbed.gpu import MANIFESTS
from cluster.testbed.instance import NODE, Instance
from cluster.testbed.lifecycle import import_images, run

FOLDER = "SHAREBENCH_SCHEDULERS"
# What each needs of the folder; the first asks NVML: its device plugin, or what KAI's own pods on a GPU run.
NEEDED = {
    "hami": ("hami/nvidia", "hami/scheduler", "libvgpu.so"),
    "volcano": (
        "volcano/vgpu",
        "volcano/scheduler",
        "volcano/controller-manager",
        "volcano/crds.yaml",
        "libvgpu.so",
    ),
    "kai": (
        "kai/resourcereservation",
        "kai/scheduler",
        "kai/binder",
        "kai/podgrouper",
        "kai/admission",
        "kai/crds.yaml",
    ),
}
KAI_RESERVATION = f"{images.REGISTRY}/kai-reservation:1"


def missing(scheduler: str) -> str | None:
    """What the folder lacks of a scheduler's programs, or None."""
    given = os.environ.get(FOLDER)
    if not given:
        return f"{FOLDER} names no folder with the programs {', '.join(NEEDED[scheduler])}"
    lacks = [name for name in NEEDED[scheduler] if not Path(given, name).is_file()]
    return f"{FOLDER}={given} lacks {', '.join(lacks)}" if lacks else None


def install(found: Instance, scheduler: str, *workloads: str) -> None:
    """Apply its manifest and wait for these workloads of its namespace. Raises TestbedError.

    What is made for it is in a folder of the instance: a certificate, and without a real GPU a mock NVML with all that
    its plugin links.
    """
    if (lack := missing(scheduler)) is not None:
        raise TestbedError(lack)
    folder = Path(os.environ[FOLDER]).absolute()
    made = found.folder / scheduler
    made.mkdir(exist_ok=True)
    certificates.certificate(found.pki, scheduler, f"/CN={scheduler}", "IP:127.0.0.1")
    for suffix in ("crt", "key"):
        (made / f"{scheduler}.{suffix}").write_bytes((found.pki / f"{scheduler}.{suffix}").read_bytes())
    if not found.is_real:
        nvml.build(made, [folder / NEEDED[scheduler][0]])
    if scheduler == "kai":
        _import_reservation(found, folder / NEEDED[scheduler][0], made)
    kube = programs.obtain(programs.KUBE)
    values = {
        "@KUBE@": str(kube["kube"].parent),
        "@PROGRAMS@": str(folder),
        "@MADE@": str(made),
        "@CA@": base64.b64encode((found.pki / "ca.crt").read_bytes()).decode(),
    }
    text = (MANIFESTS / "schedulers" / f"{scheduler}.yaml").read_text()
    for mark, value in values.items():
        text = text.replace(mark, value)
    if found.is_real:
        text = real.on_real_driver(text)
    command = (kube["kubectl"], f"--kubeconfig={found.kubeconfig}")
    for definitions in (folder / name for name in NEEDED[scheduler] if name.endswith("crds.yaml")):
        run(*command, "apply", "--server-side", "--filename", definitions)
        run(*command, "wait", "--for=condition=Established", "--timeout=60s", "--filename", definitions)
    run(*command, "apply", "--filename=-", text=text)
    for workload in workloads:
        run(*command, f"--namespace={scheduler}", "rollout", "status", workload, "--timeout=120s")


def _import_reservation(found: Instance, program: Path, made: Path) -> None:
    """The image of the pods that the binder makes on a mock GPU, to know which one it is, and to keep it."""
    files = {"/reservation": program, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": made / nvml.SONAME}
    content = {path: file.read_bytes() for path, file in files.items()}
    image = images.Image(KAI_RESERVATION, content, entry=("/reservation",))
    images.write_archive(made / "images.tar", images.root_file_system().read_bytes(), [image])
    import_images(found, made / "images.tar")


def replace_plugin(found: Instance) -> None:
    """Take NVIDIA's device plugin away, whose resource another one registers, and mark the node as that one's."""
    command = (programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={found.kubeconfig}")
    run(*command, "--namespace=nvidia-device-plugin", "delete", "daemonset", "nvidia-device-plugin", "--wait")
    run(*command, "label", "node", NODE, "gpu=on")
