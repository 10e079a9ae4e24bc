"""Third-party GPU schedulers on the mock GPU of a test bed.

Their programs come from a folder, SHAREBENCH_SCHEDULERS: the Go module proxy that was asked has none of their modules.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cluster.testbed import certificates, charts, images, nvml, programs, real
from cluster.testbed.errors import TestbedError
from cluster.testbed.gpu import MANIFESTS
from cluster.testbed.instance import NODE, Instance
from cluster.testbed.lifecycle import import_images, kubectl

FOLDER = "SHAREBENCH_SCHEDULERS"
# What each needs of the folder; the first asks NVML: its device plugin, or what KAI's own pods on a GPU run.
NEEDED = {
    "hami": ("hami/nvidia", "hami/scheduler", "libvgpu.so"),
    "volcano": ("volcano/vgpu", "volcano/scheduler", "volcano/controller-manager", "volcano/crds.yaml", "libvgpu.so"),
    "kai": (
        "kai/resourcereservation",
        "kai/operator",
        "kai/admission",
        "kai/podgrouper",
        "kai/scheduler",
        "kai/binder",
        "kai/podgroupcontroller",
        "kai/queuecontroller",
        "kai/chart/Chart.yaml",
    ),
}
KAI_TAG = "testbed"


def missing(scheduler: str) -> str | None:
    """Programs of a scheduler that the folder lacks, or None."""
    given = os.environ.get(FOLDER)
    if not given:
        return f"{FOLDER} names no folder with the programs {', '.join(NEEDED[scheduler])}"
    lacks = [name for name in NEEDED[scheduler] if not Path(given, name).is_file()]
    return f"{FOLDER}={given} lacks {', '.join(lacks)}" if lacks else None


def install(found: Instance, scheduler: str, *workloads: str) -> None:
    """Apply its manifest and wait for these workloads of its namespace; KAI comes by its chart. Raises TestbedError.

    What is made for it is in a folder of the instance: a certificate, and without a real GPU a mock NVML with all that
    its plugin links.
    """
    if (lack := missing(scheduler)) is not None:
        raise TestbedError(lack)
    folder = Path(os.environ[FOLDER]).absolute()
    made = found.folder / scheduler
    made.mkdir(exist_ok=True)
    if not found.is_real:
        nvml.build(made, [folder / NEEDED[scheduler][0]])
    if scheduler == "kai":
        _install_kai(found, folder, made)
        return
    kube = programs.obtain(programs.KUBE)
    certificates.certificate(found.pki, scheduler, f"/CN={scheduler}", "IP:127.0.0.1")
    for suffix in ("crt", "key"):
        (made / f"{scheduler}.{suffix}").write_bytes((found.pki / f"{scheduler}.{suffix}").read_bytes())
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
    for definitions in (folder / name for name in NEEDED[scheduler] if name.endswith("crds.yaml")):
        kubectl(found, "apply", "--server-side", "--filename", definitions)
        kubectl(found, "wait", "--for=condition=Established", "--timeout=60s", "--filename", definitions)
    kubectl(found, "apply", "--filename=-", text=text)
    for workload in workloads:
        kubectl(found, f"--namespace={scheduler}", "rollout", "status", workload, "--timeout=120s")


def _install_kai(found: Instance, folder: Path, made: Path) -> None:
    """KAI by its own chart, whose operator starts the rest; its images are made of the programs.

    Left out are its hooks, which are images with kubectl: the config is of the release, and CRDs are Helm's to install.
    """
    files = {name: {"/workspace/app": (folder / name).read_bytes()} for name in NEEDED["kai"][:-1]}
    # Its reservation pods look up their GPU; this program is the only one that links a C library.
    reservation = NEEDED["kai"][0]
    files[reservation]["/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"] = (made / nvml.SONAME).read_bytes()
    made_images = [
        images.Image(
            f"{images.REGISTRY}/{Path(name).name}:{KAI_TAG}",
            content,
            on_root=name == reservation,
            entry=("/workspace/app",),
            user="65532:0",
        )
        for name, content in files.items()
    ]
    images.write_archive(made / "images.tar", images.root_file_system().read_bytes(), made_images)
    import_images(found, made / "images.tar")
    given = {"global.registry": images.REGISTRY, "global.tag": KAI_TAG, "admission.gpuFractionRuntimeClassName": ""}
    values = [f"--set-string={key}={value}" for key, value in given.items()]
    values += ["--set=global.gpuSharing=true,binder.plugins.hamicore.enabled=true"]
    values += ["--set=kaiConfigDeployer.enabled=false,kaiConfig.render=true"]
    command = ("install", "--create-namespace", "--namespace=kai-scheduler", "--no-hooks", "kai-scheduler")
    charts.helm(found.kubeconfig, *command, folder / "kai" / "chart", *values)
    parts = ("config.kai.scheduler/kai-config", "schedulingshard.kai.scheduler/default")
    kubectl(found, "wait", "--for=condition=Ready", "--timeout=120s", *parts)


def replace_plugin(found: Instance) -> None:
    """Remove NVIDIA's device plugin, since another one registers its resource, and label the node for that one."""
    kubectl(found, "--namespace=nvidia-device-plugin", "delete", "daemonset", "nvidia-device-plugin", "--wait")
    kubectl(found, "label", "node", NODE, "gpu=on")
