"""Classification of images by torchvision's ResNet-50, 224 x 224 pixels.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph),
`channels_last` (the other order in memory, which tensor cores prefer), `path` (a local file with trained weights, as
torch saves them; without one they are random).
"""

from __future__ import annotations

from pathlib import Path

import torch

from tenant.gpu.models import ModelWorkload, Settings, local_path, random_images, read
from tenant.parameters import ParameterError, Params, boolean

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

    def __init__(self, device: str, settings: Settings, channels_last: bool, path: Path | None) -> None:
        super().__init__(device, settings)
        order = torch.channels_last if channels_last else torch.contiguous_format
        with self.building():
            model = torchvision.models.resnet50(weights=None)
            if path:
                model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
            image = self.placed(random_images(self.batch, SIDE, SIDE)).to(memory_format=order)
            self.serve(self.placed(model).to(memory_format=order), {"x": image})


def create(params: Params, device: str) -> ResNet50:
    settings, own = read(params, {"channels_last": False, "path": ""}, "resnet50")
    channels_last = boolean(own["channels_last"], "resnet50 channels_last")
    return ResNet50(device, settings, channels_last, local_path(own["path"], "resnet50 path"))
