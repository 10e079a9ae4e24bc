"""A tenant's status by its pod, with statuses as kubelet and scheduler write them."""

from typing import Any

import pytest
from unit.kubernetes.objects import tenant_pod

from sharebench.measure.nodes.kubernetes.cluster.cluster import node_unready_reason
from sharebench.measure.nodes.kubernetes.pods import status as pod_status

SCHEDULER = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate"
NOWHERE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCHEDULER}
TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "not ready"}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return tenant_pod("Pending", {"waiting": {"reason": reason, "message": message}})


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (tenant_pod("Pending", conditions=[NOWHERE]), ["Unschedulable", "1 Insufficient nvidia.com/gpu"]),
        (waiting("ImagePullBackOff", 'Back-off pulling image "x:1"'), ["ImagePullBackOff", "x:1"]),
        (
            tenant_pod("Failed", {"terminated": {"reason": "StartError", "exitCode": 128, "message": "no such file"}}),
            ["StartError", "no such file"],
        ),
        (
            tenant_pod("Failed", reason="UnexpectedAdmissionError", message="Allocate failed due to no devices"),
            ["UnexpectedAdmissionError", "no devices"],
        ),
        (tenant_pod(state={"running": {}}, conditions=[TAINTED]), ["DeletionByTaintManager"]),
    ],
)
def test_a_pod_that_the_cluster_refuses_has_a_reason(pod: dict[str, Any], words: list[str]) -> None:
    why = pod_status.unavailable_reason(pod, pending_seconds=8.0)
    assert why is not None
    assert all(word in why for word in words)
    assert pod_status.ending(pod) is None


def test_an_unschedulable_pod_has_a_grace_period() -> None:
    assert pod_status.unavailable_reason(tenant_pod("Pending", conditions=[NOWHERE]), pending_seconds=1.0) is None


def test_a_deleted_pod_has_a_reason() -> None:
    pod = tenant_pod(state={"running": {}})
    pod["metadata"]["deletionTimestamp"] = "2026-11-20T16:00:00Z"
    assert pod_status.unavailable_reason(pod, 0.0) == "someone deleted the pod"
    assert not pod_status.is_running(pod)
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    pod["status"]["conditions"] = [evicted]
    assert pod_status.unavailable_reason(pod, 0.0) == "EvictionByEvictionAPI: evicting"


def test_a_tenant_of_a_deleted_pod_has_not_ended_by_itself() -> None:
    pod = tenant_pod(state={"terminated": {"exitCode": 143, "reason": "Error"}})
    assert pod_status.ending(pod) is not None
    pod["metadata"]["deletionTimestamp"] = "2026-11-20T16:00:00Z"
    assert pod_status.ending(pod) is None
    assert pod_status.unavailable_reason(pod, 0.0) == "someone deleted the pod"


def test_an_injected_container_is_not_the_tenant() -> None:
    pod = tenant_pod(state={"running": {}})
    beside = {"name": "istio-proxy", "ready": False, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    pod["status"]["containerStatuses"].insert(0, beside)
    assert pod_status.is_running(pod)
    assert pod_status.ending(pod) is None


@pytest.mark.parametrize(
    "pod", [tenant_pod("Pending"), waiting("ContainerCreating"), tenant_pod(state={"running": {}})]
)
def test_a_pod_without_problems_has_no_reason(pod: dict[str, Any]) -> None:
    assert pod_status.unavailable_reason(pod, 100.0) is None
    assert pod_status.ending(pod) is None


@pytest.mark.parametrize(
    ("terminated", "status", "code"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "oom", 137),
        ({"exitCode": 12, "reason": "Error"}, "oom", 12),
        ({"exitCode": 137, "reason": "Error"}, "killed", -9),
        ({"exitCode": 139, "reason": "Error"}, "crashed", -11),
        ({"exitCode": 1, "reason": "Error"}, "crashed", 1),
        ({"exitCode": 0, "reason": "Completed"}, "crashed", 0),
    ],
)
def test_the_ending_of_a_tenant_is_classified(terminated: dict[str, Any], status: str, code: int) -> None:
    pod = tenant_pod("Failed", {"terminated": terminated})
    end = pod_status.ending(pod)
    assert end is not None
    assert (end[0], end[2]) == (status, code)
    assert pod_status.unavailable_reason(pod, 0.0) is None


