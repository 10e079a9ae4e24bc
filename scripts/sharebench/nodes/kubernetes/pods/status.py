"""A tenant by its pod's status: running, ended by itself (measured), or not available (a harness failure)."""

from sharebench.nodes.contract import classify_exit
from sharebench.nodes.kubernetes.cluster.api import Json, conditions_of
from sharebench.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER, TENANT_CONTAINER
from sharebench.records.types import TenantStatus
from tenant.contract import EXIT_OUT_OF_MEMORY, EXIT_USAGE

Ending = tuple[TenantStatus, str, int]
"""Status, reason and exit code."""
# A scheduler that has just seen the node change may say no once and yes a moment later.
UNSCHEDULABLE_GRACE_SECONDS = 5.0
# States of a container that waits for what does not come by waiting.
FATAL_WAITING_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
}
# How a container ends whose program never ran: no interpreter of that name, say.
NEVER_STARTED_REASONS = {"StartError", "ContainerCannotRun"}
# Signals of a kernel or a container runtime that ends a container: 128 + number.
SIGNAL_EXIT_BASE = 128


def _line(*parts: str | None) -> str:
    return " ".join(": ".join(part for part in parts if part).split())


def container_state(pod: Json, name: str = TENANT_CONTAINER) -> Json:
    """State of the tenant's container: one of waiting, running, terminated, with what belongs to it.

    A cluster may add containers of its own to the pod.
    """
    return _container_states(pod).get(name, {})


def _container_states(pod: Json) -> dict[str, Json]:
    status = pod.get("status", {})
    statuses = [each for kind in ("initContainerStatuses", "containerStatuses") for each in status.get(kind) or ()]
    return {each["name"]: each.get("state") or {} for each in statuses}


def has_client(pod: Json) -> bool:
    """Whether the tenant is a user's container, as far as the pod's status shows it."""
    return CLIENT_CONTAINER in _container_states(pod)


def is_running(pod: Json) -> bool:
    """Whether what the driver asks runs, and the pod is not being deleted."""
    asked = container_state(pod, CLIENT_CONTAINER if has_client(pod) else TENANT_CONTAINER)
    return "running" in asked and not pod["metadata"].get("deletionTimestamp")


def last_printed_line(terminated: Json) -> str:
    """The last line of what a container printed before it ended with an error, where its status has it."""
    return next(reversed([line for line in (terminated.get("message") or "").splitlines() if line.strip()]), "")


def ending(pod: Json) -> Ending | None:
    """Status, reason and exit code of a tenant whose container has ended by itself; None for every other."""
    terminated = container_state(pod).get("terminated")
    if terminated is None or terminated.get("reason") in NEVER_STARTED_REASONS:
        return None
    if pod.get("status", {}).get("reason") or pod["metadata"].get("deletionTimestamp"):
        # It was ended by the cluster, or by whoever deleted the pod.
        return None
    code = int(terminated.get("exitCode", 0))
    if terminated.get("reason") == "OOMKilled":
        return "oom", "the container exceeded its memory limit (OOMKilled)", code
    number = SIGNAL_EXIT_BASE - code if code > SIGNAL_EXIT_BASE else code
    if has_client(pod):
        status, reason = classify_exit(number, False, terminated.get("message") or "")
        return status, _line(reason, last_printed_line(terminated)), number
    status, reason = classify_exit(number)
    if number == EXIT_OUT_OF_MEMORY:
        return status, reason, code
    return status, _line(reason, terminated.get("message")), number


def unavailable_reason(pod: Json, pending_seconds: float) -> str | None:
    """Why the cluster does not give us this tenant, in its own words; None while there is hope, or nothing wrong.

    `pending_seconds` is how long the pod has been seen without running.
    """
    status = pod.get("status", {})
    if status.get("reason"):
        # UnexpectedAdmissionError, Evicted, OutOfnvidia.com/gpu, DeadlineExceeded, NodeLost, Shutdown …
        return _line(status["reason"], status.get("message"))
    conditions = conditions_of(pod)
    # An eviction: by a person, an autoscaler, the scheduler, the taint manager …; the pod is then deleted.
    if (disrupted := conditions.get("DisruptionTarget", {})).get("status") == "True":
        return _line(disrupted.get("reason"), disrupted.get("message"))
    if pod["metadata"].get("deletionTimestamp"):
        return "somebody deleted the pod"
    for name in (TENANT_CONTAINER, CLIENT_CONTAINER):
        state, whose = container_state(pod, name), "its client" if name == CLIENT_CONTAINER else None
        refused = state.get("waiting") or state.get("terminated") or {}
        if refused.get("reason") in FATAL_WAITING_REASONS | NEVER_STARTED_REASONS:
            return _line(whose, refused["reason"], refused.get("message"))
    if (gone := container_state(pod, CLIENT_CONTAINER).get("terminated")) is not None:
        said, code = last_printed_line(gone), gone.get("exitCode")
        return said if code == EXIT_USAGE and said else _line("its client", f"exit code {code}", said)
    placed = conditions.get("PodScheduled", {})
    is_refused = placed.get("status") == "False" and placed.get("reason") in ("Unschedulable", "SchedulingGated")
    if is_refused and pending_seconds >= UNSCHEDULABLE_GRACE_SECONDS:
        return _line(placed["reason"], placed.get("message"))
    return None


def is_running_unready(pod: Json) -> bool:
    """Whether a pod whose container runs counts as not ready: its node may have fallen silent."""
    return is_running(pod) and conditions_of(pod).get("Ready", {}).get("status") == "False"


def node_unready_reason(node: Json) -> str | None:
    """Why the node does not count as ready; None if it does."""
    ready = conditions_of(node).get("Ready")
    if ready is None or ready["status"] == "True":
        return None
    return _line("the node is not ready", ready.get("reason"), ready.get("message"))
