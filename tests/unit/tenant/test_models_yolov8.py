"""YOLOv8 on a CPU: stages that add up to the iteration. Skipped without ultralytics, an optional extra."""

import importlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tenant import workloads

for package in ("torch", "ultralytics"):
    pytest.importorskip(package, reason=f"{package} is not in the pipeline's environment")

torch = importlib.import_module("torch")
yolov8 = importlib.import_module("tenant.workloads.yolov8")


@pytest.fixture
def workload() -> Iterator[Any]:
    """A workload that is attached for the duration of the test."""
    yolo = workloads.create(yolov8, {"batch": 2}, "cpu")
    yolo.attach()
    yield yolo
    yolo._thread_context.close()


def test_yolov8_has_the_operations_of_the_literature(workload: Any) -> None:
    # 8.7 billion at 640 x 640.
    assert workload.work.flop == pytest.approx(2 * 8.7e9 * 480 / 640, rel=0.02)
    assert workload.work.items == 2


def test_stages_add_up_to_the_iteration(workload: Any) -> None:
    begin_ns = time.monotonic_ns()
    workload.step()
    end_ns = time.monotonic_ns()
    samples = workload.samples
    assert [sample.kind for sample in samples] == ["pre", "infer", "post"]
    assert begin_ns <= samples[0].begun_ns
    for earlier, later in itertools.pairwise(samples):
        assert earlier.begun_ns + earlier.duration_ns == later.begun_ns
    assert samples[-1].begun_ns + samples[-1].duration_ns <= end_ns
    assert max(samples, key=lambda sample: sample.duration_ns).kind == "infer"
    assert sum(sample.duration_ns for sample in samples) > 0.9 * (end_ns - begin_ns)


def test_boxes_are_selected_from_the_networks_output(workload: Any) -> None:
    workload.step()
    assert [tuple(boxes.shape) for boxes in workload.boxes] == [(0, 6), (0, 6)]
    # Two certain objects far apart, and one that almost covers the first.
    output = torch.zeros_like(workload.output)
    output[0, :4, :3] = torch.tensor([[50.0, 51.0, 300.0], [50, 50, 300], [40, 40, 40], [40, 40, 40]])
    output[0, 4, :3] = torch.tensor([0.9, 0.8, 0.7])
    workload.output = output
    assert [len(boxes) for boxes in workload._post()] == [2, 0]
