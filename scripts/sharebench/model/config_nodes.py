"""Sections of a config about the nodes that are shared, and the Prometheus that watches."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from typing import Annotated, Literal

from pydantic import Discriminator, Field, JsonValue, Tag
from typing_extensions import TypedDict

from sharebench.model.strategy import Access
from sharebench.model.values import (
    Count,
    Image,
    List,
    Matching,
    Maybe,
    Name,
    NotNegative,
    Numeric,
    OpenMapping,
    Positive,
    Ratio,
    Section,
    Text,
    Unique,
    is_list,
)

Cores = Annotated[
    Annotated[Literal["auto"], Tag("word")]
    | Annotated[Unique[Numeric[Annotated[int, Field(ge=0)]]], Field(min_length=1), Tag("list")],
    Discriminator(lambda value: "word" if value == "auto" else "list"),
]
Gpu = Annotated[
    str, Matching("([0-9]{1,3}|GPU-[0-9a-fA-F-]+)", "is neither the index nor the UUID of a GPU, see `nvidia-smi -L`")
]
Gpus = Annotated[
    Annotated[Literal["all"], Tag("all")]
    | Annotated[Gpu, Tag("one")]
    | Annotated[Unique[Gpu], Field(min_length=1), Tag("list")],
    Discriminator(lambda value: "all" if value == "all" else "list" if is_list(value) else "one"),
]
_NODE = "[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_LABEL = "[A-Za-z0-9./_-]+=[A-Za-z0-9._-]*"
Node = Annotated[str, Matching(f"(?!auto$){_NODE}", "is not the name of a node; auto and labels stand alone")]
NodeOrLabels = Annotated[
    str, Matching(f"({_NODE}|{_LABEL}(,{_LABEL})*)", "is neither the name of a node nor labels such as pool=a,zone=b")
]
Nodes = Annotated[
    Annotated[Unique[Node], Field(min_length=1), Tag("list")] | Annotated[NodeOrLabels, Tag("one")],
    Discriminator(lambda value: "list" if is_list(value) else "one"),
]
Namespace = Annotated[
    str,
    Matching(
        "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        "cannot be a namespace: use lower-case letters, digits and -, at most 63 in all",
    ),
]
Url = Annotated[str, Matching("https?://.+", "is not a URL; write it as http://localhost:9090")]
PodPart = Annotated[str, Matching("(metadata|spec)", "does not belong to a pod, which has metadata and spec")]
Cpus = Annotated[str, Matching(r"[0-9]+(\.[0-9]+)?m?", "is not a number of CPUs; write 2, 0.5 or 500m")]
Memory = Annotated[
    str, Matching(r"[0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?", "is not an amount of memory; write 8Gi, 512Mi or 2G")
]
PriorityClass = Annotated[
    str,
    Matching("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "cannot be a PriorityClass: use lower-case letters, digits, - and ."),
]
KubernetesLabel = Annotated[str, Matching("[A-Za-z0-9./_-]+", "cannot be a label of Kubernetes")]


class StandInOptions(TypedDict):
    """Options of the CPU stand-in."""

    cores: Annotated[Cores, Field(default="auto")]
    """Cores that stand in for the device: a list of core numbers, or `auto` for all that this process may use."""
    devices: Annotated[Count, Field(default=1)]
    """Devices that these cores stand in for; each has its part of them, and they are measured at the same time."""


class Noise(TypedDict):
    """Planted noise: coefficients of variation (0.02 is 2 %), and what makes iterations depend on each other."""

    cell_cv: Annotated[Ratio, Field(default=0.004)]
    """Spread between cells (coefficient of variation)."""
    iteration_cv: Annotated[Ratio, Field(default=0.02)]
    """Spread between the iterations of one cell."""
    autocorrelation: Annotated[Numeric[Annotated[float, Field(ge=0, le=0.99)]], Field(default=0)]
    """Correlation of an iteration's spread with that of the one before."""
    drift: Annotated[Numeric[Annotated[float, Field(ge=-1, le=1)]], Field(default=0)]
    """Change of the latency over the window, as a fraction of its mean."""
    straggler_ratio: Annotated[Ratio, Field(default=0)]
    """Share of iterations with latency × `straggler_factor`, which the mean includes."""
    straggler_factor: Annotated[Numeric[Annotated[float, Field(ge=1)]], Field(default=10)]
    """Latency of a straggler over that of the others."""


