"""A pod with the user's container, unmodified, and our client next to it, which connects over localhost."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster import restricted
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import SERVER_LABEL
from sharebench.measure.nodes.kubernetes.pods import manifest
from sharebench.measure.nodes.kubernetes.pods.manifest import TenantPlan
from sharebench.measure.nodes.kubernetes.pods.overlay import strategic_merge
from sharebench.measure.nodes.programs import fill_in, placeholder_values
from sharebench.model.user_manifest import CLIENT_PORT, ManifestError, split_pod
from sharebench.model.workload import CLIENT, Workload
from tenant.contract import GRANTED_VARIABLE

PROGRAM_PORT = 8080
USER_SECURITY_KEYS = ("runAsUser", "runAsGroup", "runAsNonRoot")
# The status of a container that ends with an error has the last lines of its log.
TERMINATION_MESSAGE = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def _split_user_pod(workload: Workload) -> tuple[Json, Json]:
    """The user's pod without its measured container, and that container. Raises NodeError."""
    if workload.manifest is None:
        return {"metadata": {}, "spec": {"containers": []}}, {"image": workload.image}
    try:
        return split_pod(workload.manifest)
    except ManifestError as error:
        raise NodeError(str(error)) from None


def _is_root(security: Json) -> bool:
    """Whether a securityContext demands a user or rights that ours excludes."""
    return bool(security.get("privileged")) or security.get("runAsUser") == 0 or security.get("runAsNonRoot") is False


def _filled_in(container: Json, pod_security: Json, level: str) -> Json:
    """What the level of Pod Security demands of a container's securityContext, where the user says nothing.

    `pod_security` is the user's securityContext of the pod.
    """
    given = {key: pod_security[key] for key in USER_SECURITY_KEYS if key in pod_security}
    given |= container.get("securityContext") or {}
    if level != restricted.LEVEL or _is_root(given):
        return {}
    return {key: value for key, value in restricted.CONTAINER_SECURITY.items() if key not in given}


def _containers(pod: Json) -> list[Json]:
    return [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]


def additions(workload: Workload, level: str) -> str | None:
    """What is filled in in the user's containers at a level of Pod Security, as text; None if nothing is."""
    base, container = _split_user_pod(workload)
    pod_security = base["spec"].get("securityContext") or {}
    found: Json = {}
    for each in (container, *_containers(base)):
        found |= _filled_in(each, pod_security, level)
    if level == restricted.LEVEL and "seccompProfile" not in pod_security:
        found["seccompProfile"] = restricted.POD_SECURITY["seccompProfile"]
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in found.items()) or None


def _ports(container: Json) -> list[int]:
    return [int(port["containerPort"]) for port in container.get("ports") or ()]


def port_of(workload: Workload, container: Json) -> int:
    """The port of the program: the workload's, or the first one of its manifest."""
    return int(workload.port or next(iter(_ports(container)), PROGRAM_PORT))


def choices(workload: Workload) -> Iterator[str]:
    """What of a manifest is measured, where it has several containers or another port, as texts."""
    base, container = _split_user_pod(workload)
    if others := ", ".join(str(each["name"]) for each in base["spec"]["containers"]):
        yield f"its container {container['name']} is measured, and {others} only run next to it"
    if workload.port and (ports := _ports(container)) and workload.port not in ports:
        yield f"port {workload.port} is none of its containerPorts ({', '.join(map(str, ports))})"


def _user_container(plan: TenantPlan, container: Json, pod_security: Json, needs: PodNeeds, level: str) -> Json:
    """The user's container with its share of the GPU; `pod_security` is the user's securityContext of the pod."""
    workload, spec, index = plan.workload, plan.spec, plan.index
    if spec.strategy.mechanism == ("time-slicing",):
        # Also by a claim each, the tenants share the memory of one GPU.
        spec = spec.changed(strategy=spec.strategy.changed(claim_per=None))
    values = {**placeholder_values(spec, index), "port": port_of(workload, container)}
    user_names = {variable["name"] for variable in container.get("env") or ()}
    filled_in = _filled_in(container, pod_security, level)
    # The user that we choose has no name in any image.
    named = manifest.USER_VARIABLES if "runAsUser" in filled_in else {}
    variables = {name: value for name, value in named.items() if name not in user_names}
    variables |= {GRANTED_VARIABLE: "1", "SHAREBENCH_PORT": str(values["port"]), "SHAREBENCH_INDEX": str(index)}
    variables |= needs.environment
    source: Json = {"command": workload.command} if workload.command else container
    words = {key: [fill_in(word, values) for word in source[key]] for key in ("command", "args") if source.get(key)}
    user_security = {key: pod_security[key] for key in USER_SECURITY_KEYS if key in pod_security}
    security = filled_in | user_security | (container.get("securityContext") or {})
    env = manifest.env_entries(variables)
    ours = manifest.gpu_container(needs, security, {}, env=env, **words, **TERMINATION_MESSAGE)
    base = {key: value for key, value in container.items() if key not in ("command", "args")}
    return cast(Json, strategic_merge(base, ours))


def _client_params(workload: Workload, url: str) -> Json:
    files = {key: f"{manifest.CODE_FOLDER}/{body_key(path)}" for key, path in workload.client_files().items()}
    return workload.client_params(url) | files


def _client_container(plan: TenantPlan, run: Mapping[str, str]) -> Json:
    options = plan.place.options
    line = manifest.command_line(plan, CLIENT_PORT, {"workload": CLIENT, "device": "cpu", **run})
    return {
        "name": manifest.CLIENT_CONTAINER,
        "image": options["client_image"] or options["image"],
        **manifest.code_fields(line, plan.token, CLIENT_PORT, {}),
        **TERMINATION_MESSAGE,
    }


