"""Reference files of cells, tables and figures: the device, and the calibration of each workload alone on it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import jsonschema_rs

from sharebench.core.files import DamagedFile, read_json
from sharebench.model.records.record import MESSAGE_LENGTH, SCHEMA_PATH, printable
from sharebench.model.records.types import Calibration, NodeFacts

Reference = TypeVar("Reference", bound=Mapping[str, Any])


class DeviceReference(TypedDict):
    """nodes/device.json: facts of the device and its peak performance."""

    node: NodeFacts
    roofs: dict[str, float] | None
    idle_power_watts: float | None


# Keys of the reference files that records have too.
DEVICE_KEYS = tuple(DeviceReference.__annotations__)
CALIBRATION_KEYS = (*DEVICE_KEYS, "workload", "output_digest", "capacity_hz")


def read_device(path: Path) -> DeviceReference:
    """nodes/device.json. Raises DamagedFile, OSError."""
    return cast(DeviceReference, _read(path, DEVICE_KEYS))


def read_calibration(path: Path) -> Calibration:
    """calibration/{workload}.json. Raises DamagedFile, OSError."""
    return cast(Calibration, _read(path, CALIBRATION_KEYS))


def device_identity(node: NodeFacts) -> str:
    """Identity of the device in all of a study: a cluster's GPU shows its own id only once a tenant has used it."""
    return str(node["details"].get("machine") or node["device"])


def device_name(node: NodeFacts) -> str:
    """The product, with the label of a device that is not a real GPU."""
    product, label = node["product"], node["label"]
    return product if label in product else f"{product} ({label})"


def part_for_device(reference: Reference, device: str) -> Reference:
    """The part of a reference file for the device of that identity; that of the first device if it has no other."""
    others = cast(Mapping[str, Reference], reference.get("others", {}))
    return others.get(device, reference)


def _read(path: Path, required: tuple[str, ...]) -> dict[str, Any]:
    reference: dict[str, Any] = printable(path.read_bytes(), read_json(path))
    try:
        jsonschema_rs.validate(_schema(required), reference)
    except jsonschema_rs.ValidationError as error:
        raise DamagedFile(path, error.message[:MESSAGE_LENGTH]) from None
    return reference


@cache
def _schema(required: tuple[str, ...]) -> dict[str, Any]:
    record = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))["properties"]
    properties = record["calibration"]["properties"] | {"node": record["node"], "workload": {"type": "string"}}
    return {"type": "object", "required": list(required), "properties": {key: properties[key] for key in required}}