class SimulatedOptions(TypedDict):
    """The device that the simulated node pretends to be; the defaults are an A100 80 GB."""

    devices: Annotated[Count, Field(default=1)]
    """Number of such devices, which are measured at the same time."""
    product: Annotated[Name, Field(default="A100 80GB PCIe")]
    """Product name in tables and figures, always with the word simulated."""
    sms: Annotated[Count, Field(default=108)]
    """Streaming multiprocessors of the whole device."""
    memory_gib: Annotated[Positive, Field(default=80)]
    """Memory of the whole device, in GiB."""
    mig_slices: Annotated[Count, Field(default=7)]
    """MIG slices of the device; more one-slice tenants than this are infeasible."""
    mig_slice_sms: Annotated[Count, Field(default=14)]
    """Streaming multiprocessors of one MIG slice."""
    time_slicing_overhead: Annotated[NotNegative, Field(default=0.1097)]
    """Time lost to context switches under time-slicing with two tenants or more, as a fraction of the work."""
    noise: Section[Noise]


class NvidiaOptions(TypedDict):
    """Options of an NVIDIA GPU of this host."""

    gpu: Annotated[Gpus, Field(default="0")]
    """Which GPU is shared, by its index or UUID (`nvidia-smi -L`); tenants do not see the others. A list, or `all`,
    [measures on several at the same time](../docs/gpu-host.md#on-a-host-with-several-gpus)."""
    python: Annotated[Name, Field(default="auto")]
    """Interpreter with the frameworks that tenants need, a path or a word on the PATH; `auto` takes `.venv-gpu`, made
    by `make gpu-env`, else the interpreter of snakemake or one on the PATH, if that has torch,
    numpy and prometheus_client."""
    hami_core: Maybe[Name]
    """Path of HAMi-core's `libvgpu.so`, for the mechanism [`hami-core`](../docs/strategies/schedulers.md)."""
    may_change: Annotated[Unique[Literal["mig"]], Field(default=[])]
    """Changes that the pipeline may make and undo: `mig` makes and removes MIG instances (MIG mode must be on)."""


class Resources(TypedDict):
    """Resources of each built-in workload's tenant in addition to its share of the GPU."""

    cpu: Maybe[Cpus]
    """CPUs that a built-in workload's tenant requests, such as `2` or `500m`, without a limit, which stops tenants that
    wait for the GPU."""
    memory: Maybe[Memory]
    """Memory of such a tenant, such as `8Gi`, as request and limit. A tenant that exceeds it is a result, `oom`."""


class Toleration(TypedDict):
    """One toleration, as in a pod."""

    key: Maybe[Text]
    """Key of the taint; `null` is any."""
    operator: Annotated[Literal["Exists", "Equal"], Field(default="Exists")]
    """`Exists`, or `Equal` to `value`."""
    value: Maybe[Text]
    """Value of the taint, for `Equal`."""
    effect: Maybe[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]]
    """Effect of the taint; `null` is any."""


