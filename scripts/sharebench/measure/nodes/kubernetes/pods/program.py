"""A pod with the user's container, unmodified, and our client next to it, which connects over localhost."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml

from sharebench.measure.nodes.contract import NodeError, PlannedLoad
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster import restricted
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.pods import manifest
from sharebench.measure.nodes.kubernetes.pods.overlay import strategic_merge
from sharebench.measure.nodes.programs import fill_in, placeholder_values
from sharebench.model.config_nodes import ClusterOptions
from sharebench.model.programs import CLIENT as CLIENT_MODULE
from sharebench.model.programs import client_files
from sharebench.model.spec import Spec, WorkloadSpec, runs_until_exit, tenant_workload
from tenant.contract import GRANTED_VARIABLE

# The port of our client. Servers may use any of the common ports.
CLIENT_PORT = 18765
PROGRAM_PORT = 8080
USER_SECURITY_KEYS = ("runAsUser", "runAsGroup", "runAsNonRoot")
# The status of a container that ends with an error has the last lines of its log.
TERMINATION_MESSAGE = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def load_pod_template(path: str) -> Json:
    """Metadata and spec of the first pod or pod template in a file of manifests. Raises NodeError."""
    for manifest_object in yaml.safe_load_all(Path(path).read_text()):
        kind, spec = (manifest_object or {}).get("kind"), (manifest_object or {}).get("spec") or {}
        if kind == "CronJob":
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        template: Json = manifest_object if kind == "Pod" else spec.get("template") or {}
        if (template.get("spec") or {}).get("containers"):
            return {"metadata": template.get("metadata") or {}, "spec": template["spec"]}
    raise NodeError(f"{path} has neither a Pod nor an object with a pod template, such as a Deployment")


def _takes_gpu(container: Json) -> bool:
    resources = container.get("resources") or {}
    return bool(resources.get("claims")) or any(name.startswith("nvidia.com/") for name in resources.get("limits", ()))


def _without_gpu(container: Json) -> Json:
    """The container's resources except GPUs."""
    resources = container.get("resources") or {}
    return {
        part: {name: amount for name, amount in resources.get(part, {}).items() if not name.startswith("nvidia.com/")}
        for part in ("limits", "requests")
    }


def _split_user_pod(workload: WorkloadSpec) -> tuple[Json, Json]:
    """The user's pod without its GPU container and resource claims, and that container without GPU resources.

    Raises NodeError, also if another container takes a GPU, since no strategy would give it its share.
    """
    if workload.get("manifest") is None:
        return {"metadata": {}, "spec": {"containers": []}}, {"image": workload["image"]}
    template = load_pod_template(str(workload["manifest"]))
    containers = template["spec"]["containers"]
    measured = next(filter(_takes_gpu, containers), containers[0])
    others = [each for each in containers if each is not measured]
    if also := [each["name"] for each in others if _takes_gpu(each)]:
        raise NodeError(
            f"{workload['manifest']}: one container is measured, and {', '.join(also)} takes a GPU, too; "
            "have it take none"
        )
    spec = {key: value for key, value in template["spec"].items() if key != "resourceClaims"}
    # The strategy determines the container's share of the GPU.
    container = {**measured, "resources": _without_gpu(measured)}
    metadata = {key: value for key, value in template["metadata"].items() if key in ("labels", "annotations") and value}
    return {"metadata": metadata, "spec": {**spec, "containers": others}}, container


def port_of(workload: WorkloadSpec, container: Json) -> int:
    """The port of the program: the workload's, or the first one of its manifest."""
    ports = [port["containerPort"] for port in container.get("ports") or ()]
    return int(workload.get("port") or next(iter(ports), PROGRAM_PORT))


