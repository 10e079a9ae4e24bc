"""The GPU of a node by resource claims (DRA): a claim for each cell, which all its tenants share, or several.

Nothing is set on the node in advance: the driver sets up a claim when the first pod comes, and undoes it after the
last one.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from sharebench.core.spec import Spec, limits_of
from sharebench.core.strategies import Strategy, of_spec
from sharebench.nodes.contract import Evidence, Grant, NodeError, item
from sharebench.nodes.kubernetes.access.base import Access, GpuDescription, PodNeeds, view_of
from sharebench.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.nodes.kubernetes.access.dra import nvidia
from sharebench.nodes.kubernetes.cluster import claims_api
from sharebench.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.claims_api import Device
from sharebench.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.nodes.limits import memory_limit, probe
from tenant.contract import SHOWN_VARIABLE, TenantReport, device_digest

GONE_SECONDS = 60.0
POLL_SECONDS = 0.5
LOOK_SECONDS = 5.0
# A first prepare may fail and be tried again, as when MPS starts; nothing that passes takes longer.
RETRY_SECONDS = 45.0
PREPARE_FAILED = "FailedPrepareDynamicResources"


class Dra(Access):
    """Claims for the devices that NVIDIA's DRA driver offers on the node."""

    name = "dra"
    _looked = 0.0

    # The cluster as it is.

    @cached_property
    def version(self) -> str | None:
        """Version of the API that is used; None where there is none."""
        return claims_api.served(self.cluster.api)

    @cached_property
    def devices(self) -> list[Device]:
        """What the driver offers on the node."""
        if self.version is None:
            return []
        found = claims_api.offered(claims_api.slices(self.cluster.api, self.version), self.cluster.name)
        return [device for device in found if device.driver == nvidia.NAME]

    @cached_property
    def build(self) -> nvidia.Build | None:
        return nvidia.build_of(self.cluster.daemon_sets()) if self.devices else None

    def missing(self) -> str | None:
        if self.version is None:
            known = ", ".join(claims_api.VERSIONS)
            return f"the cluster serves no {claims_api.GROUP} ({known}), which Kubernetes does from 1.34 on"
        if not self.devices:
            return (
                f"no DRA driver that is known ({nvidia.NAME}) offers a device of the node; install NVIDIA's, with "
                "gpuResourcesEnabledOverride=true in its Helm values"
            )
        return None

    def describe(self) -> GpuDescription:
        """By the driver's slices; nothing where we may not look at them."""
        try:
            devices = self.devices
        except ApiRefused:
            devices = []
        if not devices:
            return {}
        whole = list(filter(nvidia.is_whole, devices))
        first = (whole or devices)[0]
        return {
            "product": str(first.attributes.get("productName", "unknown GPU")),
            "memory_bytes": whole[0].capacity_bytes.get("memory") if whole else None,
            "driver": nvidia.driver_version(first),
            "gpus": max(len(whole), len(set(map(nvidia.parent, devices)) - {None})),
            "uuid": nvidia.uuid(first) if whole else nvidia.parent(first),
            "dra_driver": self.build.version if self.build else None,
            "dra_gates": sorted(name for name, is_on in self.build.gates.items() if is_on) if self.build else None,
        }

    # What a cell asks.

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        if (why := self.missing() or strategy.too_many(replicas)) is not None:
            return why
        if (why := nvidia.lacks(strategy, self.build)) is not None:
            return why
        found = dra_claims.parts(self.devices, strategy, replicas)
        return found if isinstance(found, str) else None

    def objects(self, spec: Spec) -> list[Json]:
        """The cell's claims. Raises NodeError where they cannot be made."""
        strategy = of_spec(spec["strategy"])
        if self.version is None or not self.devices:
            raise NodeError(str(self.missing()))
        found = dra_claims.parts(self.devices, strategy, spec["replicas"])
        if isinstance(found, str):
            raise NodeError(found)
        self._wanted = dra_claims.claims(self.version, strategy, found)
        return self._wanted

    def pod(self, spec: Spec, grant: Grant) -> PodNeeds:
        """The request of its part of the GPU, and a look at the variables that the driver sets."""
        strategy = of_spec(spec["strategy"])
        memory_bytes = None
        if strategy.mechanisms[0] != "mig":
            memory_bytes = self.describe().get("memory_bytes")
        limit_bytes = memory_limit(memory_bytes, limits_of(spec["strategy"]["limits"], grant.index))
        return PodNeeds(
            claims={dra_claims.claim_of(strategy, grant.group): dra_claims.request_of(grant.group)},
            environment={SHOWN_VARIABLE: ",".join(nvidia.VARIABLES), **probe(limit_bytes)},
        )

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        claims = self._claims()
        evidence = evidence_of_claims(self.devices, self._wanted, claims, self._daemons(), strategy, grants)
        given = claims_api.allocated(claims, self.devices)
        return evidence + evidence_of_tenants(given, strategy, grants, records)

    def plan(self, strategy: Strategy) -> str:
        return (
            "makes resource claims for each cell, carried out by the DRA driver, and sets a taint while it measures; "
            "claims go after each cell, the taint when the run ends"
        )

    # Claims that come and go.

    @property
    def _collection(self) -> str:
        return f"/apis/{claims_api.GROUP}/{self.version}/namespaces/{self.cluster.options['namespace']}/resourceclaims"

    def _claims(self) -> list[Json]:
        mine = f"{OWNER_LABEL}={self.cluster.digest}"
        found: list[Json] = self.cluster.api.get(self._collection, labelSelector=mine)["items"]
        return found

    def _daemons(self) -> list[Json]:
        """Deployments of the driver for claims of this node: an MPS daemon for each configured group of a claim."""
        if self.build is None:
            return []
        found = self.cluster.api.get(f"/apis/apps/v1/namespaces/{self.build.namespace}/deployments")["items"]
        return [
            each
            for each in found
            if each["spec"]["template"]["spec"].get("nodeName") == self.cluster.name
            and each["metadata"]["name"].startswith(nvidia.DAEMON_PREFIX)
        ]

    def trouble(self, waiting: Sequence[str], seconds: float) -> str | None:
        """What the driver says to the kubelet, of which a pod's status says nothing."""
        now = time.monotonic()
        if not self.devices or now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        events = f"/api/v1/namespaces/{self.cluster.options['namespace']}/events"
        for event in self.cluster.api.get(events, fieldSelector=f"reason={PREPARE_FAILED}")["items"]:
            if event["involvedObject"].get("name") not in waiting:
                continue
            said = " ".join(event["message"].split())
            is_fatal = any(words in said for words in nvidia.FATAL_ERRORS)
            is_retriable = any(words in said for words in nvidia.RETRIABLE_ERRORS)
            if is_fatal or (seconds > RETRY_SECONDS and not is_retriable):
                return f"the DRA driver does not prepare the claim: {said}"
        return None

    def clean(self) -> None:
        """Have the claims go, and what the driver made for them. Raises NodeError when they do not."""
        if self.missing() is not None:
            return
        deadline = time.monotonic() + GONE_SECONDS
        while (claims := self._claims()) or (daemons := self._daemons()):
            for claim in claims:
                if not claim["metadata"].get("deletionTimestamp"):
                    # The garbage collector would do it too, a little later.
                    self.cluster.api.delete(f"{self._collection}/{claim['metadata']['name']}")
            if time.monotonic() > deadline:
                names = ", ".join(
                    f"{each['name']} ({', '.join(each.get('finalizers') or ['no finalizer'])})"
                    for each in (found["metadata"] for found in claims or daemons)
                )
                what = "claims" if claims else "the DRA driver's daemons, which other users' claims may have,"
                raise NodeError(f"{what} did not go within {GONE_SECONDS:g} s: {names}")
            time.sleep(POLL_SECONDS)