class KubernetesOptions(TypedDict):
    """Options of a node in a Kubernetes cluster."""

    context: Maybe[Name]
    """Context of the kubeconfig; `null` takes its current one, or in a pod the cluster that the pod runs in."""
    node: Annotated[Nodes, Field(default="auto")]
    """Name of the node that is measured; `auto` takes the only one with a GPU. A list of names, or labels such as
    `pool=h200`, [measures on several at the same time](../docs/cluster/strategies.md#several-nodes)."""
    namespace: Annotated[Namespace, Field(default="sharebench")]
    """Namespace of the tenants' pods; it must exist."""
    access: Annotated[Access, Field(default="device-plugin")]
    """How tenants reach the GPU under strategies without an access of their own: `device-plugin` switches NVIDIA's
    plugin, `dra` makes [resource claims](../docs/cluster/strategies.md#resource-claims), `static` leaves the node as it
    is ([other schedulers](#other-schedulers))."""
    image: Annotated[
        Image,
        Field(
            default="pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
            "@sha256:417bd75df6365104c283ea4c1651fb3530d9eb5a4c2fafa51943cff2a94e6385"
        ),
    ]
    """[Image](../docs/cluster/install.md#image) of the tenants."""
    python: Annotated[Name, Field(default="python3")]
    """Interpreter in the image."""
    client_image: Maybe[Image]
    """[Image](../docs/your-own-workload.md#in-pods) of what runs next to a user's container; `null` takes `image`."""
    client: Annotated[Literal["next-to-server", "service"], Field(default="next-to-server")]
    """Where the client of a `kind: http` workload runs: in its server's pod, or with `service` in a pod of its own on
    the same node, which reaches the server [through a Service](../docs/your-own-workload.md#through-a-service)."""
    pod: Annotated[OpenMapping[PodPart, JsonValue], Field(default={})]
    """`metadata` and `spec` that every tenant's pod gets on top, merged as `kubectl patch` does
    ([examples](../docs/your-own-workload.md#what-else-a-pod-needs)). The container with the GPU is `tenant`."""
    device: Annotated[Literal["cuda", "cpu"], Field(default="cuda")]
    """Device that the tenants compute on: `cuda` is the GPU; `cpu` does not use it, for a test bed."""
    reach: Annotated[Literal["auto", "pod-ip", "port-forward"], Field(default="auto")]
    """How the driver reaches the tenants: `auto` takes their pods' addresses (`pod-ip`) within the cluster and
    `port-forward` from outside."""
    resources: Section[Resources]
    tolerations: Annotated[List[Toleration], Field(default=[])]
    """Taints that the tenants tolerate, besides `nvidia.com/gpu`, as in a pod: `{key, operator, value, effect}`."""
    priority_class: Maybe[PriorityClass]
    """PriorityClass of the tenants' pods."""
    may_change: Annotated[Unique[Literal["mig"]], Field(default=[])]
    """Other changes that the pipeline may make and undo: `mig` has NVIDIA's MIG manager make MIG instances. Without it,
    only existing ones are used."""
    switch_seconds: Annotated[Positive, Field(default=300)]
    """Time for the node to enter or leave a state."""
    stable_seconds: Annotated[Positive, Field(default=15)]
    """Time for which the node must show its new state without a break; more than the 10 s between two reports of the
    kubelet."""
    publish_seconds: Annotated[NotNegative, Field(default=10)]
    """Time for new keys of the plugin's ConfigMap to reach its pods, where the driver may annotate these
    (`config/cluster/plugin/hurry`); else 95 s."""


class Timeouts(TypedDict):
    """Times that the pipeline waits for a tenant before it gives the cell up."""

    start_seconds: Annotated[Positive, Field(default=60)]
    """Time for a tenant to start, load and warm up."""
    record_seconds: Annotated[Positive, Field(default=30)]
    """Time for a tenant to deliver its record after the window; more than its longest iteration."""


class PrometheusOptions(TypedDict):
    """A Prometheus that watches the tenants; its numbers are recorded next to the tenants' own."""

    url: Maybe[Url]
    """Address of a [Prometheus](../docs/prometheus.md) that watches, such as `http://localhost:9090`."""
    discovery: Annotated[Literal["auto", "file", "pod-monitor", "annotations"], Field(default="auto")]
    """How it finds the tenants: by files in `folder` (`file`), by a PodMonitor (`pod-monitor`), or by `annotations` of
    the pods; `auto` takes the first where `folder` is set, else the second."""
    folder: Maybe[Name]
    """Folder whose `*.json` files Prometheus reads (`file_sd_configs`)."""
    labels: Annotated[OpenMapping[KubernetesLabel, Text], Field(default={})]
    """Labels of the PodMonitor, such as `{release: kps}`."""
    scrape_seconds: Annotated[Positive, Field(default=1)]
    """Time between two scrapes of a tenant. The window holds three at least."""


class ClusterOptions(KubernetesOptions):
    """The section `kubernetes`, with the facts of the study that a node needs."""

    accesses: list[str]
    """Every access that a strategy of the study uses."""
    tenants: dict[str, list[int]]
    """Numbers of tenants under the device plugin, by the inner mechanism."""
    has_pod_monitor: bool
    """Whether the run makes a PodMonitor."""


NodeOptions = StandInOptions | SimulatedOptions | NvidiaOptions | ClusterOptions
