"""Evidence that a strategy was active on a GPU: from NVML, the MPS daemons, and the tenants themselves."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import Evidence, Grant, is_external_server, item
from sharebench.measure.nodes.host.mps import MpsDaemon, variables_item
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.measure.nodes.host.tools import TOOLS
from sharebench.measure.nodes.limits import CLIENT_VARIABLES, limits_evidence
from sharebench.model.records.types import EvidenceItem
from sharebench.model.strategy import GREEN_CONTEXTS, Strategy, TenantLimits
from tenant.contract import DeviceView, ProcessView, TenantReport, device_digest
from tenant.contract.gpu import GpuProcess

# MPS writes a share with one decimal.
PERCENT_TOLERANCE = 0.1
UNIT_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Target:
    """The device of a group of tenants: the whole GPU or one MIG instance."""

    uuid: str
    sm_count: int | None
    memory_bytes: int | None


def collect_evidence(
    strategy: Strategy,
    targets: Sequence[Target],
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
    occupants: Iterable[Occupant],
    daemons: Sequence[MpsDaemon],
    sampled: Mapping[int, GpuProcess] = MappingProxyType({}),
) -> Evidence:
    """The record's `evidence`: one item per fact. Process ids are compared, but not recorded.

    A program that has exited is not on the GPU any more; `sampled` has the processes that were.
    """
    replicas, shared = len(grants), strategy.shared_limits(len(grants))
    # An external server is not on this GPU.
    pairs = [pair for pair in zip(grants, records, strict=True) if not is_external_server(pair[1])]
    grants, records = [grant for grant, _ in pairs], [record for _, record in pairs]
    families = [_tenant_pids(record, sampled) for record in records]
    exited = [family for record, family in zip(records, families, strict=True) if record.get("measured_by") == "exit"]
    ours = {pid for family in exited for pid in family}
    kinds: dict[int | None, str] = {pid: process["kind"] for pid, process in sampled.items() if pid in ours}
    were_clients: set[int | None] | None = {pid for pid, kind in kinds.items() if kind == "mps"}
    kinds |= {occupant.pid: occupant.kind for occupant in occupants}
    # A program that ended before it was sampled gives no evidence.
    if are_unseen := any(kinds.keys().isdisjoint(family) for family in exited):
        were_clients = None
    evidence: Evidence = []
    tool = TOOLS.get(strategy.mechanism[-1])
    for grant, record, family in zip(grants, records, families, strict=True):
        if tool is not None:
            evidence += tool.evidence(grant, [pid for pid in family if pid is not None])
        if "measured_by" not in record:
            own, target, view = strategy.tenant_limits(replicas, grant.index), targets[grant.group], record["view"]
            if tool is not None:
                evidence += tool.view_evidence(own, target.memory_bytes, view, f"tenant {grant.index}")
                # A tool delays launches and hides no SMs.
                own = replace(own, thread_percent=None)
            evidence += _tenant_evidence(target, own, grant, view)
        elif (outside := record.get("outside")) is not None:
            on_gpu = [pid for pid in family if pid in kinds]
            evidence += _program_evidence(targets[grant.group], grant, outside, on_gpu, family in exited)
    if strategy.mechanism == (GREEN_CONTEXTS,):
        evidence.append(_disjoint_evidence([record["view"] for record in records]))
    observed = sorted(_context_kinds(family, kinds) for family in set(families))
    under_mps = strategy.mechanism[-1] == "mps"
    processes = 1 if strategy.is_one_process else len(grants)
    expected = ["mps" if under_mps else "compute"] * processes
    evidence.append(item("kinds of the tenants' contexts", expected, None if are_unseen else observed, "node"))
    if under_mps:
        for group, target in enumerate(targets):
            members = [pair for pair in zip(grants, families, strict=True) if pair[0].group == group]
            daemon = daemons[group] if group < len(daemons) else None
            evidence += _daemon_evidence(daemon, target, shared, [family for _, family in members], were_clients)
            if daemon is not None and strategy.is_unequal:
                evidence += _client_evidence(daemon, members)
    else:
        evidence.append(item("our MPS daemons", 0, len(daemons), "node"))
    return evidence


def _tenant_pids(record: TenantReport, sampled: Mapping[int, GpuProcess]) -> tuple[int | None, ...]:
    """The tenant's processes; for a user program with those that it started, for an exited one from the samples."""
    if "measured_by" not in record:
        return (None if record["view"] is None else record["view"]["pid"],)
    outside = record.get("outside")
    pids = set() if outside is None else {*outside["pids"]}
    if record["measured_by"] != "exit":
        return tuple(pids)
    return (*pids, *(pid for pid, process in sampled.items() if pid not in pids and pids & {*process["ancestors"]}))


