"""One Lease per node: who measures on it now.

Whether its holder lives is judged as client-go's leader election does (tools/leaderelection): by how long the record
has been seen unchanged on our own monotonic clock. The times in it are its holder's, and compared with nothing.
"""

import contextlib
import hashlib
import sys
import threading
import time
from datetime import UTC, datetime

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json

DURATION_SECONDS = 60
RENEW_SECONDS = 15.0
# How often a Lease of another run is looked at, until it is renewed or its time has passed.
LOOK_SECONDS = 2.0
# The API server refuses a change of what somebody else has changed meanwhile.
ATTEMPTS = 3
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def node_digest(node: str) -> str:
    """Stands for a node's name where that may not be written."""
    return hashlib.sha256(node.encode()).hexdigest()[:12]


def _holder(lease: Json) -> str | None:
    return lease["spec"].get("holderIdentity") or None


class NodeLease:
    """The Lease of a node, in the namespace of its device plugin: the same one for every driver of the cluster."""

    def __init__(self, api: Api, namespace: str, node: str) -> None:
        self.api = api
        self.collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.name = f"sharebench-{node_digest(node)}"
        self.path = f"{self.collection}/{self.name}"
        self._ended = threading.Event()

    def _held_by(self, run_id: str, since: str | None = None) -> Json:
        now = datetime.now(UTC).strftime(TIME_FORMAT)
        return {
            "holderIdentity": run_id,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": since or now,
            "renewTime": now,
        }

    def acquire(self, run_id: str) -> None:
        """Make the node ours.

        The Lease of another run is waited for: its next renewal, after which NodeError is raised with the owner's
        name, or the end of its time.
        """
        free = (None, run_id)
        for attempt in range(ATTEMPTS):
            lease = self.api.find(self.path)
            if lease is not None and _holder(lease) not in free:
                if attempt:
                    # It has changed since the look before.
                    raise self._in_use(lease)
                lease = self._outlived(lease, free)
            try:
                if lease is None:
                    made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}}
                    self.api.create(self.collection, made | {"spec": self._held_by(run_id)})
                else:
                    self.api.replace(self.path, lease | {"spec": self._held_by(run_id)})
                return
            except ApiRefused as refused:
                # Somebody was faster: another run, whose name the next look shows, or a job of this one.
                is_gone = lease is not None and refused.status == 404
                if refused.status != 409 and not is_gone:
                    raise
        raise NodeError("other runs keep taking the node; wait for them to end, or stop them")

    @staticmethod
    def _since(lease: Json) -> str:
        since = str(lease["spec"].get("acquireTime", "")).partition(".")[0].replace("T", " ")
        return f"run {_holder(lease)} (since {since} UTC)"

    def _in_use(self, lease: Json) -> NodeError:
        return NodeError(f"the node is in use by {self._since(lease)}; wait for it to end, or stop it")

    def _outlived(self, lease: Json, free: tuple[str | None, ...]) -> Json | None:
        """The Lease when its holder has let its time pass, or is one of `free`; None when it is gone.

        Raises NodeError as soon as it is renewed.
        """
        held, seconds = lease["spec"], float(lease["spec"].get("leaseDurationSeconds") or DURATION_SECONDS)
        print(
            f"the node's Lease is that of {self._since(lease)}: waiting {seconds:g} s for a sign of life of it",
            file=sys.stderr,
        )
        since = looked = time.monotonic()
        while True:
            time.sleep(LOOK_SECONDS)
            found = self.api.find(self.path)
            if found is None or _holder(found) in free:
                return found
            if found["spec"] != held:
                raise self._in_use(found)
            now = time.monotonic()
            if now - looked > RENEW_SECONDS:
                # Where we could not look, the holder could not renew it.
                since = now
            if now - since >= seconds:
                return found
            looked = now

    def renew(self, run_id: str) -> None:
        """Keep the node ours. Raises NodeError when it is not any more."""
        for _ in range(ATTEMPTS):
            lease = self.api.find(self.path)
            holder = _holder(lease) if lease else None
            if lease is None or holder != run_id:
                raise NodeError(f"the node is not ours any more: its Lease is held by {holder or 'no run'}")
            held = self._held_by(run_id, lease["spec"].get("acquireTime"))
            try:
                return self.api.replace(self.path, lease | {"spec": held})
            except ApiRefused as refused:
                # A job of this run may have renewed it at the same moment.
                if refused.status != 409:
                    raise

    def keep(self, run_id: str) -> None:
        """Renew it from a thread that lives as long as this process, or until `release`."""

        def renewing() -> None:
            while not self._ended.wait(RENEW_SECONDS):
                # What went wrong shows in the next job, which renews it too. A thread that ended would let it end.
                with contextlib.suppress(Exception):
                    self.renew(run_id)

        threading.Thread(target=renewing, name="lease", daemon=True).start()

    def release(self, run_id: str) -> None:
        self._ended.set()
        lease = self.api.find(self.path)
        if lease is not None and _holder(lease) == run_id:
            self.api.delete(self.path)
