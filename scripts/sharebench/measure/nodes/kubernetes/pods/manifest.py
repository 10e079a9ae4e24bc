"""The objects of a cell in a cluster: a ConfigMap with the tenants' code, and the tenants' pods, which it owns."""

import base64
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sharebench.measure.nodes.contract import PlannedLoad
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.lease import node_digest
from sharebench.measure.nodes.kubernetes.cluster.restricted import (
    CONTAINER_SECURITY,
    NO_DISRUPTION_ANNOTATIONS,
    base_pod_spec,
)
from sharebench.model import user_manifest
from sharebench.model.spec import Spec
from sharebench.model.workload import Workload
from tenant.contract import GRANTED_VARIABLE, TOKEN_VARIABLE

if TYPE_CHECKING:
    from sharebench.model.config_nodes import ClusterOptions

TENANT_PORT = 8000
TENANT_CONTAINER, CLIENT_CONTAINER = user_manifest.TENANT_CONTAINER, user_manifest.CLIENT_CONTAINER
CODE_VOLUME = user_manifest.CODE_VOLUME
CODE_FOLDER = "/sharebench"
CODE_FILE = "tenant.pyz"
CELL_LABEL = "sharebench/cell"
USER_NAME = "sharebench"
# No image has a name for the user's number, and torch looks it up.
USER_VARIABLES = {"HOME": "/tmp", "USER": USER_NAME, "LOGNAME": USER_NAME}
# The telemetry module is imported at the start. Later, while the tenants work, each opened file waits some 20 ms for
# the loop to release the interpreter.
MAIN_SOURCE = "import tenant.gpu.telemetry\nfrom tenant.__main__ import main\n\nmain()\n"
# The earliest time of the format, so that the same code always gives the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Place:
    """The node where a cell's tenants run, and our name for the cell."""

    node: str
    cell: str
    options: "ClusterOptions"

    @property
    def namespace(self) -> str:
        return self.options["namespace"]

    @property
    def labels(self) -> dict[str, str]:
        return {OWNER_LABEL: node_digest(self.node), CELL_LABEL: self.cell}

    @property
    def name(self) -> str:
        """Name of the cell's ConfigMap, with which its pods' names begin."""
        return f"sharebench-{self.cell}"


@dataclass(frozen=True)
class TenantPlan:
    """A tenant, for its pods; `owner` is the cell's ConfigMap as the API server returned it."""

    place: Place
    owner: Json
    spec: Spec
    load: PlannedLoad
    index: int
    token: str
    watched_cell: str | None
    """None unless Prometheus scrapes the tenants."""
    lifetime_seconds: int
    """After it, the pods end by themselves."""

    @property
    def workload(self) -> Workload:
        return self.spec.workloads[self.index]


def owner_reference(place: Place, owner: Json) -> Json:
    """The owner reference to the cell's ConfigMap, which is `owner` as the API server returned it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": place.name, "uid": owner["metadata"]["uid"]}


def cell_object(place: Place, owner: Json, body: Json) -> Json:
    """An object of `Access.cell_objects` with its name in the cluster, the cell's labels and its owner."""
    metadata = {"name": f"{place.name}-{body['metadata']['name']}", "labels": place.labels}
    return {**body, "metadata": metadata | {"ownerReferences": [owner_reference(place, owner)]}}