def _context_kinds(family: Iterable[int | None], kinds: Mapping[int | None, str]) -> str:
    """Kinds of the contexts of a tenant's processes, joined by `+`."""
    return "+".join(sorted({kinds[pid] for pid in family if pid in kinds})) or "not on the GPU"


def _program_evidence(
    target: Target, grant: Grant, outside: ProcessView, on_gpu: Sequence[int | None], has_exited: bool
) -> Evidence:
    """The device in a user program's environment, and the names of its processes on the GPU.

    A server may compute in a process that another of its processes has started.
    """
    visible = outside["visible_devices"]
    observed = None if visible is None else device_digest(visible)
    # Processes without a name have started and ended since.
    named = dict(zip(outside["pids"], outside["names"], strict=True))
    names = [named.get(pid, "ended") for pid in on_gpu if pid is not None]
    computing = ", ".join(sorted(names)) or (None if has_exited else "none")
    return [
        item("device by its environment", device_digest(target.uuid), observed, "node"),
        item(f"processes of tenant {grant.index} on the GPU", "its own", computing, "node", bool(names)),
    ]


def _tenant_evidence(target: Target, limits: TenantLimits, grant: Grant, view: DeviceView | None) -> Evidence:
    source = f"tenant {grant.index}"
    evidence = [item("device", device_digest(target.uuid), view and view["device"], source)]
    if grant.sm_count is not None:
        return evidence + _part_evidence(grant.sm_count, view, source)
    return evidence + limits_evidence(limits, target.sm_count, target.memory_bytes, view, source)


def _part_evidence(most: int, view: DeviceView | None, source: str) -> Evidence:
    """The size of a tenant's green context, which is rounded down, and the number of SMs that its kernels ran on."""
    sms, ids = view and view["sm_count"], view and view.get("sm_ids")
    fits = sms is not None and 0 < sms <= most
    return [
        item("SMs of the green context", f"at most {most}", sms, source, fits),
        item("SMs that its kernels ran on", sms, None if ids is None else len(ids), source),
    ]


def _disjoint_evidence(views: Sequence[DeviceView | None]) -> EvidenceItem:
    ids = [view.get("sm_ids") for view in views if view is not None]
    seen = [number for each in ids if each is not None for number in each]
    is_known = len(seen) > 0 and None not in ids and len(ids) == len(views)
    return item("SMs of more than one tenant", 0, len(seen) - len(set(seen)) if is_known else None, "node")


def _daemon_evidence(
    daemon: MpsDaemon | None,
    target: Target,
    limits: TenantLimits,
    members: Sequence[Sequence[int | None]],
    were_clients: Collection[int | None] | None,
) -> Evidence:
    """Evidence from a daemon; `were_clients` are exited processes (None where some are not known)."""
    server = daemon.server() if daemon is not None else None
    if daemon is None or server is None:
        return [item("MPS server", "running", "none", "node")]
    clients = {*daemon.clients(server), *(pid for family in members for pid in family if pid in (were_clients or ()))}
    # A tenant with several processes may have several clients.
    counts = {"tenants": sum(not clients.isdisjoint(family) for family in members)}
    counts["others"] = len(clients.difference(*members))
    expected = {"tenants": len(members), "others": 0}
    evidence = [item("clients of the MPS server", expected, None if were_clients is None else counts, "node")]
    threads = 100.0 if limits.thread_percent is None else limits.thread_percent
    observed = daemon.thread_percent(server)
    close = abs(observed - threads) <= PERCENT_TOLERANCE
    evidence.append(item("share of the SMs by the MPS server, percent", round(threads, 2), observed, "node", close))
    if (memory_bytes := limits.memory_bytes(target.memory_bytes)) is not None:
        limit = memory_bytes // MEBIBYTE * MEBIBYTE
        reported = daemon.memory_limit(server)
        text = f"{limit // MEBIBYTE}M"
        evidence.append(item("memory limit by the MPS server", text, reported, "node", _matches_limit(reported, limit)))
    return evidence


def _client_evidence(daemon: MpsDaemon, members: Sequence[tuple[Grant, Sequence[int | None]]]) -> Evidence:
    """The limits that each tenant was started with; the server cannot be asked for priorities."""
    server = daemon.server()
    clients = [] if server is None else daemon.clients(server)
    return [
        variables_item("MPS variables of", grant, CLIENT_VARIABLES, [pid for pid in clients if pid in family])
        for grant, family in members
    ]


def _matches_limit(reported: str, limit_bytes: int) -> bool:
    """Whether MPS reports this limit; MPS rounds down to whole units (46G for 47923M)."""
    unit = UNIT_BYTES.get(reported[-1:])
    return unit is not None and reported[:-1].isdecimal() and int(reported[:-1]) == limit_bytes // unit
