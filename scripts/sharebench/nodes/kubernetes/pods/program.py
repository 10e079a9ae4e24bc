"""A pod with the user's container, as it is, and next to it our client, which asks it over the pod's localhost."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml

from sharebench.core.config_nodes import ClusterOptions
from sharebench.core.programs import BODY_FILES
from sharebench.core.programs import CLIENT as CLIENT_MODULE
from sharebench.core.spec import Spec, WorkloadSpec, runs_until_exit, tenant_workload
from sharebench.nodes.contract import NodeError, PlannedLoad
from sharebench.nodes.kubernetes.access.base import PodNeeds
from sharebench.nodes.kubernetes.cluster import restricted
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.pods import manifest
from sharebench.nodes.kubernetes.pods.overlay import strategic_merge
from sharebench.nodes.programs import fill_in, placeholder_values
from tenant.contract import GRANTED_VARIABLE

# Where our client listens: a server may have any usual one.
CLIENT_PORT = 18765
PROGRAM_PORT = 8080
USER_SECURITY_KEYS = ("runAsUser", "runAsGroup", "runAsNonRoot")
# What ends with an error shows in its pod's status what it printed last.
TERMINATION_MESSAGE = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def load_pod_template(path: str) -> Json:
    """Metadata and spec of the first pod, or pod template, in a file of manifests. Raises NodeError."""
    for found in yaml.safe_load_all(Path(path).read_text()):
        kind, spec = (found or {}).get("kind"), (found or {}).get("spec") or {}
        if kind == "CronJob":
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        made: Json = found if kind == "Pod" else spec.get("template") or {}
        if (made.get("spec") or {}).get("containers"):
            return {"metadata": made.get("metadata") or {}, "spec": made["spec"]}
    raise NodeError(f"{path} has neither a Pod nor an object with a pod template, such as a Deployment")


def _takes_gpu(container: Json) -> bool:
    resources = container.get("resources") or {}
    return bool(resources.get("claims")) or any(name.startswith("nvidia.com/") for name in resources.get("limits", ()))


def _without_gpu(container: Json) -> Json:
    """What it asks for besides a GPU."""
    resources = container.get("resources") or {}
    return {
        part: {name: amount for name, amount in resources.get(part, {}).items() if not name.startswith("nvidia.com/")}
        for part in ("limits", "requests")
    }


def _split_user_pod(workload: WorkloadSpec) -> tuple[Json, Json]:
    """The user's pod, without its container for the GPU and without its claims on one, and that container.

    Raises NodeError, also where another container takes a GPU: its share would be no strategy's.
    """
    if workload.get("manifest") is None:
        return {"metadata": {}, "spec": {"containers": []}}, {"image": workload["image"]}
    made = load_pod_template(str(workload["manifest"]))
    containers = made["spec"]["containers"]
    own = next(filter(_takes_gpu, containers), containers[0])
    others = [each for each in containers if each is not own]
    if also := [each["name"] for each in others if _takes_gpu(each)]:
        raise NodeError(
            f"{workload['manifest']}: one container is measured, and {', '.join(also)} takes a GPU, too; "
            "have it take none"
        )
    spec = {key: value for key, value in made["spec"].items() if key != "resourceClaims"}
    # Its share of the GPU is the strategy's to say.
    given = {**own, "resources": _without_gpu(own)}
    metadata = {key: value for key, value in made["metadata"].items() if key in ("labels", "annotations") and value}
    return {"metadata": metadata, "spec": {**spec, "containers": others}}, given


def port_of(workload: WorkloadSpec, container: Json) -> int:
    """Where the program listens: as the workload says, or the first port that its manifest names."""
    named = [each["containerPort"] for each in container.get("ports") or ()]
    return int(workload.get("port") or next(iter(named), PROGRAM_PORT))


def _user_container(
    spec: Spec, index: int, given: Json, of_pod: Json, needs: PodNeeds, options: ClusterOptions
) -> Json:
    """The user's container with its share of the GPU."""
    workload = tenant_workload(spec, index)
    values = {**placeholder_values(spec, index), "port": port_of(workload, given)}
    own = {each["name"] for each in given.get("env") or ()}
    marks = {name: value for name, value in manifest.USER_VARIABLES.items() if name not in own} | {
        GRANTED_VARIABLE: "1"
    }
    marks |= {"SHAREBENCH_PORT": str(values["port"]), "SHAREBENCH_INDEX": str(index), **needs.environment}
    words: Json = {"command": workload["command"]} if workload.get("command") else given
    said = {key: [fill_in(word, values) for word in words[key]] for key in ("command", "args") if words.get(key)}
    security = restricted.CONTAINER_SECURITY | {key: of_pod[key] for key in USER_SECURITY_KEYS if key in of_pod}
    made = manifest.gpu_container(needs, options, env=manifest.env_entries(marks), **said, **TERMINATION_MESSAGE)
    made["securityContext"] = security | (given.get("securityContext") or {})
    without = {key: value for key, value in given.items() if key not in ("command", "args")}
    return cast(Json, strategic_merge(without, made))


