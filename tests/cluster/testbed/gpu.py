"""NVIDIA's device plugin, GPU feature discovery and MPS control daemon, or its DRA driver, in a test bed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.testbed import images, programs, real, sources
from cluster.testbed.instance import NODE, Instance
from cluster.testbed.lifecycle import import_images, kubectl, run, wait_for

MANIFESTS = Path(__file__).parent / "manifests"
PARTS = ("device-plugin.yaml", "gfd.yaml", "mps.yaml")
READY_SECONDS = 300.0
MIG_LAYOUT = "/run/nvidia/mock/layout"
MIG_CLIENTS = {
    "nvidia-device-plugin": "nvidia.com/gpu.deploy.device-plugin",
    "gpu-feature-discovery": "nvidia.com/gpu.deploy.gpu-feature-discovery",
}


def install(found: Instance, gpus: int = 1) -> None:
    """What makes the instance's kind of GPU usable: the device plugin, or the DRA driver; a mock node has up to eight.

    Waits for a GPU to be allocatable and described by labels. Raises TestbedError if that takes longer than 5 min.
    """
    if found.hides_driver:
        install_dra(found)
        return
    definitions = programs.obtain(programs.NFD)["nfd-api-crds.yaml"]
    kubectl(found, "apply", "-f", definitions)
    kubectl(found, "wait", "--for=condition=Established", "--timeout=30s", "-f", definitions)
    for part in PARTS:
        text = (MANIFESTS / part).read_text().replace('MOCK_GPUS: "1"', f'MOCK_GPUS: "{gpus}"')
        kubectl(found, "apply", "--filename=-", text=real.on_real_driver(text) if found.is_real else text)

    def is_usable() -> bool:
        return any(
            int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) > 0
            and "nvidia.com/gpu.product" in node["metadata"]["labels"]
            for node in json.loads(kubectl(found, "get", "nodes", "-o", "json"))["items"]
        )

    wait_for("an allocatable GPU with labels", is_usable, READY_SECONDS)


def install_mig(found: Instance) -> None:
    """Make the mock GPU of a test bed one that can do MIG, with NVIDIA's mig-manager; `install` came before.

    The manager stops and starts plugin and GPU feature discovery by node labels, as in the GPU operator.
    """
    import_images(found, images.further_archive(images.MIG))
    namespace = "--namespace=nvidia-device-plugin"
    layout = json.dumps({"data": {"MOCK_MIG_LAYOUT": MIG_LAYOUT}})
    kubectl(found, namespace, "patch", "configmap", "mock-gpu", "--patch", layout)
    for name, label in MIG_CLIENTS.items():
        kubectl(found, "label", "node", NODE, f"{label}=true")
        template = {"spec": {"nodeSelector": {label: "true"}}}
        kubectl(found, namespace, "patch", "daemonset", name, "--patch", json.dumps({"spec": {"template": template}}))
    kubectl(found, "apply", "-f", MANIFESTS / "mig-manager.yaml")
    for name in (*MIG_CLIENTS, "nvidia-mig-manager"):
        kubectl(found, namespace, "rollout", "status", "daemonset", name, "--timeout=90s")
    capable = r"--output=jsonpath={.metadata.labels.nvidia\.com/mig\.capable}"
    asked = ("get", "node", NODE, capable)
    wait_for("the label of a GPU that can do MIG", lambda: kubectl(found, *asked) == "true", READY_SECONDS)


def _layout_file(found: Instance) -> Path:
    """The mock's layout file, seen from outside of the node."""
    return Path(f"/proc/{found.init_pid()}/root{MIG_LAYOUT}")


def cut(found: Instance, profiles: str) -> None:
    """Partition mock GPUs without the manager, as with nvidia-smi; a line such as `1g.5gb 3g.20gb` for each."""
    file = _layout_file(found)
    new = file.with_suffix(".new")
    new.write_text("".join(f"gpu {index}: {line}\n" for index, line in enumerate(profiles.splitlines())))
    new.replace(file)


def profiles(found: Instance) -> list[str] | None:
    """The instances of the mock GPU; None if it is not in MIG mode."""
    file = _layout_file(found)
    lines = file.read_text().splitlines() if file.exists() else []
    cut = next((line.partition(":")[2].split() for line in lines if line.startswith("gpu 0:")), None)
    return None if cut is None else sorted(word.partition("@")[0] for word in cut)


