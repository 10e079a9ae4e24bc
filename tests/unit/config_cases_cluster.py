"""Refused configs of a cluster, or of the Prometheus that watches."""

from typing import Any

from unit.studies import S, W

KUBERNETES = {"node": "kubernetes", "strategies": ["exclusive", "time-slicing", "mps"]}


# Changes of the config, and parts of the error line: key, value, remedy.
TEMPLATES: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "unknown placeholder": (
        "hami",
        {f"{S}.hami.pod.shows": {"CUDA_DEVICE_SM_LIMIT": "$thread_precent"}},
        "pod.shows.CUDA_DEVICE_SM_LIMIT:",
        ["'thread_precent'", "is not a placeholder", "did you mean 'thread_percent'?"],
    ),
    "nothing to stand for": (
        "kai-fraction",
        {f"{S}.kai-fraction.pod.annotations": {"gpu-memory": "$memory_mib"}},
        "pod.annotations.gpu-memory:",
        ["$memory_mib has nothing to stand for", "give memory_percent, such as 100/N"],
    ),
    "braces": (
        "kai-fraction",
        {f"{S}.kai-fraction.pod.annotations": {"gpu-fraction": "{share}"}},
        "pod.annotations.gpu-fraction:",
        ["'{share}' holds a brace or a $ without a placeholder", "$thread_percent"],
    ),
    "no GPU": (
        "kai-fraction",
        {f"{S}.kai-fraction.pod.annotations": None},
        "pod.resources:",
        ["{} brings no GPU", "such as nvidia.com/gpu: 1"],
    ),
    "limit that no pod asks for": (
        "kai-fraction",
        {f"{S}.kai-fraction.memory_percent": "100/N"},
        "memory_percent:",
        ["'100/N' reaches no pod", "use $memory_percent in pod.resources", "remove it"],
    ),
}
"""Mistakes in a pod template: strategy, change, key in the error line, and other parts of it."""
CLUSTER: dict[str, tuple[dict[str, Any], list[str]]] = {
    # the node, its strategies, and the access to its GPU
    "program in a cluster": (
        KUBERNETES | {"workloads": ["matmul", "served"]} | {f"{W}.served": {"kind": "http", "command": ["x"]}},
        ["workloads:", "'served'", "'kubernetes'", "without a container", "give it an image, or a manifest"],
    ),
    "a container on a host": (
        {"workloads": ["served"], f"{W}.served": {"kind": "http", "image": "x"}},
        ["workloads:", "'served'", "on a host, which runs no images", "give it a command", "node: kubernetes"],
    ),
    "two containers": (
        KUBERNETES | {"workloads": ["served"], f"{W}.served": {"kind": "http", "image": "x", "manifest": "y"}},
        [f"{W}.served:", "has an image and a manifest", "keep one"],
    ),
    "a container without its manifest": (
        KUBERNETES | {"workloads": ["served"], f"{W}.served": {"kind": "http", "manifest": "no.yaml"}},
        [f"{W}.served.manifest:", "'no.yaml' is not a file"],
    ),
    "a path of this machine in a container": (
        KUBERNETES | {"workloads": ["s"], f"{W}.s": {"kind": "http", "image": "x", "command": ["{here}/x"]}},
        ["workloads:", "'s'", "no container knows {here}", "write a path of the image"],
    ),
    "a container next to a url": (
        {f"{W}.served": {"kind": "http", "image": "x", "url": "http://a:1"}},
        [f"{W}.served:", "has a container and a url", "keep the one"],
    ),
    "an overlay of no pod": (
        KUBERNETES | {"kubernetes.pod": {"nodeSelector": {"a": "b"}}},
        ["kubernetes.pod:", "'nodeSelector'", "does not belong to a pod, which has metadata and spec"],
    ),
    "an interval by the device plugin": (
        KUBERNETES | {f"{S}.time-slicing.interval": "long"},
        ["strategies:", "'time-slicing'", "'kubernetes'", "nothing sets the length of a time slice", "access: dra"],
    ),
    "an interval of MIG instances": (
        {f"{S}.mig-time-slicing.interval": "short"},
        [f"{S}.mig-time-slicing.interval:", "'short'", "no effect on MIG instances", "remove it"],
    ),
    "a claim for each instance by the device plugin": (
        KUBERNETES | {f"{S}.mig.claim_per": "instance", "strategies": ["mig"]},
        ["strategies:", "'mig'", "'kubernetes'", "nothing there makes claims as it wants them but access: dra"],
    ),
    "a claim for each tenant of an MPS daemon": (
        {f"{S}.mps-dra.claim_per": "tenant"},
        [f"{S}.mps-dra.claim_per:", "'tenant'", "not possible with", "use exclusive or time-slicing"],
    ),
    "access of a strategy on a host": (
        {f"{S}.mps.access": "device-plugin", "strategies": ["mps"]},
        ["strategies:", "'mps'", "'cpu'", "access device-plugin is a way to the GPU of a cluster", "can: kubernetes"],
    ),
    **{
        f"template: {what}": (KUBERNETES | {"strategies": [name], **changes}, [f"{S}.{name}.{where}", *substance])
        for what, (name, changes, where, substance) in TEMPLATES.items()
    },
    "static without a template": (
        KUBERNETES | {"kubernetes.access": "static"},
        ["strategies:", "'time-slicing'", "under access static an entry needs a pod"],
    ),
    "template without static": (
        KUBERNETES | {"strategies": ["hami"], f"{S}.hami.access": "device-plugin"},
        ["strategies:", "'hami'", "pod has no effect under access device-plugin, only under static"],
    ),
    "scheduler on a host": (
        {"strategies": ["hami"]},
        ["strategies:", "'hami'", "'cpu'", "access static is a way to the GPU of a cluster", "can: kubernetes"],
    ),
    "node of its own choice in a list": (
        KUBERNETES | {"kubernetes.node": ["auto", "node-b"]},
        ["kubernetes.node:", "'auto'", "is not the name of a node", "auto and labels stand alone"],
    ),
    "a value that is not compared": (
        KUBERNETES | {"kubernetes.tolerations": [{"key": "team", "value": "a"}]},
        ["kubernetes.tolerations:", "'a'", "no effect with Exists", "set operator: Equal"],
    ),
    "any taint that is equal": (
        KUBERNETES | {"kubernetes.tolerations": [{"operator": "Equal", "value": "a"}]},
        ["kubernetes.tolerations:", "'Equal' needs a key"],
    ),
    "node by its device": ({"node": "gpu"}, ["node:", "'gpu'", "did you mean 'nvidia'?", "Known: auto, cpu, nvidia"]),
    # prometheus
    "watched simulation": (
        {"prometheus.url": "http://x", "node": "simulated"},
        ["prometheus.url:", "simulated node has nothing to scrape", "remove it"],
    ),
    "discovery of a cluster on a host": (
        {"prometheus.url": "http://x"},
        ["prometheus.discovery:", "'pod-monitor'", "'cpu'", "set prometheus.folder"],
    ),
    "files in no folder": (
        {"prometheus.url": "http://x", "prometheus.discovery": "file"},
        ["prometheus.folder:", "null", "name the folder"],
    ),
    "folder that is not there": (
        {"prometheus.url": "http://x", "prometheus.folder": "no/such"},
        ["prometheus.folder:", "'no/such'", "not an existing folder", "make it"],
    ),
    "fewer than three scrapes": (
        {
            "prometheus.url": "http://x",
            "prometheus.folder": "/tmp",
            "window_seconds": 10,
            "prometheus.scrape_seconds": 5,
        },
        ["prometheus.scrape_seconds:", "5", "fewer than 3 scrapes", "window_seconds to 15 or more"],
    ),
}