def _client_params(workload: WorkloadSpec, port: int) -> Json:
    request = workload["request"]
    params = {"url": f"http://127.0.0.1:{port}", **request, "ready_path": workload["ready"]["path"]}
    params |= {
        key: f"{manifest.CODE_FOLDER}/{body_key(str(request.get(key)))}" for key in BODY_FILES if request.get(key)
    }
    return {**params, "stream": workload["stream"]}


def body_key(path: str) -> str:
    """A body's file in the cell's ConfigMap."""
    return "body-" + "".join(each if each.isalnum() else "-" for each in path)


def body_files(workload: WorkloadSpec) -> Mapping[str, bytes]:
    """The files with bodies that the client needs, by their name in the cell's ConfigMap."""
    request: Mapping[str, object] = workload.get("request") or {}
    named = [str(path) for key in BODY_FILES if (path := request.get(key))]
    return {body_key(path): Path(path).read_bytes() for path in named}


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
    """The pod of a tenant that is a user's container, on top of what its manifest has, if there is one."""
    options, workload = place.options, tenant_workload(spec, index)
    base, given = _split_user_pod(workload)
    own = _user_container(spec, index, given, base["spec"].get("securityContext") or {}, needs, options)
    run = {"workload": CLIENT_MODULE, "device": "cpu", "program": "server"}
    if runs_until_exit(workload):
        run["program"] = "exit"
    elif workload["kind"] == "command":
        run["program"] = "scrape"
        run["params"] = json.dumps({"port": port_of(workload, given), "path": workload["metrics"]["path"]})
    else:
        run["params"] = json.dumps(_client_params(workload, port_of(workload, given)))
    line = manifest.command_line(spec, load, index, options["python"], CLIENT_PORT, run, watched_cell)
    client = {
        "name": manifest.CLIENT_CONTAINER,
        "image": options["client_image"] or options["image"],
        **manifest.code_fields(line, token, CLIENT_PORT, {}),
        # The user's own: only that one may see what the other was given.
        "securityContext": own["securityContext"],
        **TERMINATION_MESSAGE,
    }
    if runs_until_exit(workload):
        # A sidecar: the kubelet starts the others when its startup probe says so, and ends it after them.
        begun = {"httpGet": {"path": "/begun", "port": CLIENT_PORT}, "periodSeconds": 1}
        client |= {"restartPolicy": "Always", "startupProbe": begun | {"failureThreshold": deadline_seconds}}
        made = manifest.tenant_pod(place, owner, index, [own], needs, deadline_seconds)
        made["spec"]["initContainers"] = [client]
    else:
        made = manifest.tenant_pod(place, owner, index, [own, client], needs, deadline_seconds)
    theirs = base["spec"].pop("tolerations", None) or []
    made["spec"]["tolerations"] = [*theirs, *made["spec"]["tolerations"]]
    # What the server uses of the node is seen from the client.
    made["spec"]["shareProcessNamespace"] = True
    return cast(Json, strategic_merge(base, made))
