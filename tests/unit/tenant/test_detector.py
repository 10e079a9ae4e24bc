"""The trained detector finds text where there is text, on one thread, without importing the wheel it came with."""

import importlib.metadata
import subprocess
import sys
from typing import Any

import psutil
import pytest
from unit.tenant.conftest import SCRIPTS

from tenant import workloads
from tenant.parameters import ParameterError
from tenant.workloads import detector
from tenant.workloads.detector import Detector


def make(**params: Any) -> Detector:
    workload = workloads.create(workloads.load_module("detector", "cpu"), params, "cpu")
    assert isinstance(workload, Detector)
    workload.step()
    return workload


@pytest.mark.parametrize(("height", "width"), [(64, 64), (96, 160)])
def test_text_is_found_where_it_is(height: int, width: int) -> None:
    likelihood = make(height=height, width=width, batch=2)._likelihood
    _, line = detector.draw(2, height, width)
    assert likelihood.shape == (2, 1, height, width)
    for picture in likelihood[:, 0]:
        assert picture[line].mean() > 0.5
        assert picture[~line].mean() < 0.05


def test_without_text_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "DIGITS", ((0,) * 7,) * 10)
    assert make()._likelihood.max() < 0.1


def test_the_output_is_the_same_for_every_tenant_and_summed_up_by_more_than_zeros() -> None:
    first, second = make().output_digest(), make().output_digest()
    assert first == second
    assert min(first) > 0.1


def test_declared_work() -> None:
    workload = make(batch=3)
    assert workload.packages() == {name: importlib.metadata.version(name) for name in ("onnxruntime", "rapidocr")}
    work = workload.work
    assert (work.items, work.precision, work.flop) == (3, "fp32", None)
    weights = work.bytes - 3 * (3 + 1) * 64 * 64 * 4
    assert weights == detector.model_path().stat().st_size > 9e6


def test_it_runs_in_the_thread_that_calls() -> None:
    before = psutil.Process().num_threads()
    workload = make()
    workload.step()
    assert psutil.Process().num_threads() == before


def test_nothing_of_the_wheel_is_imported() -> None:
    code = "import sys; from tenant.workloads import detector; detector.create({}, 'cpu').step(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert {"onnxruntime", "tenant"} <= set(done.stdout.split())
    assert not {"rapidocr", "cv2", "shapely"} & set(done.stdout.split())


def test_an_onnxruntime_without_cuda_is_told_from_a_gpu_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ParameterError, match=r"needs onnxruntime-gpu, .* without CUDA; run `make gpu-env`$"):
        detector.create({}, "cuda")


def test_a_session_that_fell_back_to_the_cpu_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(detector.onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(RuntimeError, match="could not use the GPU"):
        detector.create({}, "cuda")


def test_a_wheel_without_the_network_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "files", lambda _name: [])
    with pytest.raises(ParameterError, match=r"^detector: rapidocr [\d.]+ has no PP-OCRv6_det_small.onnx; install"):
        make()
