"""The files that cells, tables and figures refer to: what the device is, and what each workload does alone on it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import jsonschema_rs

from sharebench.core.files import DamagedFile, read_json
from sharebench.core.spec import Calibration
from sharebench.records.record import MESSAGE_LENGTH, SCHEMA_PATH
from sharebench.records.types import NodeFacts

# What a record has of them, too.
DEVICE_KEYS = ("node", "roofs", "idle_power_watts")
CALIBRATION_KEYS = (*DEVICE_KEYS, "workload", "output_digest", "capacity_hz")

Reference = TypeVar("Reference", bound=Mapping[str, Any])


class DeviceReference(TypedDict):
    """nodes/device.json: what the device is, and does at best."""

    node: NodeFacts
    roofs: dict[str, float] | None
    idle_power_watts: float | None


def read_device(path: Path) -> DeviceReference:
    """nodes/device.json. Raises Damaged, OSError."""
    return cast(DeviceReference, _read(path, DEVICE_KEYS))


def read_calibration(path: Path) -> Calibration:
    """calibration/{workload}.json. Raises Damaged, OSError."""
    return cast(Calibration, _read(path, CALIBRATION_KEYS))


def device_identity(node: NodeFacts) -> str:
    """What the device is known by in all of a study: a cluster's GPU shows its own id once a tenant has had it."""
    return str(node["details"].get("machine") or node["device"])


def device_name(node: NodeFacts) -> str:
    """The product, with the label of a device that is not a real GPU."""
    product, label = node["product"], node["label"]
    return product if label in product else f"{product} ({label})"


def part_for_device(found: Reference, device: str) -> Reference:
    """Of such a file the part of the device of that identity, where it has several; else what it has of the first."""
    others = cast(Mapping[str, Reference], found.get("others", {}))
    return others.get(device, found)


def _read(path: Path, required: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = read_json(path)
    try:
        jsonschema_rs.validate(_schema(required), found)
    except jsonschema_rs.ValidationError as error:
        raise DamagedFile(path, error.message[:MESSAGE_LENGTH]) from None
    return found


@cache
def _schema(required: tuple[str, ...]) -> dict[str, Any]:
    of_record = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))["properties"]
    known = of_record["calibration"]["properties"] | {"node": of_record["node"], "workload": {"type": "string"}}
    return {"type": "object", "required": list(required), "properties": {key: known[key] for key in required}}
