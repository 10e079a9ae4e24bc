"""The trained detector: it finds text where there is text, on one thread, without importing rapidocr."""

import importlib.metadata
from typing import Any

import psutil
import pytest

from tenant import workloads
from tenant.workloads import detector
from tenant.workloads.detector import Detector


def make(**params: Any) -> Detector:
    workload = workloads.create(workloads.load_module("detector", "cpu"), params, "cpu")
    assert isinstance(workload, Detector)
    workload.step()
    return workload


@pytest.mark.parametrize(("height", "width"), [(64, 64), (96, 160)])
def test_the_detector_finds_text_where_it_is(height: int, width: int) -> None:
    likelihood = make(height=height, width=width, batch=2)._likelihood
    _, line = detector.draw_digits(2, height, width)
    assert likelihood.shape == (2, 1, height, width)
    for image in likelihood[:, 0]:
        assert image[line].mean() > 0.5
        assert image[~line].mean() < 0.05


def test_the_detector_finds_nothing_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "DIGITS", ((0,) * 7,) * 10)
    assert make()._likelihood.max() < 0.1


def test_every_tenant_has_the_same_digest_which_is_not_close_to_zero() -> None:
    first, second = make().output_digest(), make().output_digest()
    assert first == second
    assert min(first) > 0.1


def test_the_detector_declares_its_work() -> None:
    workload = make(batch=3)
    assert workload.packages() == {name: importlib.metadata.version(name) for name in ("onnxruntime", "rapidocr")}
    work = workload.work
    assert (work.items, work.precision, work.flop) == (3, "fp32", None)
    weights = work.bytes - 3 * (3 + 1) * 64 * 64 * 4
    assert weights == detector.model_path().stat().st_size > 9e6


def test_the_detector_runs_in_the_calling_thread() -> None:
    before = psutil.Process().num_threads()
    workload = make()
    workload.step()
    assert psutil.Process().num_threads() == before


def test_a_session_that_fell_back_to_the_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(detector.onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(RuntimeError, match="could not use the GPU"):
        detector.create({}, "cuda")