def _user_container(
    spec: Spec, index: int, container: Json, pod_security: Json, needs: PodNeeds, options: ClusterOptions
) -> Json:
    """The user's container with its share of the GPU; `pod_security` is the user's securityContext of the pod."""
    workload = tenant_workload(spec, index)
    values = {**placeholder_values(spec, index), "port": port_of(workload, container)}
    user_names = {variable["name"] for variable in container.get("env") or ()}
    variables = {name: value for name, value in manifest.USER_VARIABLES.items() if name not in user_names}
    variables |= {GRANTED_VARIABLE: "1", "SHAREBENCH_PORT": str(values["port"]), "SHAREBENCH_INDEX": str(index)}
    variables |= needs.environment
    source: Json = {"command": workload["command"]} if workload.get("command") else container
    words = {key: [fill_in(word, values) for word in source[key]] for key in ("command", "args") if source.get(key)}
    user_security = {key: pod_security[key] for key in USER_SECURITY_KEYS if key in pod_security}
    user_security |= container.get("securityContext") or {}
    ours = manifest.gpu_container(needs, options, env=manifest.env_entries(variables), **words, **TERMINATION_MESSAGE)
    ours["securityContext"] = restricted.CONTAINER_SECURITY | user_security
    base = {key: value for key, value in container.items() if key not in ("command", "args")}
    return cast(Json, strategic_merge(base, ours))


def _client_params(workload: WorkloadSpec, port: int) -> Json:
    request = workload["request"]
    params = {"url": f"http://127.0.0.1:{port}", **request, "ready_path": workload["ready"]["path"]}
    params |= {key: f"{manifest.CODE_FOLDER}/{body_key(path)}" for key, path in client_files(workload).items()}
    return {**params, "stream": workload["stream"]}


def body_key(path: str) -> str:
    """The key of a request body's file in the cell's ConfigMap."""
    return "body-" + "".join(character if character.isalnum() else "-" for character in path)


def body_files(workload: WorkloadSpec) -> Mapping[str, bytes]:
    """The files of the study that the client reads, by their key in the cell's ConfigMap."""
    return {body_key(path): Path(path).read_bytes() for path in client_files(workload).values()}


def user_pod(
    place: manifest.Place,
    owner: Json,
    spec: Spec,
    load: PlannedLoad,
    index: int,
    needs: PodNeeds,
    token: str,
    watched_cell: str | None,
    deadline_seconds: int,
) -> Json:
    """The pod of a tenant that is a user's container, merged into the user's manifest if there is one."""
    options, workload = place.options, tenant_workload(spec, index)
    base, container = _split_user_pod(workload)
    own = _user_container(spec, index, container, base["spec"].get("securityContext") or {}, needs, options)
    run = {"workload": CLIENT_MODULE, "device": "cpu", "program": "server"}
    if runs_until_exit(workload):
        run["program"] = "exit"
    elif workload["kind"] == "command":
        run["program"] = "scrape"
        run["params"] = json.dumps({"port": port_of(workload, container), "path": workload["metrics"]["path"]})
    else:
        run["params"] = json.dumps(_client_params(workload, port_of(workload, container)))
    line = manifest.command_line(spec, load, index, options["python"], CLIENT_PORT, run, watched_cell)
    client = {
        "name": manifest.CLIENT_CONTAINER,
        "image": options["client_image"] or options["image"],
        **manifest.code_fields(line, token, CLIENT_PORT, {}),
        # The same user as in the other container, which is required to see its devices.
        "securityContext": own["securityContext"],
        **TERMINATION_MESSAGE,
    }
    if runs_until_exit(workload):
        # As a sidecar: the kubelet starts the other containers after its startup probe succeeds, and ends it last.
        probe = {"httpGet": {"path": "/begun", "port": CLIENT_PORT}, "periodSeconds": 1}
        client |= {"restartPolicy": "Always", "startupProbe": probe | {"failureThreshold": deadline_seconds}}
        pod = manifest.tenant_pod(place, owner, index, [own], needs, deadline_seconds)
        pod["spec"]["initContainers"] = [client]
    else:
        pod = manifest.tenant_pod(place, owner, index, [own, client], needs, deadline_seconds)
    user_tolerations = base["spec"].pop("tolerations", None) or []
    pod["spec"]["tolerations"] = [*user_tolerations, *pod["spec"]["tolerations"]]
    # The client measures what the server uses of the node.
    pod["spec"]["shareProcessNamespace"] = True
    return cast(Json, strategic_merge(base, pod))
