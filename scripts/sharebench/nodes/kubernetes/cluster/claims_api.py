"""Dynamic resource allocation as the API server serves it: which version, and the shapes that differ between them.

v1 and v1beta2 have one shape. v1beta1 has a request's fields in the request itself, and a device's below `basic`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json

GROUP = "resource.k8s.io"
# Newest first. Kubernetes serves v1 from 1.34 on, v1beta2 from 1.33, v1beta1 from 1.32.
VERSIONS = ("v1", "v1beta2", "v1beta1")
FLAT_REQUEST_VERSIONS = {"v1beta1"}


@dataclass(frozen=True)
class Device:
    """A device that a driver offers on a node; attributes of the driver's own domain go without it."""

    driver: str
    pool: str
    name: str
    attributes: Json
    capacity_bytes: Mapping[str, int]
    takes: Mapping[str, int] = field(default_factory=dict)
    """What it takes of its GPU, by counter, where that is counted (partitionable devices)."""


def served(api: Api) -> str | None:
    """The newest version that we know and the API server serves; None where it serves none."""
    found = api.find(f"/apis/{GROUP}") or {}
    there = {each["version"] for each in found.get("versions", ())}
    return next((version for version in VERSIONS if version in there), None)


def request(version: str, name: str, device_class: str, expressions: Iterable[str], count: int = 1) -> Json:
    """A claim's request for devices of a class, for which all these CEL expressions are true."""
    asked: Json = {"deviceClassName": device_class}
    if selectors := [{"cel": {"expression": expression}} for expression in expressions]:
        asked["selectors"] = selectors
    if count > 1:
        asked["count"] = count
    return {"name": name, **asked} if version in FLAT_REQUEST_VERSIONS else {"name": name, "exactly": asked}


def claim(version: str, name: str, devices: Json) -> Json:
    """A ResourceClaim; `name` is that within its cell."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": dict(devices)},
    }


def template(claim: Json, labels: Mapping[str, str]) -> Json:
    """A ResourceClaimTemplate that makes claims like this one, with these labels."""
    spec = {"metadata": {"labels": dict(labels)}, "spec": claim["spec"]}
    return claim | {"kind": "ResourceClaimTemplate", "spec": spec}


def _value(attribute: Json) -> Any:
    (value,) = attribute.values()
    return value


def _number(quantity: Any) -> int:
    from kubernetes.utils import quantity as quantities  # imported late: the package takes half a second

    parse: Any = quantities.parse_quantity
    return int(parse(quantity["value"] if isinstance(quantity, Mapping) else quantity))


def offered(slices: Iterable[Json], node: str) -> list[Device]:
    """The devices of a node, of all drivers, from all ResourceSlices; only a pool's newest generation counts."""
    mine = [each["spec"] for each in slices if each["spec"].get("nodeName") == node]
    newest: dict[tuple[str, str], int] = {}
    for spec in mine:
        pool = (spec["driver"], spec["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), spec["pool"]["generation"])
    found = []
    for spec in mine:
        driver, pool = spec["driver"], spec["pool"]["name"]
        if spec["pool"]["generation"] != newest[driver, pool]:
            continue
        for device in spec.get("devices") or ():
            inner = device.get("basic", device)
            attributes = {
                name.removeprefix(f"{driver}/"): _value(value)
                for name, value in (inner.get("attributes") or {}).items()
            }
            capacity = {name: _number(value) for name, value in (inner.get("capacity") or {}).items()}
            takes = {
                f"{consumed['counterSet']}/{name}": _number(value)
                for consumed in inner.get("consumesCounters") or ()
                for name, value in consumed["counters"].items()
            }
            found.append(Device(driver, pool, device["name"], attributes, capacity, takes))
    return sorted(found, key=lambda device: (device.driver, device.pool, device.name))


def slices(api: Api, version: str) -> list[Json]:
    found: list[Json] = api.get(f"/apis/{GROUP}/{version}/resourceslices")["items"]
    return found


def nodes(api: Api) -> set[str]:
    """Names of the nodes on which some driver offers something; none where we may not look."""
    version = served(api)
    try:
        return {each["spec"].get("nodeName", "") for each in slices(api, version)} if version else set()
    except ApiRefused:
        return set()


def allocated(claims: Iterable[Json], devices: Sequence[Device]) -> dict[str, list[Device | None]]:
    """The devices of each request of the claims; None for one that no slice has."""
    allocations = [each.get("status", {}).get("allocation", {}).get("devices", {}) for each in claims]
    results = [result for each in allocations for result in each.get("results") or []]
    known = {(device.driver, device.pool, device.name): device for device in devices}
    found: dict[str, list[Device | None]] = {}
    for each in results:
        found.setdefault(each["request"], []).append(known.get((each["driver"], each["pool"], each["device"])))
    return found


def configured(found: Json) -> list[Json]:
    """The opaque parameters that an allocated claim brought along, each with its requests."""
    configs = found.get("status", {}).get("allocation", {}).get("devices", {}).get("config") or []
    return [
        {"requests": each.get("requests") or [], "parameters": (each.get("opaque") or {}).get("parameters")}
        for each in configs
        if each.get("source") == "FromClaim"
    ]