def _sources(name: str) -> dict[str, bytes]:
    """The Python files of an installed package or module, by their paths relative to where it is installed."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return {origin.name: origin.read_bytes()}
    folder = origin.parent
    return {str(file.relative_to(folder.parent)): file.read_bytes() for file in sorted(folder.rglob("*.py"))}


@cache
def code_archive() -> bytes:
    """The tenant's code as a runnable zip: the sources of `scripts/tenant`, prometheus_client and pynvml."""
    sources = {"__main__.py": MAIN_SOURCE.encode()}
    for name in ("tenant", "prometheus_client", "pynvml"):
        sources |= _sources(name)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        for name, source in sources.items():
            bundle.writestr(zipfile.ZipInfo(name, EPOCH), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def as_base64(content: bytes) -> str:
    """The encoding of a ConfigMap's binaryData."""
    return base64.b64encode(content).decode()


def config_map(place: Place, files: Mapping[str, bytes]) -> Json:
    """The cell's ConfigMap with files for the pods, which are deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": place.name, "labels": place.labels},
        "immutable": True,
        "binaryData": {name: as_base64(content) for name, content in files.items()},
    }


def command_line(plan: TenantPlan, port: int, run: Mapping[str, str]) -> list[str]:
    """The command line of our code for a tenant; `run` has its workload, params and device."""
    arguments = {
        **run,
        "name": plan.workload.name,
        "load": json.dumps(plan.load),
        # Programs that run to their end have no warm-up.
        "warmup": json.dumps(plan.spec.warmup_rule),
        # All addresses of the pod. Requests that change anything need the cell's token.
        "bind": "0.0.0.0",
        "port": str(port),
        "index": str(plan.index),
    }
    if plan.watched_cell is not None:
        arguments["watched-cell"] = plan.watched_cell
    started = [plan.place.options["python"], f"{CODE_FOLDER}/{CODE_FILE}"]
    return [*started, *(part for key, value in arguments.items() for part in (f"--{key}", value))]


def env_entries(variables: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def gpu_container(needs: PodNeeds, security: Json, own: Mapping[str, Json], **fields: object) -> Json:
    """The tenant's container with its share of the GPU, and with these resources, securityContext and fields."""
    resources: Json = {kind: {**own.get(kind, {}), **needs.limits} for kind in ("limits", "requests")}
    if needs.claims:
        resources["claims"] = [
            {"name": name} | ({"request": request} if request else {}) for name, request in needs.claims.items()
        ]
    return {"name": TENANT_CONTAINER, **fields, "resources": resources, "securityContext": security}


def code_fields(arguments: list[str], token: str, port: int, variables: Mapping[str, str]) -> Json:
    """The fields of a container that runs our code, with additional environment variables."""
    return {
        "command": arguments,
        "env": env_entries({TOKEN_VARIABLE: token, **variables, "PYTHONDONTWRITEBYTECODE": "1", **USER_VARIABLES}),
        "ports": [{"name": "metrics", "containerPort": port}],
        "volumeMounts": [{"name": CODE_VOLUME, "mountPath": CODE_FOLDER, "readOnly": True}],
    }


def tenant_container(arguments: list[str], needs: PodNeeds, token: str, options: "ClusterOptions") -> Json:
    fields = code_fields(arguments, token, TENANT_PORT, {GRANTED_VARIABLE: "1"})
    fields["env"] += env_entries(needs.environment)
    requests = {name: value for name, value in options["resources"].items() if value is not None}
    # A tenant that waits for the GPU spins on a core. A limit of the CPU would stop it whenever its other threads run.
    limits = {name: value for name, value in requests.items() if name != "cpu"}
    resources = {"limits": limits, "requests": requests}
    return gpu_container(needs, CONTAINER_SECURITY, resources, image=options["image"], **fields)


def tenant_pod(place: Place, owner: Json, index: int, containers: list[Json], needs: PodNeeds, seconds: int) -> Json:
    """A tenant's pod, which ends after `seconds`; `owner` is the cell's ConfigMap as the API server returned it."""
    options = place.options
    spec: Json = {
        **base_pod_spec(place.node, options),
        "activeDeadlineSeconds": seconds,
        "containers": containers,
        "volumes": [{"name": CODE_VOLUME, "configMap": {"name": place.name}}],
    }
    if needs.claims:
        prefix, key = needs.claims_prefix or place.name, f"resourceClaim{'Template' if needs.is_template else ''}Name"
        spec["resourceClaims"] = [{"name": name, key: f"{prefix}-{name}"} for name in needs.claims]
    if needs.scheduler is not None:
        spec["schedulerName"] = needs.scheduler
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{place.name}-{index}",
            "labels": place.labels | dict(needs.labels),
            "annotations": NO_DISRUPTION_ANNOTATIONS | dict(needs.annotations),
            "ownerReferences": [owner_reference(place, owner) | {"controller": True}],
        },
        "spec": spec,
    }


def built_in_pod(plan: TenantPlan, needs: PodNeeds) -> Json:
    """The pod of a tenant that runs our code."""
    options, workload = plan.place.options, plan.workload
    run = {"workload": str(workload.module), "params": json.dumps(workload.params), "device": options["device"]}
    container = tenant_container(command_line(plan, TENANT_PORT, run), needs, plan.token, options)
    return tenant_pod(plan.place, plan.owner, plan.index, [container], needs, plan.lifetime_seconds)
