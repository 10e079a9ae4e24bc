"""Image classification by torchvision's ResNet-50 with random weights, 224 x 224 pixels.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph).
"""

import torch

from tenant.gpu.models import COMMON_DEFAULTS, ModelWorkload, random_images
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
    """An iteration is one forward pass over constant images; the output is the logits of 1000 classes."""
    resnet = ModelWorkload(device, **with_defaults(params, COMMON_DEFAULTS, "resnet50"), library="torchvision")
    with resnet.building():
        # Half of what a rectifier gets is lost.
        model = resnet.random_model(lambda: torchvision.models.resnet50(weights=None), gain=2**0.5)
        resnet.prepare_model(model, {"x": resnet.to_device(random_images(resnet.batch, SIDE, SIDE))})
    return resnet
