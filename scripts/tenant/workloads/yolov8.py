"""Object detection by ultralytics' YOLOv8 nano, 480 x 640 pixels, in three stages that are timed separately.

`pre` moves the image to the device and scales it, `infer` runs the network, `post` selects the boxes (non-maximum
suppression) and copies them to the host. ultralytics is an optional extra under AGPL-3.0.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: `infer` replays one captured graph),
`path` (a local file with trained weights, such as yolov8n.pt; without it they are random, and `post` finds no boxes).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tenant.gpu.models import COMMON_DEFAULTS, ModelWorkload, random_images
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import TimeSample

# ultralytics reads these when it is imported: it must not probe the network or install packages.
os.environ.update({"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"})
try:
    from ultralytics.nn.tasks import DetectionModel, load_checkpoint
    from ultralytics.utils.nms import non_max_suppression
except ModuleNotFoundError as error:
    raise ParameterError(
        f"yolov8 needs {error.name}, which {sys.executable} lacks; ultralytics is an optional extra under AGPL-3.0: "
        f"{sys.executable} -m pip install ultralytics"
    ) from error

FRAMEWORKS = {"cpu": ("torch", "ultralytics"), "cuda": ("torch", "ultralytics")}
# The stages around the graph keep the interpreter busy, so tenants cannot share a process.
ONE_LAUNCH = False
HEIGHT, WIDTH = 480, 640
SHAPE = "yolov8n.yaml"
# By default, ultralytics stops suppressing boxes after a time limit, so a slow tenant would get other boxes.
NO_LIMIT_SECONDS = 3600.0


class YoloV8(ModelWorkload):
    """An iteration takes images in the host's memory and returns boxes in the host's memory."""

    def __init__(self, device: str, path: str, **common: Any) -> None:
        super().__init__(device, **common, library="ultralytics")
        images = random_images(self.batch, HEIGHT, WIDTH).mul(48).add(128).clamp(0, 255)
        self._pixels = images.to(torch.uint8)
        with self.building():
            model = load_checkpoint(Path(path).expanduser())[0] if path else DetectionModel(SHAPE, verbose=False)
            model = self.to_device(model.eval().fuse(verbose=False))
            self._input = torch.empty(self._pixels.shape, device=self.device, dtype=self.torch_dtype)
            self._pre()
            self.prepare_model(model, {"x": self._input}, lambda output: output[0])
        self.boxes: list[torch.Tensor] = []
        self.is_captured = ONE_LAUNCH

    def _pre(self) -> None:
        self._input.copy_(self._pixels.to(self.device)).div_(255)

    def _post(self) -> list[torch.Tensor]:
        selected: list[torch.Tensor] = non_max_suppression(self.output, max_time_img=NO_LIMIT_SECONDS)
        return [boxes.cpu() for boxes in selected]

    def step(self) -> None:
        """Run the three stages. On a GPU, scaling that is still queued when `pre` ends counts as part of `infer`."""
        begun_ns = time.monotonic_ns()
        self._pre()
        queued_ns = time.monotonic_ns()
        self.run()
        inferred_ns = time.monotonic_ns()
        self.boxes = self._post()
        done_ns = time.monotonic_ns()
        self.samples += (
            TimeSample("pre", begun_ns, queued_ns - begun_ns),
            TimeSample("infer", queued_ns, inferred_ns - queued_ns),
            TimeSample("post", inferred_ns, done_ns - inferred_ns),
        )

    def output_digest(self) -> list[float]:
        """Mean, deviation and maximum of all proposed coordinates, in pixels; their likelihoods may be close to 0."""
        coordinates = self.output[:, :4].double()
        return [float(coordinates.mean()), float(coordinates.std()), float(coordinates.max())]


def create(params: Params, device: str) -> YoloV8:
    values = with_defaults(params, {**COMMON_DEFAULTS, "path": ""}, "yolov8")
    if not Path(values["path"]).expanduser().exists():
        raise ParameterError(f"yolov8 path: {values['path']!r} does not exist on this machine; nothing is downloaded")
    return YoloV8(device, **values)
