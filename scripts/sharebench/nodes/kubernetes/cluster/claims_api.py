"""Dynamic resource allocation: claims, and what drivers offer, as the API server has them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json

GROUP = "resource.k8s.io"
VERSION = f"{GROUP}/v1"


@dataclass(frozen=True)
class Device:
    """A device that a driver offers on a node; attributes of the driver's own domain go without it."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, str]
    capacity_bytes: Mapping[str, int]
    takes: Mapping[str, int] = field(default_factory=dict)
    """What it takes of its GPU, by counter, where that is counted (partitionable devices)."""


def is_served(api: Api) -> bool:
    """Whether the API server serves our version, as Kubernetes does from 1.34 on."""
    return api.find(f"/apis/{VERSION}") is not None


def request(name: str, device_class: str, expressions: Iterable[str], count: int = 1) -> Json:
    """A claim's request for devices of a class, for which all these CEL expressions are true."""
    asked: Json = {"deviceClassName": device_class}
    if selectors := [{"cel": {"expression": expression}} for expression in expressions]:
        asked["selectors"] = selectors
    if count > 1:
        asked["count"] = count
    return {"name": name, "exactly": asked}


def claim(name: str, devices: Json) -> Json:
    """A ResourceClaim; `name` is that within its cell."""
    return {
        "apiVersion": VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": dict(devices)},
    }


def template(claim: Json, labels: Mapping[str, str]) -> Json:
    """A ResourceClaimTemplate that makes claims like this one, with these labels."""
    spec = {"metadata": {"labels": dict(labels)}, "spec": claim["spec"]}
    return claim | {"kind": "ResourceClaimTemplate", "spec": spec}


def _value(attribute: Json) -> str:
    (value,) = attribute.values()
    return str(value)


def _number(quantity: Any) -> int:
    from kubernetes.utils import quantity as quantities  # imported late: the package takes half a second

    parse: Any = quantities.parse_quantity
    return int(parse(quantity["value"] if isinstance(quantity, Mapping) else quantity))


def offered(slices: Iterable[Json], node: str) -> list[Device]:
    """The devices of a node, of all drivers, from all ResourceSlices; only a pool's newest generation counts."""
    mine = [each["spec"] for each in slices if each["spec"].get("nodeName") == node]
    mine.sort(key=lambda spec: spec["pool"]["generation"])
    newest = {(spec["driver"], spec["pool"]["name"]): spec["pool"]["generation"] for spec in mine}
    found = []
    for spec in mine:
        driver, pool = spec["driver"], spec["pool"]["name"]
        if spec["pool"]["generation"] != newest[driver, pool]:
            continue
        for device in spec.get("devices") or ():
            attributes = {
                name.removeprefix(f"{driver}/"): _value(value)
                for name, value in (device.get("attributes") or {}).items()
            }
            capacity = {name: _number(value) for name, value in (device.get("capacity") or {}).items()}
            takes = {
                f"{consumed['counterSet']}/{name}": _number(value)
                for consumed in device.get("consumesCounters") or ()
                for name, value in consumed["counters"].items()
            }
            found.append(Device(driver, pool, device["name"], attributes, capacity, takes))
    return sorted(found, key=lambda device: (device.driver, device.pool, device.name))


def slices(api: Api) -> list[Json]:
    return list(api.get(f"/apis/{VERSION}/resourceslices")["items"])


def nodes(api: Api) -> set[str]:
    """Names of the nodes on which some driver offers something; none where we may not look."""
    try:
        return {each["spec"].get("nodeName", "") for each in slices(api)} if is_served(api) else set()
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
