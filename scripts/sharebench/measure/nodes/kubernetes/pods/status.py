"""A tenant's status by its pod: running, ended by itself (measured), or unavailable (a harness failure)."""

from sharebench.measure.nodes.contract import classify_exit
from sharebench.measure.nodes.kubernetes.cluster.api import Json, conditions_of
from sharebench.measure.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER, TENANT_CONTAINER
from sharebench.measure.nodes.tenants.tenant_set import Ending
from tenant.contract import EXIT_OUT_OF_MEMORY, EXIT_USAGE

# Just after the node has changed, a scheduler may refuse a pod once and accept it a moment later.
UNSCHEDULABLE_GRACE_SECONDS = 5.0
# Reasons of waiting containers that do not resolve by themselves.
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
# Reasons of ended containers whose program never ran, for example without an interpreter of that name.
NEVER_STARTED_REASONS = {"StartError", "ContainerCannotRun"}
# The exit code of a container that was ended by a signal is this plus the signal's number.
SIGNAL_EXIT_BASE = 128


def _line(*parts: str | None) -> str:
    return " ".join(": ".join(part for part in parts if part).split())


def container_state(pod: Json, name: str = TENANT_CONTAINER) -> Json:
    """State of one container of the pod, by its kind: waiting, running or terminated; empty if it has none."""
    return _container_states(pod).get(name, {})


def _container_states(pod: Json) -> dict[str, Json]:
    status = pod.get("status", {})
    statuses = [each for kind in ("initContainerStatuses", "containerStatuses") for each in status.get(kind) or ()]
    return {each["name"]: each.get("state") or {} for each in statuses}


def failed_init_container(pod: Json) -> str | None:
    """The init container that ended with an error, so that the pod's containers never start; None without one."""
    # A sidecar is restarted.
    once = {each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") != "Always"}
    ended = {name: state.get("terminated") or {} for name, state in _container_states(pod).items() if name in once}
    return next((name for name in ended if ended[name].get("exitCode")), None)


def container_label(pod: Json, name: str) -> str | None:
    """A container in a message; None for the tenant's own."""
    if name in (TENANT_CONTAINER, CLIENT_CONTAINER):
        return None if name == TENANT_CONTAINER else "its client"
    is_init = any(each["name"] == name for each in pod["spec"].get("initContainers") or ())
    return f"its {'init ' if is_init else ''}container {name}"


def has_client(pod: Json) -> bool:
    """Whether the pod's status shows a client, so that the tenant is a user's container."""
    return CLIENT_CONTAINER in _container_states(pod)


def is_running(pod: Json) -> bool:
    """Whether the container that the driver connects to runs, and the pod is not being deleted."""
    state = container_state(pod, CLIENT_CONTAINER if has_client(pod) else TENANT_CONTAINER)
    return "running" in state and not pod["metadata"].get("deletionTimestamp")


def last_printed_line(terminated: Json) -> str:
    """The last line that a container printed before it ended with an error, if its status has it."""
    return next(reversed([line for line in (terminated.get("message") or "").splitlines() if line.strip()]), "")


def ending(pod: Json) -> Ending | None:
    """How a tenant's container, or one of its init containers, has ended by itself; None if it has not."""
    failed = failed_init_container(pod)
    terminated = container_state(pod, failed or TENANT_CONTAINER).get("terminated")
    if terminated is None or terminated.get("reason") in NEVER_STARTED_REASONS:
        return None
    if pod.get("status", {}).get("reason") or pod["metadata"].get("deletionTimestamp"):
        # The cluster ended it, or someone deleted the pod.
        return None
    code = int(terminated.get("exitCode", 0))
    number = SIGNAL_EXIT_BASE - code if code > SIGNAL_EXIT_BASE else code
    if failed is not None:
        # Its lack of memory says nothing about the GPU's.
        status, reason = classify_exit(number, False)
        killed = " (OOMKilled)" if terminated.get("reason") == "OOMKilled" else ""
        return status, f"{container_label(pod, failed)} {reason}{killed}", number
    if terminated.get("reason") == "OOMKilled":
        return "oom", "the container exceeded its memory limit (OOMKilled)", code
    if has_client(pod):
        status, reason = classify_exit(number, False, terminated.get("message") or "")
        return status, _line(reason, last_printed_line(terminated)), number
    status, reason = classify_exit(number)
    if number == EXIT_OUT_OF_MEMORY:
        return status, reason, code
    return status, _line(reason, terminated.get("message")), number


def container_fault(pod: Json) -> str | None:
    """Why one of the pod's containers can never start, such as its image; None where they may."""
    for name, state in _container_states(pod).items():
        refused = state.get("waiting") or state.get("terminated") or {}
        if refused.get("reason") in FATAL_WAITING_REASONS | NEVER_STARTED_REASONS:
            return _line(container_label(pod, name), refused["reason"], refused.get("message"))
    return None


def unavailable_reason(pod: Json, pending_seconds: float) -> str | None:
    """Why the tenant cannot run, in the cluster's words; None if nothing is wrong or it may still start.

    `pending_seconds` is the time since the pod was created.
    """
    status = pod.get("status", {})
    if status.get("reason"):
        # UnexpectedAdmissionError, Evicted, OutOfnvidia.com/gpu, DeadlineExceeded, NodeLost, Shutdown …
        return _line(status["reason"], status.get("message"))
    conditions = conditions_of(pod)
    # Evicted, for example by an autoscaler, the scheduler or the taint manager; the pod is deleted next.
    if (disrupted := conditions.get("DisruptionTarget", {})).get("status") == "True":
        return _line(disrupted.get("reason"), disrupted.get("message"))
    if pod["metadata"].get("deletionTimestamp"):
        return "someone deleted the pod"
    if (fault := container_fault(pod)) is not None:
        return fault
    if (terminated := container_state(pod, CLIENT_CONTAINER).get("terminated")) is not None:
        message, code = last_printed_line(terminated), terminated.get("exitCode")
        return message if code == EXIT_USAGE and message else _line("its client", f"exit code {code}", message)
    placed = conditions.get("PodScheduled", {})
    is_refused = placed.get("status") == "False" and placed.get("reason") in ("Unschedulable", "SchedulingGated")
    if is_refused and pending_seconds >= UNSCHEDULABLE_GRACE_SECONDS:
        return _line(placed["reason"], placed.get("message"))
    return None


def is_running_unready(pod: Json) -> bool:
    """Whether a running pod is not ready, which may mean that its node is silent."""
    return is_running(pod) and conditions_of(pod).get("Ready", {}).get("status") == "False"