@contextmanager
def in_use(found: Instance) -> Iterator[None]:
    """Have the driver refuse changes of instances, as while a process uses them."""
    mark = _layout_file(found).with_suffix(".busy")
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


DRA_NAMESPACE = "dra-driver-nvidia-gpu"
DRA_DRIVER = ("daemonset/dra-driver-kubelet-plugin", f"--namespace={DRA_NAMESPACE}")


def install_dra(found: Instance) -> None:
    """Install NVIDIA's DRA driver in a running test bed; it offers the GPU in a ResourceSlice."""
    version = sources.version(sources.DRA).removeprefix("v")
    manifest = (MANIFESTS / "dra.yaml").read_text().replace("VERSION", f'"{version}"')
    if found.is_real:
        manifest = real.on_real_driver(manifest)
        parts = (real.library_folder(), real.program_folder(), images.STANDINS / "nvidia-smi")
        hook = programs.obtain(programs.CDI_HOOK)["nvidia-cdi-hook"]
        run("nsenter", f"--target={found.init_pid()}", "--mount", real.DRIVER_ROOT, *map(str, parts), hook)
    else:
        import_images(found, images.further_archive(images.DRA))
    kubectl(found, "create", "namespace", DRA_NAMESPACE)
    template = programs.obtain(programs.DRA)["mps-daemon.yaml"]
    file = f"--from-file=mps-control-daemon.tmpl.yaml={template}"
    kubectl(found, "create", "configmap", "templates", f"--namespace={DRA_NAMESPACE}", file)
    kubectl(found, "apply", "--filename=-", text=manifest)
    kubectl(found, "rollout", "status", *DRA_DRIVER, "--timeout=90s")
    _wait_for_slice(found)


def smi_calls(found: Instance) -> list[str]:
    """Arguments of the DRA driver's calls of `nvidia-smi`, in order."""
    return Path(f"/proc/{found.init_pid()}/root/run/nvidia/driver/usr/bin/nvidia-smi.log").read_text().splitlines()


def set_dra(found: Instance, gates: str, layout: str | None = None, product: str = "", gpus: int = 1) -> None:
    """Restart the DRA driver with these feature gates, on a GPU with these MIG instances or on a whole one.

    `gates` as its variable has them: `TimeSlicingSettings=true,MPSSupport=true`; `layout` such as `1g.5gb 2g.10gb`, a
    line for each GPU that is cut, empty for GPUs that can do MIG and are whole; `product` another GPU than the mock's
    own; `gpus` up to eight.
    """
    if layout is not None:
        if layout:
            cut(found, layout)
        else:
            _layout_file(found).write_text("")
    variables = [f"FEATURE_GATES={gates}", f"MOCK_MIG_LAYOUT={'' if layout is None else MIG_LAYOUT}"]
    variables += [f"MOCK_GPU_NAME={product}" if product else "MOCK_GPU_NAME-", f"MOCK_GPUS={gpus}"]
    # The slices of the first driver must be gone, since the next one takes a second to replace them.
    _select(found, {"none": "such"})
    kubectl(found, "wait", "--for=delete", "pod", DRA_DRIVER[1], "--selector=app=dra-driver-kubelet-plugin")
    kubectl(found, "delete", "resourceslices", "--all")
    kubectl(found, "set", "env", *DRA_DRIVER, *variables)
    _select(found, None)
    kubectl(found, "rollout", "status", *DRA_DRIVER, "--timeout=90s")
    _wait_for_slice(found)


def _wait_for_slice(found: Instance) -> None:
    slices = ("get", "resourceslices", "--output=name")
    wait_for("a slice of the DRA driver", lambda: bool(kubectl(found, *slices).strip()), READY_SECONDS)


def _select(found: Instance, labels: dict[str, str] | None) -> None:
    """Select the nodes of the DRA driver; None for all."""
    template = {"spec": {"nodeSelector": labels}}
    kubectl(found, "patch", *DRA_DRIVER, "--type=merge", "--patch", json.dumps({"spec": {"template": template}}))
