"""Installation by Helm: the charts as their projects publish them, with values only."""

from __future__ import annotations

from pathlib import Path

from cluster.testbed import images, programs, sources
from cluster.testbed.instance import NODE, Instance
from cluster.testbed.lifecycle import kubectl, run

VALUES = Path(__file__).parents[3] / "config" / "cluster" / "plugin-values.yaml"
NAMESPACE, RELEASE = "nvidia-device-plugin", "nvdp"
PLUGIN_CHART = "deployments/helm/nvidia-device-plugin"
NFD_CHART = "deployment/helm/node-feature-discovery"
WAIT = "--timeout=120s"
# The label that NFD's worker, which the test bed lacks, sets on a node with a GPU.
PRESENT = "nvidia.com/gpu.present=true"


def helm(kubeconfig: Path, *arguments: str | Path) -> str:
    """Output of a helm command. Raises TestbedError."""
    return run(programs.obtain(programs.HELM)["helm"], f"--kubeconfig={kubeconfig}", *arguments)


def _set(values: dict[str, str]) -> list[str]:
    return [f"--set-string={key}={value}" for key, value in values.items()]


def local_image(prefix: str = "") -> list[str]:
    """Values with the test bed's image, so that none is pulled."""
    repository, tag = images.GPU.rsplit(":", 1)
    return _set({f"{prefix}image.repository": repository, f"{prefix}image.tag": tag})


def install(found: Instance) -> None:
    """Node Feature Discovery, and the device plugin with the values of config/cluster, each by its own chart.

    Values are what is special here: images, the way to find a GPU, and how it gets into pods. The plugin's chart would
    bring an older NFD than the one that is built for the test bed.
    """
    kubectl(found, "label", "node", NODE, PRESENT)
    chart = sources.folder(sources.NFD) / NFD_CHART
    here = ["--set=worker.enable=false,gc.enable=false,master.securityContext.runAsUser=65534"]
    here += ["--set=master.config.extraLabelNs={nvidia.com}"]
    command = ["upgrade", "--install", "--create-namespace", "--wait", WAIT]
    helm(found.kubeconfig, *command, "nfd", chart, "--namespace=node-feature-discovery", *local_image(), *here)
    chart = sources.folder(sources.PLUGIN) / PLUGIN_CHART
    here = ["--set=nfd.enabled=false,deviceDiscoveryStrategy=nvml,deviceListStrategy=envvar"]
    command += [f"--namespace={NAMESPACE}", f"--values={VALUES}"]
    helm(found.kubeconfig, *command, RELEASE, chart, *local_image(), *here)
