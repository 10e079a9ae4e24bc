"""A short description of a cluster, for the report of a failed test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cluster.harness import Cluster

EVENTS = 25
LOG_LINES = 5
SECONDS = 5.0


def described(cluster: Cluster) -> str:
    """Node, pods, last events and the ends of the components' logs, or the reason why they cannot be read."""
    parts: list[Callable[[Cluster], Iterator[str]]] = [_node, _pods, _events, _logs]
    lines: list[str] = []
    for part in parts:
        try:
            lines += part(cluster)
        except Exception as error:  # an error here must not hide the test's failure
            lines.append(f"{part.__name__.strip('_')} cannot be read: {type(error).__name__}")
    return "\n".join(lines)


def _node(cluster: Cluster) -> Iterator[str]:
    node = cluster.core.list_node(_request_timeout=SECONDS).items[0]
    yield f"allocatable: {node.status.allocatable}"
    yield f"labels: { {key: value for key, value in node.metadata.labels.items() if 'nvidia' in key} }"
    yield f"taints: {[taint.key for taint in node.spec.taints or []]}"
    yield f"conditions: { {each.type: each.status for each in node.status.conditions} }"


def _pods(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.core.list_pod_for_all_namespaces(_request_timeout=SECONDS).items:
        states = [_state(status) for status in pod.status.container_statuses or []]
        ends = " ending" if pod.metadata.deletion_timestamp else ""
        yield f"pod {pod.metadata.namespace}/{pod.metadata.name}: {pod.status.phase}{ends} {states}"


def _state(status: Any) -> str:
    state = status.state.waiting or status.state.terminated
    return f"{status.name} {state.reason if state else 'runs'}, {status.restart_count} restarts"


def _events(cluster: Cluster) -> Iterator[str]:
    events = cluster.core.list_event_for_all_namespaces(_request_timeout=SECONDS).items
    for event in sorted(events, key=lambda event: event.metadata.creation_timestamp)[-EVENTS:]:
        what = f"{event.involved_object.kind} {event.involved_object.name}"
        yield f"event {event.metadata.creation_timestamp:%H:%M:%S} {what}: {event.reason}: {event.message}"


def _logs(cluster: Cluster) -> Iterator[str]:
    for file in sorted((cluster.instance.folder / "log").glob("*.log")):
        for line in file.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            yield f"{file.stem}: {line[:300]}"
