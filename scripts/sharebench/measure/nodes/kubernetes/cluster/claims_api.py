"""Dynamic resource allocation (DRA): claims, and the devices that drivers offer, as API objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import parse_quantity

GROUP = "resource.k8s.io"
VERSION = f"{GROUP}/v1"


@dataclass(frozen=True)
class DraDevice:
    """A device that a driver offers on a node. Attribute names omit the driver's own domain."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, str]
    capacity_bytes: Mapping[str, int]
    consumed_counters: Mapping[str, int] = field(default_factory=dict)
    """Amount that it uses of each counter of its GPU; empty if the device is not partitionable."""
    takes_several_claims: bool = False
    """Whether several claims may have it at the same time (KEP-5075)."""


def is_served(api: Api) -> bool:
    """Whether the API server serves `VERSION`, as Kubernetes does from 1.34 on."""
    return api.find(f"/apis/{VERSION}") is not None


def _capacity(value: Any) -> int:
    return parse_quantity(str(value["value"] if isinstance(value, Mapping) else value))


def offered_devices(slices: Iterable[Json], node: str) -> list[DraDevice]:
    """The devices of a node, of all drivers, from all ResourceSlices. Only a pool's newest generation counts."""
    specs = [each["spec"] for each in slices if each["spec"].get("nodeName") == node]
    specs.sort(key=lambda spec: spec["pool"]["generation"])
    newest = {(spec["driver"], spec["pool"]["name"]): spec["pool"]["generation"] for spec in specs}
    devices = []
    for spec in specs:
        driver, pool = spec["driver"], spec["pool"]["name"]
        if spec["pool"]["generation"] != newest[driver, pool]:
            continue
        for device in spec.get("devices") or ():
            attributes = {
                name.removeprefix(f"{driver}/"): str(value)
                for name, attribute in (device.get("attributes") or {}).items()
                for value in attribute.values()
            }
            capacity = {name: _capacity(value) for name, value in (device.get("capacity") or {}).items()}
            counters = {
                f"{consumed['counterSet']}/{name}": _capacity(value)
                for consumed in device.get("consumesCounters") or ()
                for name, value in consumed["counters"].items()
            }
            takes_several = bool(device.get("allowMultipleAllocations"))
            devices.append(DraDevice(driver, pool, device["name"], attributes, capacity, counters, takes_several))
    return sorted(devices, key=lambda device: (device.driver, device.pool, device.name))


def resource_slices(api: Api) -> list[Json]:
    return list(api.get(f"/apis/{VERSION}/resourceslices")["items"])


def nodes_with_devices(api: Api) -> set[str]:
    """Names of the nodes on which a driver offers devices; empty if we may not list slices."""
    try:
        return {each["spec"].get("nodeName", "") for each in resource_slices(api)} if is_served(api) else set()
    except ApiRefused:
        return set()


def allocated_devices(claims: Iterable[Json], devices: Sequence[DraDevice]) -> dict[str, list[DraDevice | None]]:
    """The devices allocated to each request of the claims; None for a device in no slice."""
    allocations = [claim.get("status", {}).get("allocation", {}).get("devices", {}) for claim in claims]
    results = [result for allocation in allocations for result in allocation.get("results") or []]
    by_name = {(device.driver, device.pool, device.name): device for device in devices}
    allocated: dict[str, list[DraDevice | None]] = {}
    for result in results:
        device = by_name.get((result["driver"], result["pool"], result["device"]))
        allocated.setdefault(result["request"], []).append(device)
    return allocated


def opaque_configs(claim: Json) -> list[Json]:
    """The opaque parameters of an allocated claim's own configs, each with its requests."""
    configs = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("config") or []
    return [
        {"requests": config.get("requests") or [], "parameters": (config.get("opaque") or {}).get("parameters")}
        for config in configs
        if config.get("source") == "FromClaim"
    ]
