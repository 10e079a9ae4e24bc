"""Classification of images by torchvision's ResNet-50, 224 x 224 pixels.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph). Its
weights are random.
"""

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


def create(params: Params, device: str) -> ModelWorkload:
    """One pass over the same images; the output is the 1000 classes."""
    resnet = ModelWorkload(device, **with_defaults(params, COMMON, "resnet50"), library="torchvision")
    with resnet.building():
        model = torchvision.models.resnet50(weights=None)
        resnet.serve(resnet.placed(model), {"x": resnet.placed(random_images(resnet.batch, SIDE, SIDE))})
    return resnet