def is_served(place: manifest.Place, workload: Workload) -> bool:
    """Whether the workload's client reaches its server through a Service."""
    return workload.kind == "http" and place.options["client"] == "service"


def service(plan: TenantPlan) -> Json:
    _, container = _split_user_pod(plan.workload)
    port, place = port_of(plan.workload, container), plan.place
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{place.name}-{plan.index}",
            "labels": place.labels,
            "ownerReferences": [manifest.owner_reference(place, plan.owner)],
        },
        "spec": {
            "selector": {manifest.CELL_LABEL: place.cell, SERVER_LABEL: str(plan.index)},
            "ports": [{"port": port, "targetPort": port}],
        },
    }


def client_pod(plan: TenantPlan, made: Json) -> Json:
    """The pod of a client that reaches its server through this Service, as the API server has made it."""
    (port,), address = made["spec"]["ports"], made["spec"]["clusterIP"]
    host = f"[{address}]" if ":" in address else address
    params = json.dumps(_client_params(plan.workload, f"http://{host}:{port['port']}"))
    # Its server is in another pod, whose processes it does not see.
    container = _client_container(plan, {"program": "server", "pid": "0", "params": params})
    container["securityContext"] = restricted.CONTAINER_SECURITY
    pod = manifest.tenant_pod(plan.place, plan.owner, plan.index, [container], PodNeeds(), plan.lifetime_seconds)
    pod["metadata"]["name"] += "-client"
    base, _ = _split_user_pod(plan.workload)
    if secrets := base["spec"].get("imagePullSecrets"):
        # The client's image may be from the server's registry.
        pod["spec"]["imagePullSecrets"] = secrets
    return pod


def body_key(path: str) -> str:
    """The key of a request body's file in the cell's ConfigMap."""
    return "body-" + "".join(character if character.isalnum() else "-" for character in path)


def body_files(workload: Workload) -> Mapping[str, bytes]:
    """The files of the study that the client reads, by their key in the cell's ConfigMap."""
    return {body_key(path): Path(path).read_bytes() for path in workload.client_files().values()}


def tenant_pod(plan: TenantPlan, needs: PodNeeds, cluster: Cluster) -> Json:
    """A tenant's pod, without the overlay."""
    if plan.workload.is_program:
        return user_pod(plan, needs, cluster.pod_security)
    return manifest.built_in_pod(plan, needs)


def user_pod(plan: TenantPlan, needs: PodNeeds, level: str) -> Json:
    """The pod of a tenant that is a user's container, merged into the user's manifest if there is one.

    `level` is the Pod Security of the namespace (`Cluster.pod_security`).
    """
    workload, is_behind_service = plan.workload, is_served(plan.place, plan.workload)
    base, container = _split_user_pod(workload)
    pod_security = base["spec"].get("securityContext") or {}
    own = _user_container(plan, container, pod_security, needs, level)
    for each in _containers(base):
        if filled_in := _filled_in(each, pod_security, level):
            each["securityContext"] = filled_in | (each.get("securityContext") or {})
    port, run = port_of(workload, container), {"program": "server"}
    if workload.runs_until_exit:
        run["program"] = "exit"
    elif workload.kind == "command" or is_behind_service:
        run["program"] = "scrape"
        scraped = {"port": port, "path": workload.metrics.path}
        # Nothing listens on port 0, so that an observer next to a served server sends it no requests.
        run["params"] = json.dumps(scraped if workload.kind == "command" else {"port": 0, "path": "/"})
    else:
        run["params"] = json.dumps(_client_params(workload, f"http://127.0.0.1:{port}"))
    client = _client_container(plan, run)
    # The same user as in the other container, which is required to see its devices.
    client["securityContext"] = own["securityContext"]
    containers = [own] if workload.runs_until_exit else [own, client]
    pod = manifest.tenant_pod(plan.place, plan.owner, plan.index, containers, needs, plan.lifetime_seconds)
    if workload.runs_until_exit:
        # As a sidecar: the kubelet starts the other containers after its startup probe succeeds, and ends it last.
        probe = {"httpGet": {"path": "/begun", "port": CLIENT_PORT}, "periodSeconds": 1}
        client |= {"restartPolicy": "Always", "startupProbe": probe | {"failureThreshold": plan.lifetime_seconds}}
        pod["spec"]["initContainers"] = [client]
    user_tolerations = base["spec"].pop("tolerations", None) or []
    pod["spec"]["tolerations"] = [*user_tolerations, *pod["spec"]["tolerations"]]
    if not base["spec"].get("hostPID"):
        # The client measures what the server uses of the node.
        pod["spec"]["shareProcessNamespace"] = True
    made = cast(Json, strategic_merge(base, pod))
    made["spec"]["securityContext"] = _pod_security(pod_security, made, level)
    if is_behind_service:
        made["metadata"]["labels"][SERVER_LABEL] = str(plan.index)
    return made


def _pod_security(user_security: Json, pod: Json, level: str) -> Json:
    """The pod's securityContext: the user's, and where that is silent ours, as far as level and containers have it."""
    if level != restricted.LEVEL:
        return user_security
    contexts = [user_security, *(each.get("securityContext") or {} for each in _containers(pod))]
    excluded = {"runAsNonRoot"} if any(map(_is_root, contexts)) else set()
    return {key: value for key, value in restricted.POD_SECURITY.items() if key not in excluded} | user_security
