"""What a tenant reports of the device that its pod was given."""

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
VIEW = {"$ref": "#/$defs/tenant/properties/view", "$defs": SCHEMA["$defs"]}
POD = {contract.GRANTED_VARIABLE: "1", contract.SHOWN_VARIABLE: "CUDA_DEVICE_SM_LIMIT"}


def view(**environment: str) -> dict[str, Any]:
    found = startup.granted_view(POD | environment)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("device", "is_mig"),
    [("GPU-1234", False), ("MIG-5678", True), ("MIG-5678,MIG-9", True), ("void", None), ("", None), ("all", None)],
)
def test_whether_it_is_an_instance(device: str, is_mig: bool | None) -> None:
    assert view(NVIDIA_VISIBLE_DEVICES=device)["is_mig"] is is_mig


def opened(monkeypatch: pytest.MonkeyPatch, device: str, visible: str = "void") -> dict[str, Any]:
    """The view of a tenant in a pod whose devices came by CDI, so that the variable names none."""
    for name, value in (POD | {contract.VISIBLE_DEVICES_VARIABLE: visible}).items():
        monkeypatch.setenv(name, value)
    found = startup._open_device(device)
    assert found is not None
    jsonschema_rs.validate(VIEW, found)
    return found


def test_under_cdi_nvml_tells_the_device(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml.nvmlInit()
    whole = pynvml.nvmlDeviceGetHandleByIndex(0)
    seen = opened(monkeypatch, "cpu")
    assert (seen["is_mig"], seen["device"]) == (False, device_digest(pynvml.nvmlDeviceGetUUID(whole)))
    mock_nvml.write_text("gpu 0: 1g.18gb\n")
    instance = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0))
    seen = opened(monkeypatch, "cpu")
    assert (seen["is_mig"], seen["device"]) == (True, device_digest(instance))


def test_the_variable_counts_where_nvml_cannot_tell(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mock_nvml.write_text("gpu 0: 1g.18gb 1g.18gb\n")
    seen = opened(monkeypatch, "cpu", "MIG-5678")
    assert (seen["is_mig"], seen["device"]) == (True, device_digest("MIG-5678"))
    seen = opened(monkeypatch, "cpu")
    assert (seen["is_mig"], seen["device"]) == (None, None)
    monkeypatch.setattr(pynvml, "nvmlInit", Mock(side_effect=pynvml.NVMLError_LibraryNotFound))
    seen = opened(monkeypatch, "cpu", "GPU-1234")
    assert (seen["is_mig"], seen["device"]) == (False, device_digest("GPU-1234"))


def test_under_cdi_cuda_tells_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "open_context", lambda: None)
    monkeypatch.setattr(cuda, "device_view", lambda: {"device": "0" * 16, "is_mig": True})
    seen = opened(monkeypatch, "cuda")
    assert (seen["is_mig"], seen["device"]) == (True, "0" * 16)


def test_elsewhere_there_is_none() -> None:
    assert startup.granted_view({"NVIDIA_VISIBLE_DEVICES": "GPU-1234"}) is None