def test_a_pod_of_a_silent_node_is_running_but_unready() -> None:
    silent = tenant_pod(state={"running": {}}, conditions=[{"type": "Ready", "status": "False"}])
    assert pod_status.is_running_unready(silent)
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"}
    why = node_unready_reason({"status": {"conditions": [ready]}})
    assert why == "the node is not ready: NodeStatusUnknown: Kubelet stopped posting"
    assert node_unready_reason({"status": {"conditions": [ready | {"status": "True"}]}}) is None


def user_pod(program: dict[str, Any], client: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod of a user's container and our client."""
    made = tenant_pod(state=program)
    made["status"]["containerStatuses"].append({"name": "client", "state": client or {"running": {}}})
    return made


@pytest.mark.parametrize(
    ("terminated", "ending"),
    [
        ({"exitCode": 3, "message": "a\nno weights\n"}, ("crashed", "ended by itself with exit code 3: no weights", 3)),
        ({"exitCode": 12}, ("crashed", "ended by itself with exit code 12", 12)),
        ({"exitCode": 1, "message": "CUDA out of memory\nbye"}, ("oom", "ran out of memory: bye", 1)),
        ({"exitCode": 137, "reason": "Error"}, ("killed", "ended by SIGKILL", -9)),
        ({"exitCode": 137, "reason": "OOMKilled"}, ("oom", "the container exceeded its memory limit (OOMKilled)", 137)),
    ],
)
def test_the_ending_of_a_users_container_has_a_reason(terminated: dict[str, Any], ending: tuple[str, str, int]) -> None:
    """Its exit codes do not have the meaning of our own."""
    assert pod_status.ending(user_pod({"terminated": terminated})) == ending


@pytest.mark.parametrize(
    ("client", "line"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "x:1"}}, "its client: ImagePullBackOff: x:1"),
        ({"terminated": {"exitCode": 2, "message": "http_client needs aiohttp"}}, "http_client needs aiohttp"),
        ({"terminated": {"exitCode": 1, "message": "Traceback\nKeyError"}}, "its client: exit code 1: KeyError"),
        ({"running": {}}, None),
    ],
)
def test_a_failed_client_is_named(client: dict[str, Any], line: str | None) -> None:
    pod = user_pod({"running": {}}, client)
    assert pod_status.unavailable_reason(pod, 1.0) == line
    assert pod_status.is_running(pod) == (line is None)


def with_init(name: str, state: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod whose tenant waits for its init container, which has that state."""
    made = tenant_pod("Pending", {"waiting": {"reason": "PodInitializing"}})
    made["spec"]["initContainers"] = [{"name": name, **spec}]
    made["status"]["initContainerStatuses"] = [{"name": name, "state": state}]
    return made


@pytest.mark.parametrize(
    ("terminated", "ending"),
    [
        ({"exitCode": 3}, ("crashed", "its init container weights ended by itself with exit code 3", 3)),
        (
            {"exitCode": 137, "reason": "OOMKilled"},
            ("killed", "its init container weights ended by SIGKILL (OOMKilled)", -9),
        ),
        ({"exitCode": 0, "reason": "Completed"}, None),
    ],
)
def test_a_failed_init_container_is_the_end_of_its_tenant(
    terminated: dict[str, Any], ending: tuple[str, str, int] | None
) -> None:
    assert pod_status.ending(with_init("weights", {"terminated": terminated})) == ending


def test_a_sidecar_that_restarts_is_not_the_end() -> None:
    assert pod_status.ending(with_init("proxy", {"terminated": {"exitCode": 1}}, restartPolicy="Always")) is None


def test_a_container_next_to_the_tenant_that_cannot_start_is_named() -> None:
    refused = {"waiting": {"reason": "CreateContainerConfigError", "message": "image will run as root"}}
    why = pod_status.unavailable_reason(with_init("weights", refused), 1.0)
    assert why == "its init container weights: CreateContainerConfigError: image will run as root"
    pod = tenant_pod(state={"running": {}})
    absent = {"waiting": {"reason": "ImagePullBackOff", "message": "y:1"}}
    pod["status"]["containerStatuses"].append({"name": "proxy", "state": absent})
    assert pod_status.unavailable_reason(pod, 1.0) == "its container proxy: ImagePullBackOff: y:1"


def test_the_client_of_a_batch_command_runs_before_it() -> None:
    pod = tenant_pod(state={"waiting": {"reason": "PodInitializing"}})
    pod["status"]["initContainerStatuses"] = [{"name": "client", "state": {"running": {}}}]
    assert pod_status.is_running(pod)
    assert (pod_status.unavailable_reason(pod, 1.0), pod_status.ending(pod)) == (None, None)
