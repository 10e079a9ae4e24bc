"""A tenant's view of the device that was granted to its pod."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema_rs
import pynvml
import pytest

from tenant import contract, startup
from tenant.contract import device_digest
from tenant.gpu import cuda

SCHEMA = json.loads((Path(__file__).parents[3] / "config" / "schemas" / "record.schema.json").read_text())
VIEW_SCHEMA = {"$ref": "#/$defs/tenant/properties/view", "$defs": SCHEMA["$defs"]}
POD = {contract.GRANTED_VARIABLE: "1", contract.SHOWN_VARIABLE: "CUDA_DEVICE_SM_LIMIT"}


def pod_view(**environment: str) -> dict[str, Any]:
    view = startup.granted_view(POD | environment)
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("device", "is_mig"),
    [("GPU-1234", False), ("MIG-5678", True), ("MIG-5678,MIG-9", True), ("void", None), ("", None), ("all", None)],
)
def test_the_visible_device_shows_whether_it_is_a_mig_instance(device: str, is_mig: bool | None) -> None:
    assert pod_view(NVIDIA_VISIBLE_DEVICES=device)["is_mig"] is is_mig


def open_device(monkeypatch: pytest.MonkeyPatch, device: str, visible: str = "void") -> dict[str, Any]:
    """The view in a pod after opening the device; if devices came by CDI, `visible` is void."""
    for name, value in (POD | {contract.VISIBLE_DEVICES_VARIABLE: visible}).items():
        monkeypatch.setenv(name, value)
    view = startup._open_device(device)
    assert view is not None
    jsonschema_rs.validate(VIEW_SCHEMA, view)
    return view


def test_nvml_identifies_a_device_that_came_by_cdi(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml.nvmlInit()
    whole = pynvml.nvmlDeviceGetHandleByIndex(0)
    view = open_device(monkeypatch, "cpu")
    assert (view["is_mig"], view["device"]) == (False, device_digest(pynvml.nvmlDeviceGetUUID(whole)))
    mock_nvml.write_text("gpu 0: 1g.18gb\n")
    instance = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0))
    view = open_device(monkeypatch, "cpu")
    assert (view["is_mig"], view["device"]) == (True, device_digest(instance))


def test_the_variable_identifies_the_device_if_nvml_cannot(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mock_nvml.write_text("gpu 0: 1g.18gb 1g.18gb\n")
    view = open_device(monkeypatch, "cpu", "MIG-5678")
    assert (view["is_mig"], view["device"]) == (True, device_digest("MIG-5678"))
    view = open_device(monkeypatch, "cpu")
    assert (view["is_mig"], view["device"]) == (None, None)
    monkeypatch.setattr(pynvml, "nvmlInit", Mock(side_effect=pynvml.NVMLError_LibraryNotFound))
    view = open_device(monkeypatch, "cpu", "GPU-1234")
    assert (view["is_mig"], view["device"]) == (False, device_digest("GPU-1234"))


def test_cuda_identifies_a_device_that_came_by_cdi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "open_context", lambda: None)
    monkeypatch.setattr(cuda, "device_view", lambda: {"device": "0" * 16, "is_mig": True})
    view = open_device(monkeypatch, "cuda")
    assert (view["is_mig"], view["device"]) == (True, "0" * 16)


def test_outside_of_a_pod_there_is_no_granted_view() -> None:
    assert startup.granted_view({"NVIDIA_VISIBLE_DEVICES": "GPU-1234"}) is None
