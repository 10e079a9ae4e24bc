"""What a tenant tells of the device that its pod was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tenant import granted

SCHEMA = json.loads((Path(__file__).parents[3] / "config" / "schemas" / "record.schema.json").read_text())
POD = {granted.GRANTED_VARIABLE: "1", granted.SHOWN_VARIABLE: "CUDA_DEVICE_SM_LIMIT"}


def view(**environment: str) -> dict[str, Any]:
    found = granted.view(POD | environment)
    assert found is not None
    return found


@pytest.mark.parametrize("device", ["GPU-1234", "MIG-5678", "void", ""])
def test_a_record_may_have_all_of_it(device: str) -> None:
    (rules,) = _views(SCHEMA)
    jsonschema_rs.validate({**rules, "$defs": SCHEMA.get("$defs", {})}, view(NVIDIA_VISIBLE_DEVICES=device))


def _views(schema: Any) -> list[Any]:
    """The rules of a tenant's `view`, wherever they are."""
    if isinstance(schema, list):
        return [found for each in schema for found in _views(each)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("properties", {}).get("view")
    return ([own] if own else []) + [found for each in schema.values() for found in _views(each)]


@pytest.mark.parametrize(("device", "is_mig"), [("GPU-1234", False), ("MIG-5678", True), ("void", False)])
def test_whether_it_is_an_instance(device: str, is_mig: bool) -> None:
    assert view(NVIDIA_VISIBLE_DEVICES=device)["is_mig"] is is_mig


def test_elsewhere_there_is_none() -> None:
    assert granted.view({"NVIDIA_VISIBLE_DEVICES": "GPU-1234"}) is None
