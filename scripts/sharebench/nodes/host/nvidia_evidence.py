"""What proves that a strategy was in force on a GPU: seen by NVML, by the MPS daemon, and by the tenants themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sharebench.core.spec import Limits
from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import Evidence, Grant, is_external_server
from sharebench.nodes.host.nvml import MEBIBYTE, Occupant
from tenant.contract import device_digest

# MPS rounds a share of the SMs down, to whole TPCs of two SMs on the GPUs seen so far.
SM_TOLERANCE = 2
# MPS writes a share with one decimal.
PERCENT_TOLERANCE = 0.1
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Device(Protocol):
    """A GPU or MIG instance that a group of tenants shares."""

    @property
    def uuid(self) -> str:
        """Its UUID."""

    @property
    def sm_count(self) -> int:
        """Its SMs."""

    @property
    def memory_bytes(self) -> int:
        """Its memory."""


class Daemon(Protocol):
    """An MPS control daemon of ours."""

    def server(self) -> int | None:
        """Its server's process."""

    def clients(self, server: int) -> list[int]:
        """The server's clients."""

    def thread_percent(self, server: int) -> float:
        """Default share of the SMs."""

    def memory_limit(self, server: int) -> str:
        """Default memory limit as MPS writes it."""


def _item(name: str, expected: Any, observed: Any, source: str, holds: bool | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "expected": expected,
        "observed": observed,
        "holds": expected == observed if holds is None else holds,
        "source": source,
    }


def collect(
    strategy: Strategy,
    targets: Sequence[Device],
    grants: Sequence[Grant],
    records: Sequence[Mapping[str, Any]],
    occupants: Iterable[Occupant],
    daemons: Sequence[Daemon],
) -> Evidence:
    """The record's `evidence`: one item per fact. No process id is written down, only how they agree."""
    limits = strategy.limits(len(grants))
    # A server that is not ours has no place here.
    both = [pair for pair in zip(grants, records, strict=True) if not is_external_server(pair[1])]
    grants, records = [grant for grant, _ in both], [record for _, record in both]
    kinds: dict[int | None, str] = {occupant.pid: occupant.kind for occupant in occupants}
    families = [_pids(record) for record in records]
    evidence: Evidence = []
    for grant, record in both:
        if "measured_by" in record:
            evidence.append(_from_outside(targets[grant.group], record["outside"]))
        else:
            evidence += _from_inside(targets[grant.group], limits, grant, record.get("view") or {})
    # Streams are tenants of one process.
    seen = sorted(_kind(family, kinds) for family in set(families))
    under_mps = strategy.mechanisms[-1] == "mps"
    processes = 1 if strategy.mechanisms[-1] == "streams" else len(grants)
    evidence.append(
        _item("kinds of the tenants' contexts", ["mps" if under_mps else "compute"] * processes, seen, "node")
    )
    if under_mps:
        for group, target in enumerate(targets):
            members = [family for grant, family in zip(grants, families, strict=True) if grant.group == group]
            daemon = daemons[group] if group < len(daemons) else None
            evidence += _from_daemon(daemon, target, limits, members)
    else:
        evidence.append(_item("MPS daemons of ours", 0, len(daemons), "node"))
    return evidence


def _pids(record: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The tenant's processes: its own, of a user program also those that it started."""
    if "measured_by" not in record:
        return ((record.get("view") or {}).get("pid"),)
    return tuple(record["outside"]["pids"])


def _kind(family: Iterable[int | None], kinds: Mapping[int | None, str]) -> str:
    """Kind of the contexts of a tenant's processes; of several kinds all."""
    return "+".join(sorted({kinds[pid] for pid in family if pid in kinds})) or "not on the GPU"


def _from_outside(target: Device, outside: Mapping[str, Any]) -> dict[str, Any]:
    """What a user program was shown: its limits nobody but the MPS server knows."""
    visible = outside["visible_devices"]
    observed = None if visible is None else device_digest(visible)
    return _item("device by its environment", device_digest(target.uuid), observed, "node")


def _from_inside(target: Device, limits: Limits, grant: Grant, view: Mapping[str, Any]) -> Evidence:
    source = f"tenant {grant.index}"
    threads, memory = limits["thread_percent"], limits["memory_percent"]
    evidence = [_item("device", device_digest(target.uuid), view.get("device"), source)]
    sms = view.get("sm_count")
    if threads is None:
        evidence.append(_item("SMs", target.sm_count, sms, source))
    else:
        share = int(target.sm_count * threads / 100)
        fits = sms is not None and max(1, share - SM_TOLERANCE) <= sms <= max(SM_TOLERANCE, share)
        evidence.append(_item("SMs", f"at most {share} of {target.sm_count}", sms, source, fits))
    if memory is not None:
        limit = int(target.memory_bytes * memory / 100)
        free = view.get("memory_free_bytes")
        fits = free is not None and free <= limit
        evidence.append(_item("free memory in bytes", f"at most {limit}", free, source, fits))
        evidence.append(_item("allocation beyond the limit refused", True, view.get("over_limit_refused"), source))
    return evidence


def _from_daemon(
    daemon: Daemon | None, target: Device, limits: Limits, members: Sequence[Sequence[int | None]]
) -> Evidence:
    server = daemon.server() if daemon is not None else None
    if daemon is None or server is None:
        return [_item("MPS server", "running", "none", "node")]
    clients = set(daemon.clients(server))
    # A tenant of several processes may have several clients.
    found = {"tenants": sum(not clients.isdisjoint(family) for family in members)}
    found["others"] = len(clients.difference(*members))
    evidence = [_item("clients of the MPS server", {"tenants": len(members), "others": 0}, found, "node")]
    threads = 100.0 if limits["thread_percent"] is None else limits["thread_percent"]
    observed = daemon.thread_percent(server)
    close = abs(observed - threads) <= PERCENT_TOLERANCE
    evidence.append(_item("share of the SMs by the MPS server, percent", round(threads, 2), observed, "node", close))
    if (memory := limits["memory_percent"]) is not None:
        limit = int(target.memory_bytes * memory / 100) // MEBIBYTE * MEBIBYTE
        told = daemon.memory_limit(server)
        text = f"{limit // MEBIBYTE}M"
        evidence.append(_item("memory limit by the MPS server", text, told, "node", _is_limit(told, limit)))
    return evidence


def _is_limit(told: str, limit_bytes: int) -> bool:
    """Whether MPS tells this limit; it writes the largest whole unit and drops the rest (46G for 47923M)."""
    unit = UNITS.get(told[-1:])
    return unit is not None and told[:-1].isdecimal() and int(told[:-1]) == limit_bytes // unit
