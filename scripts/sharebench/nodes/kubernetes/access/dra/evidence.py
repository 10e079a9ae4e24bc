"""What proves that tenants share what their claims asked for."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import Evidence, Grant, item
from sharebench.nodes.kubernetes.access.base import view_of
from sharebench.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.nodes.kubernetes.access.dra import held, nvidia
from sharebench.nodes.kubernetes.cluster import claims_api
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import DraDevice
from tenant.contract import TenantReport, device_digest


def _with_digests(configs: list[Json], devices: Sequence[DraDevice]) -> Any:
    """The configs without ids of devices: their digests instead."""
    text = json.dumps(configs, sort_keys=True)
    for uuid in filter(None, map(nvidia.device_uuid, devices)):
        text = text.replace(uuid, device_digest(uuid))
    return json.loads(text)


def _group_alike(marks: Sequence[Any]) -> list[list[int]]:
    """Which tenants have the same mark, by index."""
    keys = [json.dumps(mark, sort_keys=True) for mark in marks]
    return [[index for index, each in enumerate(keys) if each == key] for key in dict.fromkeys(keys)]


def claim_evidence(
    devices: Sequence[DraDevice],
    wanted: Sequence[Json],
    claims: Sequence[Json],
    daemons: Sequence[Json],
    strategy: Strategy,
    grants: Sequence[Grant],
) -> Evidence:
    """What the API server shows: `wanted` are the claims that were made, `claims` are those that are there."""
    evidence = [item("claims", len(wanted), len(claims), "API server")]
    if len(claims) != len(wanted):
        return evidence
    # Names within the cell are the ends of those in the cluster, so that both have one order.
    wanted, claims = (sorted(several, key=lambda each: str(each["metadata"]["name"])) for several in (wanted, claims))
    holders = Counter(dra_claims.claim_name(strategy, grant.group) for grant in grants)
    for asked, found in zip(wanted, claims, strict=True):
        reserved = len(held.tenant_consumers(found))
        evidence.append(item("reservedFor", holders[asked["metadata"]["name"]], reserved, "API server"))
    requested = [each["spec"]["devices"] for each in wanted]
    expected = [
        {"requests": each["requests"], "parameters": each["opaque"]["parameters"]}
        for asked_devices in requested
        for each in asked_devices.get("config", ())
    ]
    observed = [config for found in claims for config in claims_api.opaque_configs(found)]
    expected, observed = _with_digests(expected, devices), _with_digests(observed, devices)
    evidence.append(item("opaque configuration in the allocation", expected, observed, "API server"))
    given = [pair for found in claims for pair in claims_api.allocated_devices([found], devices).items()]
    names = [each["name"] for asked_devices in requested for each in asked_devices["requests"]]
    in_slices = sorted(request for request, part in given if None not in part)
    evidence.append(item("requests with a device of the node's slices", sorted(names), in_slices, "API server"))
    if strategy.mechanisms[0] == "mig" and len(names) > 1:
        parents = {nvidia.parent_uuid(device) for _, part in given for device in part if device is not None}
        evidence.append(item("GPUs of the allocated instances", 1, len(parents), "API server"))
    if strategy.mechanisms[-1] == "mps":
        ready = sum(each.get("status", {}).get("readyReplicas", 0) for each in daemons)
        evidence.append(item("MPS control daemons that are ready", len(names), ready, "API server"))
    return evidence


def _devices_of_group(
    claims: Sequence[Json], devices: Sequence[DraDevice], strategy: Strategy, group: int
) -> list[DraDevice]:
    """The devices of a group of tenants; empty where they are not known."""
    if strategy.claim_per == "tenant":
        # The names of pods begin them.
        claims = sorted(claims, key=lambda each: str(each["metadata"]["name"]))[group : group + 1]
    found = claims_api.allocated_devices(claims, devices).get(dra_claims.request_name(strategy, group), [])
    return [device for device in found if device is not None]


def tenant_evidence(
    claims: Sequence[Json],
    devices: Sequence[DraDevice],
    strategy: Strategy,
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
) -> Evidence:
    """What the tenants saw: the device of their claim and no other, by its id where they asked CUDA."""
    evidence: Evidence = []
    marks = []
    for grant, record in zip(grants, records, strict=True):
        view, given, source = (
            view_of(record),
            _devices_of_group(claims, devices, strategy, grant.group),
            f"tenant {grant.index}",
        )
        if not given:
            continue
        if files := sorted(name for device in given for name in nvidia.device_files(device)):
            whole = sorted(node for node in view.get("nodes", ()) if "/" not in node)
            evidence.append(item("GPUs by device files", files, whole, source))
        shown = view.get("variables") or {}
        variables = {name: shown.get(name) for name in nvidia.CDI_VARIABLES}
        evidence.append(item("variables of the CDI device", nvidia.CDI_VARIABLES, variables, source))
        is_mps = strategy.mechanisms[-1] == "mps"
        evidence.append(item("has the pipe of an MPS daemon", is_mps, view.get("mps_pipe") is not None, source))
        known = [device_digest(uuid) for device in given if (uuid := nvidia.device_uuid(device)) is not None]
        if (seen := view.get("device")) is not None and known:
            evidence.append(item("device", " or ".join(known), seen, source, seen in known))
        marks.append([view.get("device"), view.get("nodes")])
    # An instance that was made for the claim has no id in the slice: who shares one is known all the same.
    groups = _group_alike([grant.group for grant in grants])
    evidence.append(item("tenants by the device that they have", groups, _group_alike(marks), "tenants"))
    return evidence
