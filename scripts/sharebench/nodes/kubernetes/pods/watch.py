"""The latest status of every pod of a cell."""

import contextlib
import threading
import time

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Api, Backoff, Json


def wait_until_gone(api: Api, collection: str, selector: str, seconds: float) -> None:
    """Wait until no pod has these labels. Raises NodeError after about `seconds`, and what `get` raises."""
    from urllib3.exceptions import HTTPError

    backoff = Backoff(seconds)
    while True:
        found = api.get(collection, labelSelector=selector)
        left = {pod["metadata"]["name"] for pod in found["items"]}
        if not left:
            return
        if backoff.is_over:
            raise NodeError(f"{len(left)} of our pods did not go within {seconds:g} s")
        # What ends the watch is looked at by the next list.
        with contextlib.suppress(HTTPError, OSError, ValueError):
            for event in api.watch(collection, found["metadata"]["resourceVersion"], labelSelector=selector):
                if event["type"] == "ERROR":
                    break
                if event["type"] == "DELETED":
                    left.discard(event["object"]["metadata"]["name"])
                if not left:
                    return
        backoff.pause()


class Watcher:
    """Keeps the latest status of every pod of a cell, from a thread; the API server may be away for a minute."""

    def __init__(self, api: Api, collection: str, selector: str) -> None:
        self.api, self.collection, self.selector = api, collection, selector
        self.pods: dict[str, Json] = {}
        self.has_looked = False
        """Whether `pods` is what there is, even when it is empty."""
        self.failure: NodeError | None = None
        self.changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """Watch no more; the thread is left to its connection."""
        self._is_over = True

    def _set(self, pods: dict[str, Json]) -> None:
        with self.changed:
            self.pods, self.has_looked = pods, True
            self.changed.notify_all()

    def _fail(self, failure: NodeError) -> None:
        with self.changed:
            self.failure = failure
            self.changed.notify_all()

    def _follow(self) -> None:
        found = self.api.get(self.collection, labelSelector=self.selector)
        self._set({pod["metadata"]["name"]: pod for pod in found["items"]})
        version = found["metadata"]["resourceVersion"]
        for event in self.api.watch(self.collection, version, labelSelector=self.selector):
            if self._is_over:
                return
            if event["type"] == "ERROR":
                # The version is too old: list again.
                return
            name = event["object"]["metadata"].get("name")
            rest = {key: pod for key, pod in self.pods.items() if key != name}
            self._set(rest if event["type"] == "DELETED" else rest | {name: event["object"]})

    def _run(self) -> None:
        from urllib3.exceptions import HTTPError

        backoff = Backoff()
        while not self._is_over:
            began = time.monotonic()
            try:
                with contextlib.suppress(HTTPError, OSError, ValueError):
                    # A server that stays away is given up by the list that follows: that one has the patience.
                    self._follow()
            except NodeError as failure:
                return self._fail(failure)
            except Exception as failure:
                # A thread that ended unseen would leave the pods as they were seen last.
                return self._fail(NodeError(f"the pods cannot be watched: {type(failure).__name__}: {failure}"))
            if time.monotonic() - began > backoff.pause_seconds:
                # It has worked for a while.
                backoff = Backoff()
            backoff.pause()
