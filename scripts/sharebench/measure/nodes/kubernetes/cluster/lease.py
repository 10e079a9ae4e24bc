"""The Lease of a node, which names the run that measures on it.

As in client-go's leader election (tools/leaderelection), a holder counts as dead when its record has not changed for
the lease's duration on our own monotonic clock. The times in the record come from the holder's clock and are not used.
"""

import contextlib
import getpass
import hashlib
import socket
import sys
import threading
import time
from datetime import UTC, datetime

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Api, Json, accepting

DURATION_SECONDS = 60
RENEW_SECONDS = 15.0
# How often another run's Lease is read until it is renewed or has expired.
LEASE_POLL_SECONDS = 2.0
# The API server refuses a change based on an outdated version.
LEASE_ATTEMPTS = 3
USER_ANNOTATION = "sharebench/user"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def node_digest(node: str) -> str:
    """Digest that stands for a node's name where the name must not appear."""
    return hashlib.sha256(node.encode()).hexdigest()[:12]


def _holder(lease: Json) -> str | None:
    return lease["spec"].get("holderIdentity") or None


def _with_user(lease: Json) -> Json:
    """The Lease with an annotation that names who started this run, for others who want the node."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user id may have no name.
        user = "unknown"
    annotations = (lease["metadata"].get("annotations") or {}) | {USER_ANNOTATION: f"{user}@{socket.gethostname()}"}
    return lease | {"metadata": lease["metadata"] | {"annotations": annotations}}


class NodeLease:
    """The Lease of a node. Where drivers have it in different namespaces, the saved state keeps them apart."""

    def __init__(self, api: Api, namespace: str, node: str) -> None:
        self.api = api
        self.collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.name = f"sharebench-{node_digest(node)}"
        self.path = f"{self.collection}/{self.name}"
        self._ended = threading.Event()

    def _spec(self, run_id: str, since: str | None = None) -> Json:
        now = datetime.now(UTC).strftime(TIME_FORMAT)
        return {
            "holderIdentity": run_id,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": since or now,
            "renewTime": now,
        }

    def acquire(self, run_id: str) -> None:
        """Take the Lease for a run.

        If another run holds it, wait until it expires. Raises NodeError with the holder's name if it is renewed.
        """
        free_or_ours = (None, run_id)
        for attempt in range(LEASE_ATTEMPTS):
            lease = self.api.find(self.path)
            if lease is not None and _holder(lease) not in free_or_ours:
                if attempt:
                    # The holder took the Lease after the previous attempt.
                    raise self._in_use_error(lease)
                lease = self._await_expiry(lease, free_or_ours)
            # Another run was faster, whose name the next attempt finds, or a job of this run.
            with accepting(409, *([] if lease is None else [404])):
                if lease is None:
                    base = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}}
                    self.api.create(self.collection, _with_user(base) | {"spec": self._spec(run_id)})
                else:
                    self.api.replace(self.path, _with_user(lease) | {"spec": self._spec(run_id)})
                return
        raise NodeError("other runs keep taking the node; wait for them to end, or stop them")

    def holder(self) -> str | None:
        """The run that holds it, for messages; None if no run does. Raises NodeError."""
        lease = self.api.find(self.path)
        return self._describe_holder(lease) if lease is not None and _holder(lease) else None

    @staticmethod
    def _describe_holder(lease: Json) -> str:
        since = str(lease["spec"].get("acquireTime", "")).partition(".")[0].replace("T", " ")
        user = (lease["metadata"].get("annotations") or {}).get(USER_ANNOTATION)
        return f"run {_holder(lease)} ({f'of {user}, ' if user else ''}since {since} UTC)"

    def _in_use_error(self, lease: Json) -> NodeError:
        return NodeError(f"the node is in use by {self._describe_holder(lease)}; wait for it to end, or stop it")

    def _await_expiry(self, lease: Json, holders: tuple[str | None, ...]) -> Json | None:
        """Wait until the Lease has expired or its holder is one of `holders`; returns it, or None if it was deleted.

        Raises NodeError as soon as it is renewed.
        """
        spec, seconds = lease["spec"], float(lease["spec"].get("leaseDurationSeconds") or DURATION_SECONDS)
        print(
            f"the node's Lease is held by {self._describe_holder(lease)}: waiting {seconds:g} s for a sign of life",
            file=sys.stderr,
        )
        unchanged_since = last_read = time.monotonic()
        while True:
            time.sleep(LEASE_POLL_SECONDS)
            current = self.api.find(self.path)
            if current is None or _holder(current) in holders:
                return current
            if current["spec"] != spec:
                raise self._in_use_error(current)
            now = time.monotonic()
            if now - last_read > RENEW_SECONDS:
                # While we could not reach the API server, the holder could not renew either.
                unchanged_since = now
            if now - unchanged_since >= seconds:
                return current
            last_read = now

    def renew(self, run_id: str) -> None:
        """Renew the Lease. Raises NodeError if this run does not hold it any more."""
        for _ in range(LEASE_ATTEMPTS):
            lease = self.api.find(self.path)
            holder = _holder(lease) if lease else None
            if lease is None or holder != run_id:
                raise NodeError(f"the node is not ours any more: its Lease is held by {holder or 'no run'}")
            spec = self._spec(run_id, lease["spec"].get("acquireTime"))
            # A job of this run may have renewed it at the same moment.
            with accepting(409):
                return self.api.replace(self.path, lease | {"spec": spec})

    def keep_renewing(self, run_id: str) -> None:
        """Renew the Lease from a thread until `release` or the end of this process."""

        def renew_until_release() -> None:
            while not self._ended.wait(RENEW_SECONDS):
                # An error shows in the next job, which renews too. If this thread ended, the Lease would expire.
                with contextlib.suppress(Exception):
                    self.renew(run_id)

        threading.Thread(target=renew_until_release, name="lease", daemon=True).start()

    def release(self, run_id: str) -> None:
        self._ended.set()
        lease = self.api.find(self.path)
        if lease is not None and _holder(lease) == run_id:
            self.api.delete(self.path)
