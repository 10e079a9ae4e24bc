"""Access to a node's GPU by resource claims (DRA): one claim that all tenants of a cell share, or several.

The driver prepares a claim for its first pod and undoes that after its last one. Claims that take long to prepare
belong to the node's state instead of a cell (`held`).
"""

import sys
import time
from collections.abc import Sequence
from functools import cached_property

from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, State
from sharebench.measure.nodes.kubernetes.access.base import Access, GpuDescription, PodNeeds
from sharebench.measure.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.measure.nodes.kubernetes.access.dra import evidence, held, nvidia
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL, OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.restricted import GRACE_SECONDS, waiting_reason
from sharebench.measure.nodes.kubernetes.cluster.saved_state import AccessState
from sharebench.measure.nodes.limits import client_variables, probe_variables
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from tenant.contract import SHOWN_VARIABLE, TenantReport

CLAIM_REMOVAL_SECONDS = 60.0
POLL_SECONDS = 0.5
EVENT_POLL_SECONDS = 5.0
# The first attempt to prepare a claim may fail, as while MPS starts. Transient failures end within this time.
PREPARE_RETRY_SECONDS = 45.0
PREPARE_FAILED = "FailedPrepareDynamicResources"


class DraAccess(Access):
    """Claims for the devices that NVIDIA's DRA driver offers on the node."""

    name = "dra"
    runs_mps = True
    _events_read_at = 0.0

    # What the cluster has.

    @cached_property
    def is_served(self) -> bool:
        return claims_api.is_served(self.cluster.api)

    @cached_property
    def devices(self) -> list[DraDevice]:
        if not self.is_served:
            return []
        devices = claims_api.offered_devices(claims_api.resource_slices(self.cluster.api), self.cluster.name)
        return [device for device in devices if device.driver == nvidia.DRIVER]

    @cached_property
    def driver(self) -> nvidia.InstalledDriver | None:
        return nvidia.find_driver(self.cluster.daemon_sets()) if self.devices else None

    def missing(self) -> str | None:
        if not self.is_served:
            return f"the cluster serves no {claims_api.VERSION}, which Kubernetes does from 1.34 on"
        if not self.devices:
            return (
                f"no DRA driver that is known ({nvidia.DRIVER}) offers a device of the node; install NVIDIA's, with "
                "gpuResourcesEnabledOverride=true in its Helm values"
            )
        return None

    def describe(self) -> GpuDescription:
        """Facts from the driver's slices; empty if we may not list them."""
        try:
            devices = self.devices
        except ApiRefused:
            devices = []
        if not devices:
            return {}
        whole = list(filter(nvidia.is_whole_gpu, devices))
        first = (whole or devices)[0]
        return {
            "product": first.attributes.get("productName", "unknown GPU"),
            "memory_bytes": whole[0].capacity_bytes.get("memory") if whole else None,
            "driver": nvidia.driver_version(first),
            "gpus": len({*map(nvidia.device_uuid, whole), *map(nvidia.parent_uuid, devices)} - {None}),
            "uuid": nvidia.device_uuid(first) if whole else nvidia.parent_uuid(first),
            "dra_driver": self.driver.version if self.driver else None,
            "dra_gates": sorted(name for name, is_on in self.driver.gates.items() if is_on) if self.driver else None,
        }

    # For a cell.

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        reason = (
            self.missing()
            or strategy.profile_shortage(replicas)
            or nvidia.unsupported(strategy, self.driver)
            or nvidia.refused_shares(strategy, self.devices, replicas)
        )
        result = reason or dra_claims.select_devices(self.devices, strategy, replicas)
        return result if isinstance(result, str) else None

    def cell_objects(self, spec: Spec) -> list[Json]:
        """The cell's claims; none if its state holds them. Raises NodeError if the node lacks the devices."""
        strategy = spec.strategy
        groups = self._device_groups(strategy, spec.replicas)
        self._cell_claims = dra_claims.build_claims(strategy, groups, spec.replicas)
        if strategy.claim_per == "tenant":
            metadata = {"labels": {OWNER_LABEL: self.cluster.digest}}
            template = {"metadata": metadata, "spec": self._cell_claims[0]["spec"]}
            return [self._cell_claims[0] | {"kind": "ResourceClaimTemplate", "spec": template}]
        return [] if held.outlasts_cells(strategy) else self._cell_claims

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        return [Grant(index, index % dra_claims.group_count(strategy, replicas)) for index in range(replicas)]

    def _device_groups(self, strategy: Strategy, replicas: int) -> list[dra_claims.DeviceGroup]:
        """The devices to claim. Raises NodeError."""
        groups = self.missing() or dra_claims.select_devices(self.devices, strategy, replicas)
        if isinstance(groups, str):
            raise NodeError(groups)
        return groups

    def pod_needs(self, spec: Spec, grant: Grant) -> PodNeeds:
        """The request for its part of the GPU; the tenant also reports the variables that the driver sets."""
        strategy = spec.strategy
        memory_bytes = None if strategy.mechanism[0] == "mig" else self.describe().get("memory_bytes")
        limits = strategy.tenant_limits(spec.replicas, grant.index)
        own = client_variables(limits.excluding(strategy.shared_limits(1)), memory_bytes)
        probed = probe_variables(limits.memory_bytes(memory_bytes))
        is_template = strategy.claim_per == "tenant"
        claim = dra_claims.claim_name(strategy, 0 if is_template else grant.group)
        return PodNeeds(
            claims={claim: dra_claims.request_name(strategy, grant.group)},
            claims_prefix=held.name_prefix(self.cluster) if held.outlasts_cells(strategy) else None,
            is_template=is_template,
            environment={SHOWN_VARIABLE: ",".join(nvidia.CDI_VARIABLES), **own, **probed},
        )

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        claims = self._read_claims()
        found = evidence.claim_evidence(self.devices, self._cell_claims, claims, self._read_daemons(), strategy, grants)
        return found + evidence.tenant_evidence(claims, self.devices, strategy, grants, records)

    def plan(self, strategy: Strategy) -> str:
        return (
            "makes resource claims for each cell, carried out by the DRA driver, and sets a taint while it measures; "
            "claims go after each cell, under MPS with the state, the taint when all cells are measured"
        )

    # States.

    def _held_claims(self, state: State) -> list[Json]:
        """The claims that the state holds. Raises NodeError if the node lacks the devices."""
        strategy = state.strategy.for_tenants(state.replicas or 1)
        return held.held_claims(self.cluster, strategy, self._device_groups(strategy, state.replicas or 1))

    def is_in_state(self, state: State) -> bool:
        if not held.outlasts_cells(state.strategy):
            return True
        return held.are_held(self._held_claims(state), self._read_claims(), self.cluster.held_pods())

    def ensure(self, state: State) -> None:
        """Replace the held claims by those of this state, and wait until they are prepared."""
        self._remove_held_claims()
        if not held.outlasts_cells(state.strategy):
            return
        self.cluster.save_access(self.name, {})
        began = time.monotonic()
        claims = self._held_claims(state)
        for claim in claims:
            self.cluster.api.create(self._collection, claim)
        pod = held.holder_pod(self.cluster, claims)
        self.cluster.api.create(self.cluster.tenants_path, pod)
        self._await_holder(pod["metadata"]["name"])
        self.cluster.note_phase("prepare", time.monotonic() - began)

    def _await_holder(self, holder: str) -> None:
        """Wait until the holder pod runs, which means that its claims are prepared. Raises NodeError."""
        began, limit = time.monotonic(), self.cluster.options["switch_seconds"]
        while True:
            status = self.cluster.held_statuses().get(holder, {})
            if status.get("phase") == "Running":
                return
            seconds = time.monotonic() - began
            if (problem := self.start_failure([holder], seconds)) is not None:
                raise NodeError(problem)
            if seconds > limit:
                problem = f"the pod that holds the claims did not run within {limit:g} s"
                raise NodeError(f"{problem}: {waiting_reason(status)}")
            time.sleep(POLL_SECONDS)

    def restart_mps(self) -> None:
        print("tenants under MPS ended badly: their claims are replaced", file=sys.stderr)
        self._remove_held_claims()

    def restore(self, state: AccessState) -> None:
        self._remove_held_claims()

    def _remove_held_claims(self) -> None:
        """Remove held claims and their holder pods. Raises NodeError."""
        if self.is_served:
            for pod in self.cluster.held_pods():
                path = f"{self.cluster.tenants_path}/{pod['metadata']['name']}"
                self.cluster.api.delete(path, grace_seconds=GRACE_SECONDS)
            self._remove_claims(is_run_over=True)

    # Claims in the cluster.

    @property
    def _collection(self) -> str:
        return f"/apis/{claims_api.VERSION}/namespaces/{self.cluster.options['namespace']}/resourceclaims"

    def _read_claims(self) -> list[Json]:
        return list(self.cluster.api.get(self._collection, labelSelector=self.cluster.owner_selector)["items"])

    def _read_daemons(self) -> list[Json]:
        """The driver's Deployments for claims of this node: one MPS daemon per configured request."""
        if self.driver is None:
            return []
        deployments = self.cluster.api.get(f"/apis/apps/v1/namespaces/{self.driver.namespace}/deployments")["items"]
        return [
            deployment
            for deployment in deployments
            if deployment["spec"]["template"]["spec"].get("nodeName") == self.cluster.name
            and deployment["metadata"]["name"].startswith(nvidia.DAEMON_PREFIX)
        ]

    def start_failure(self, waiting: Sequence[str], seconds: float) -> str | None:
        """A permanent error of the driver, which only events show."""
        now = time.monotonic()
        if not self.devices or now - self._events_read_at < EVENT_POLL_SECONDS:
            return None
        self._events_read_at = now
        events = f"/api/v1/namespaces/{self.cluster.options['namespace']}/events"
        for event in self.cluster.api.get(events, fieldSelector=f"reason={PREPARE_FAILED}")["items"]:
            if event["involvedObject"].get("name") not in waiting:
                continue
            message = " ".join(event["message"].split())
            if seconds > PREPARE_RETRY_SECONDS and not any(error in message for error in nvidia.RETRIABLE_ERRORS):
                return f"the DRA driver does not prepare the claim: {message}"
        return None

    def clean_up(self, is_run_over: bool = False) -> None:
        if self.missing() is None:
            self._remove_claims(is_run_over)

    def _remove_claims(self, is_run_over: bool) -> None:
        """Delete the claims and wait until they and the driver's daemons are gone. Raises NodeError if they stay."""
        deadline = time.monotonic() + CLAIM_REMOVAL_SECONDS
        while True:
            claims = self._read_claims()
            unwanted = [each for each in claims if is_run_over or HELD_LABEL not in each["metadata"].get("labels", {})]
            # Held claims keep their daemons.
            left = unwanted or ([] if claims else self._read_daemons())
            if not left:
                return
            for claim in unwanted:
                if not claim["metadata"].get("deletionTimestamp"):
                    # The garbage collector would delete it too, but later.
                    self.cluster.api.delete(f"{self._collection}/{claim['metadata']['name']}")
            if time.monotonic() > deadline:
                names = ", ".join(
                    f"{each['name']} ({', '.join(each.get('finalizers') or ['no finalizer'])})"
                    for each in (entry["metadata"] for entry in left)
                )
                what = "claims" if unwanted else "the DRA driver's daemons, which other users' claims may have,"
                raise NodeError(f"{what} did not go within {CLAIM_REMOVAL_SECONDS:g} s: {names}")
            time.sleep(POLL_SECONDS)
