"""Evidence that tenants share the devices that their claims requested."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sharebench.measure.nodes.contract import Evidence, Grant, item
from sharebench.measure.nodes.kubernetes.access.base import view_of
from sharebench.measure.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.measure.nodes.kubernetes.access.dra import held, nvidia
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.model.strategy import Strategy
from tenant.contract import TenantReport, device_digest


def _with_digests(configs: list[Json], devices: Sequence[DraDevice]) -> Any:
    """The configs with digests in place of the devices' UUIDs."""
    text = json.dumps(configs, sort_keys=True)
    for uuid in filter(None, map(nvidia.device_uuid, devices)):
        text = text.replace(uuid, device_digest(uuid))
    return json.loads(text)


def _group_alike(values: Sequence[Any]) -> list[list[int]]:
    """Indices of the tenants with equal values, by value."""
    texts = [json.dumps(value, sort_keys=True) for value in values]
    return [[index for index, each in enumerate(texts) if each == text] for text in dict.fromkeys(texts)]


def claim_evidence(
    devices: Sequence[DraDevice],
    wanted: Sequence[Json],
    claims: Sequence[Json],
    daemons: Sequence[Json],
    strategy: Strategy,
    grants: Sequence[Grant],
) -> Evidence:
    """Evidence from the API server: `wanted` are the claims as created, `claims` those that exist."""
    evidence = [item("claims", len(wanted), len(claims), "API server")]
    if len(claims) != len(wanted):
        return evidence
    # A claim's name in the cluster ends in its name within the cell, so both lists have the same order.
    wanted, claims = (sorted(several, key=lambda claim: str(claim["metadata"]["name"])) for several in (wanted, claims))
    own = strategy.claim_per == "tenant"
    tenant_counts = Counter(dra_claims.claim_name(strategy, each.index if own else each.group) for each in grants)
    for wanted_claim, claim in zip(wanted, claims, strict=True):
        reserved = len(held.tenant_consumers(claim))
        evidence.append(item("reservedFor", tenant_counts[wanted_claim["metadata"]["name"]], reserved, "API server"))
    specs = [claim["spec"]["devices"] for claim in wanted]
    expected = [
        {"requests": config["requests"], "parameters": config["opaque"]["parameters"]}
        for spec in specs
        for config in spec.get("config", ())
    ]
    observed = [config for claim in claims for config in claims_api.opaque_configs(claim)]
    expected, observed = _with_digests(expected, devices), _with_digests(observed, devices)
    evidence.append(item("opaque configuration in the allocation", expected, observed, "API server"))
    allocated = [pair for claim in claims for pair in claims_api.allocated_devices([claim], devices).items()]
    names = [request["name"] for spec in specs for request in spec["requests"]]
    in_slices = sorted(request for request, group in allocated if None not in group)
    evidence.append(item("requests with a device of the node's slices", sorted(names), in_slices, "API server"))
    if strategy.mechanism[0] == "mig" and len(names) > 1:
        parents = {nvidia.parent_uuid(device) for _, group in allocated for device in group if device is not None}
        evidence.append(item("GPUs of the allocated instances", 1, len(parents), "API server"))
    if strategy.mechanism[-1] == "mps":
        ready = sum(each.get("status", {}).get("readyReplicas", 0) for each in daemons)
        evidence.append(item("MPS control daemons that are ready", len(names), ready, "API server"))
    return evidence


def _tenant_devices(
    claims: list[Json], devices: Sequence[DraDevice], strategy: Strategy, grant: Grant
) -> list[DraDevice]:
    """The devices of a tenant; empty if they are not known."""
    if strategy.claim_per == "tenant":
        # Their names begin with those of the pods, whose order is that of the tenants.
        claims = sorted(claims, key=lambda each: str(each["metadata"]["name"]))[grant.index : grant.index + 1]
    allocated = claims_api.allocated_devices(claims, devices).get(dra_claims.request_name(strategy, grant.group), [])
    return [device for device in allocated if device is not None]


def tenant_evidence(
    claims: list[Json],
    devices: Sequence[DraDevice],
    strategy: Strategy,
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
) -> Evidence:
    """Evidence from the tenants: they see the device of their claim and no other, with its id where they use CUDA."""
    evidence: Evidence = []
    seen_devices = []
    for grant, record in zip(grants, records, strict=True):
        view, source = view_of(record), f"tenant {grant.index}"
        given = _tenant_devices(claims, devices, strategy, grant)
        if not given:
            continue
        if files := sorted(name for device in given for name in nvidia.device_files(device)):
            whole = sorted(node for node in view.get("nodes", ()) if "/" not in node)
            evidence.append(item("GPUs by device files", files, whole, source))
        shown = view.get("variables") or {}
        variables = {name: shown.get(name) for name in nvidia.CDI_VARIABLES}
        evidence.append(item("variables of the CDI device", nvidia.CDI_VARIABLES, variables, source))
        is_mps = strategy.mechanism[-1] == "mps"
        evidence.append(item("has the pipe of an MPS daemon", is_mps, view.get("mps_pipe") is not None, source))
        digests = [device_digest(uuid) for device in given if (uuid := nvidia.device_uuid(device)) is not None]
        if (seen := view.get("device")) is not None and digests:
            evidence.append(item("device", " or ".join(digests), seen, source, seen in digests))
        seen_devices.append([view.get("device"), view.get("nodes")])
    # An instance created for the claim has no UUID in the slice, but the tenants that share it still see the same one.
    groups = _group_alike([grant.group for grant in grants])
    evidence.append(item("tenants by the device that they have", groups, _group_alike(seen_devices), "tenants"))
    return evidence
