"""Classification of images by torchvision's ResNet-50, 224 x 224 pixels.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph). Its
weights are random.
"""

from __future__ import annotations

from typing import Any

import torch

from tenant.gpu.models import COMMON, ModelWorkload, random_images
from tenant.parameters import ParameterError, Params, with_defaults

try:
    import torchvision
except RuntimeError as error:
    raise ParameterError(
        f"resnet50 needs the torchvision that was built for torch {torch.__version__} ({str(error).splitlines()[0]}); "
        "run `make gpu-env`"
    ) from error

FRAMEWORKS = {"cpu": ("torch", "torchvision"), "cuda": ("torch", "torchvision")}
SIDE = 224


class ResNet50(ModelWorkload):
    """One pass over the same images; the output is the 1000 classes."""

    modules = ("torch", "torchvision")

    def __init__(self, device: str, **common: Any) -> None:
        super().__init__(device, **common)
        with self.building():
            model = torchvision.models.resnet50(weights=None)
            self.serve(self.placed(model), {"x": self.placed(random_images(self.batch, SIDE, SIDE))})


def create(params: Params, device: str) -> ResNet50:
    return ResNet50(device, **with_defaults(params, COMMON, "resnet50"))
