"""Watching the status of a cell's pods, and removing objects of a cell."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Api, Backoff, Json, accepting
from sharebench.measure.nodes.kubernetes.cluster.restricted import GRACE_SECONDS

Item = TypeVar("Item")
Result = TypeVar("Result")
# A kubelet that lost the API server retries after pauses of up to a minute, and ends no pod until then.
POD_REMOVAL_SECONDS = 120.0
POLL_SECONDS = 0.1


class PodWatcher:
    """Keeps the latest status of a cell's pods up to date from a thread; the API server may be away for a minute."""

    def __init__(self, api: Api, collection: str, selector: str) -> None:
        self.api, self.collection, self.selector = api, collection, selector
        self.pods: dict[str, Json] = {}
        self.has_listed = False
        """Whether `pods` has been filled, even if it is empty."""
        self.failure: NodeError | None = None
        self.changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop watching; the thread ends with its connection."""
        self._is_over = True

    def _set(self, pods: dict[str, Json]) -> None:
        with self.changed:
            self.pods, self.has_listed = pods, True
            self.changed.notify_all()

    def _fail(self, failure: NodeError) -> None:
        with self.changed:
            self.failure = failure
            self.changed.notify_all()

    def _list_and_watch(self) -> None:
        listed = self.api.get(self.collection, labelSelector=self.selector)
        self._set({pod["metadata"]["name"]: pod for pod in listed["items"]})
        version = listed["metadata"]["resourceVersion"]
        for event in self.api.watch(self.collection, version, labelSelector=self.selector):
            if self._is_over:
                return
            if event["type"] == "ERROR":
                # The version is too old: list again.
                return
            name = event["object"]["metadata"].get("name")
            others = {key: pod for key, pod in self.pods.items() if key != name}
            self._set(others if event["type"] == "DELETED" else others | {name: event["object"]})

    def _run(self) -> None:
        from urllib3.exceptions import HTTPError

        backoff = Backoff()
        while not self._is_over:
            began = time.monotonic()
            try:
                with contextlib.suppress(HTTPError, OSError, ValueError):
                    # The list of the next turn retries, and gives up an unreachable server.
                    self._list_and_watch()
            except NodeError as failure:
                return self._fail(failure)
            except Exception as failure:
                # If the thread ended silently, the pods would stay as they were seen last.
                return self._fail(NodeError(f"the pods cannot be watched: {type(failure).__name__}: {failure}"))
            if time.monotonic() - began > backoff.pause_seconds:
                # The watch has worked for a while.
                backoff = Backoff()
            backoff.pause()


def call_for_each(call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results of a call for each element, all made at the same time."""
    if not items:
        return []
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(call, items))


def sweep(api: Api, namespace: str, selector: str) -> None:
    """Delete the ConfigMaps and pods that match and wait until the pods are gone. Raises NodeError."""
    core = f"/api/v1/namespaces/{namespace}"
    with accepting(404):
        for each in api.get(f"{core}/configmaps", labelSelector=selector)["items"]:
            api.delete(f"{core}/configmaps/{each['metadata']['name']}", propagationPolicy="Background")
        # The garbage collector would delete the pods too, but later.
        names = [pod["metadata"]["name"] for pod in api.get(f"{core}/pods", labelSelector=selector)["items"]]
        call_for_each(lambda name: api.delete(f"{core}/pods/{name}", grace_seconds=GRACE_SECONDS), names)
        deadline = time.monotonic() + POD_REMOVAL_SECONDS
        while left := len(api.get(f"{core}/pods", labelSelector=selector)["items"]):
            if time.monotonic() > deadline:
                raise NodeError(f"{left} of our pods did not go within {POD_REMOVAL_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