def _hidden(configs: list[Json], devices: Sequence[Device]) -> Any:
    """The configs without ids of devices: their digests instead."""
    text = json.dumps(configs, sort_keys=True)
    for uuid in filter(None, map(nvidia.uuid, devices)):
        text = text.replace(uuid, device_digest(uuid))
    return json.loads(text)


def _together(marks: Sequence[Any]) -> list[list[int]]:
    """Which tenants have the same mark, by index."""
    keys = [json.dumps(mark, sort_keys=True) for mark in marks]
    return [[index for index, each in enumerate(keys) if each == key] for key in dict.fromkeys(keys)]


def evidence_of_claims(
    devices: Sequence[Device],
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
    holders = Counter(dra_claims.claim_of(strategy, grant.group) for grant in grants)
    for asked, found in zip(wanted, claims, strict=True):
        reserved = len(found["status"].get("reservedFor") or [])
        evidence.append(item("reservedFor", holders[asked["metadata"]["name"]], reserved, "API server"))
    requested = [each["spec"]["devices"] for each in wanted]
    expected = [
        {"requests": each["requests"], "parameters": each["opaque"]["parameters"]}
        for asked_devices in requested
        for each in asked_devices.get("config", ())
    ]
    observed = [config for found in claims for config in claims_api.configured(found)]
    expected, observed = _hidden(expected, devices), _hidden(observed, devices)
    evidence.append(item("opaque configuration in the allocation", expected, observed, "API server"))
    given = claims_api.allocated(claims, devices)
    names = [each["name"] for asked_devices in requested for each in asked_devices["requests"]]
    in_slices = sorted(request for request, device in given.items() if device is not None)
    evidence.append(item("requests with a device of the node's slices", sorted(names), in_slices, "API server"))
    if len(names) > 1:
        parents = {nvidia.parent(device) for device in given.values() if device is not None}
        evidence.append(item("GPUs of the allocated instances", 1, len(parents), "API server"))
    if strategy.mechanisms[-1] == "mps":
        ready = sum(each.get("status", {}).get("readyReplicas", 0) for each in daemons)
        evidence.append(item("MPS control daemons that are ready", len(names), ready, "API server"))
    return evidence


def evidence_of_tenants(
    given: Mapping[str, Device | None],
    strategy: Strategy,
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
) -> Evidence:
    """What the tenants saw: the device of their claim and no other, by its id where they asked CUDA."""
    evidence: Evidence = []
    marks = []
    for grant, record in zip(grants, records, strict=True):
        view, device, source = view_of(record), given.get(dra_claims.request_of(grant.group)), f"tenant {grant.index}"
        if device is None:
            continue
        if files := nvidia.device_files(device):
            whole = [node for node in view.get("nodes", ()) if "/" not in node]
            evidence.append(item("GPUs by device files", files, whole, source))
        seen = view.get("variables") or {}
        variables = {name: seen.get(name) for name in nvidia.VARIABLES}
        evidence.append(item("variables of the CDI device", nvidia.VARIABLES, variables, source))
        is_mps = strategy.mechanisms[-1] == "mps"
        evidence.append(item("has the pipe of an MPS daemon", is_mps, view.get("mps_pipe") is not None, source))
        if view.get("device") is not None and (uuid := nvidia.uuid(device)) is not None:
            evidence.append(item("device", device_digest(uuid), view["device"], source))
        marks.append([view.get("device"), view.get("nodes")])
    # An instance that was made for the claim has no id in the slice: who shares one is known all the same.
    groups = _together([grant.group for grant in grants])
    evidence.append(item("tenants by the device that they have", groups, _together(marks), "tenants"))
    return evidence
