"""Object detection by a transformer in the shape of YOLOS-small, as in the nos benchmark.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph). Its
weights are random, which makes no difference to the time.
"""

from __future__ import annotations

from typing import Any

from tenant.gpu.models import COMMON, ModelWorkload, import_transformers, random_images
from tenant.parameters import Params, with_defaults

transformers = import_transformers()

FRAMEWORKS = {"cpu": ("torch", "transformers"), "cuda": ("torch", "transformers")}
HEIGHT, WIDTH = 512, 864
SMALL = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "image_size": [HEIGHT, WIDTH],
    "num_labels": 91,
}


class Yolos(ModelWorkload):
    """One pass over the same images; the output is the classes of the 100 detections."""

    modules = ("torch", "transformers")

    def __init__(self, device: str, **common: Any) -> None:
        super().__init__(device, **common)
        with self.building():
            model = transformers.YolosForObjectDetection(transformers.YolosConfig(**SMALL))
            inputs = {"pixel_values": self.placed(random_images(self.batch, HEIGHT, WIDTH))}
            self.serve(self.placed(model), inputs, lambda output: output.logits)


def create(params: Params, device: str) -> Yolos:
    return Yolos(device, **with_defaults(params, COMMON, "yolos"))
