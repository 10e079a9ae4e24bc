"""One Lease per node: who measures on it now."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from datetime import UTC, datetime
from typing import Any

from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes.api import Api, ApiRefused, Json

DURATION_SECONDS = 60
RENEW_SECONDS = 15.0
# The API server refuses a change of what somebody else has changed meanwhile.
ATTEMPTS = 3
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def node_digest(node: str) -> str:
    """Stands for a node's name where that may not be written."""
    return hashlib.sha256(node.encode()).hexdigest()[:12]


def _now() -> datetime:
    return datetime.now(UTC)


def is_live(lease: Json, now: datetime) -> bool:
    """Whether its holder has renewed it in time, by our clock."""
    spec = lease["spec"]
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return False
    renewed = datetime.strptime(spec["renewTime"], TIME_FORMAT).replace(tzinfo=UTC)
    return (now - renewed).total_seconds() < float(spec["leaseDurationSeconds"])


class NodeLease:
    """The Lease of a node, in the namespace of its device plugin: the same one for every driver of the cluster."""

    def __init__(self, api: Api, namespace: str, node: str) -> None:
        self.api = api
        self.collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.name = f"sharebench-{node_digest(node)}"
        self.path = f"{self.collection}/{self.name}"
        self._ended = threading.Event()

    def _held_by(self, run_id: str, since: str | None = None) -> Json:
        now = _now().strftime(TIME_FORMAT)
        return {
            "holderIdentity": run_id,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": since or now,
            "renewTime": now,
        }

    def acquire(self, run_id: str, dead: str | None) -> None:
        """Make the node ours; `dead` is a run that is known to have ended and may still be in it.

        Raises NodeError with the owner's name when another run holds it.
        """
        for _ in range(ATTEMPTS):
            lease = self.api.find(self.path)
            if lease is not None:
                self._refuse_owner(lease, run_id, dead)
            try:
                if lease is None:
                    body: dict[str, Any] = {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {"name": self.name},
                        "spec": self._held_by(run_id),
                    }
                    self.api.create(self.collection, body)
                else:
                    self.api.replace(self.path, lease | {"spec": self._held_by(run_id)})
            except ApiRefused as refused:
                is_gone = lease is not None and refused.status == 404
                if refused.status != 409 and not is_gone:
                    raise
                # Somebody was faster: another run, whose name the next look tells, or a job of this one.
                continue
            return
        raise NodeError("other runs keep taking the node; wait for them to end, or stop them")

    @staticmethod
    def _refuse_owner(lease: Json, run_id: str, dead: str | None) -> None:
        """Raise NodeError where another run than these holds it and lives."""
        holder = lease["spec"].get("holderIdentity")
        if holder not in (run_id, dead) and is_live(lease, _now()):
            since = str(lease["spec"].get("acquireTime", "")).partition(".")[0].replace("T", " ")
            raise NodeError(f"the node is in use by run {holder} (since {since} UTC); wait for it to end, or stop it")

    def renew(self, run_id: str) -> None:
        """Keep the node ours. Raises NodeError when it is not any more."""
        for _ in range(ATTEMPTS):
            lease = self.api.find(self.path)
            holder = lease["spec"].get("holderIdentity") if lease else None
            if lease is None or holder != run_id:
                raise NodeError(f"the node is not ours any more: its Lease is held by {holder or 'nobody'}")
            held = self._held_by(run_id, lease["spec"].get("acquireTime"))
            try:
                self.api.replace(self.path, lease | {"spec": held})
            except ApiRefused as refused:
                if refused.status != 409:
                    raise
                # A job of this run has renewed it at the same moment.
                continue
            return

    def keep(self, run_id: str) -> None:
        """Renew it from a thread that lives as long as this process, or until `release`."""

        def renewing() -> None:
            while not self._ended.wait(RENEW_SECONDS):
                # What went wrong shows in the next job, which renews it too.
                with contextlib.suppress(NodeError):
                    self.renew(run_id)

        threading.Thread(target=renewing, name="lease", daemon=True).start()

    def release(self, run_id: str) -> None:
        """Remove it, if it is ours."""
        self._ended.set()
        lease = self.api.find(self.path)
        if lease is not None and lease["spec"].get("holderIdentity") == run_id:
            self.api.delete(self.path)
