"""Object detection by a transformer in the shape of YOLOS-small, as in the nos benchmark.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph). Its
weights are random, which makes no difference to the time.
"""

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


def create(params: Params, device: str) -> ModelWorkload:
    """One pass over the same images; the output is the classes of the 100 detections."""
    yolos = ModelWorkload(device, **with_defaults(params, COMMON, "yolos"), library="transformers")
    with yolos.building():
        model = transformers.YolosForObjectDetection(transformers.YolosConfig(**SMALL))
        inputs = {"pixel_values": yolos.placed(random_images(yolos.batch, HEIGHT, WIDTH))}
        yolos.serve(yolos.placed(model), inputs, lambda output: output.logits)
    return yolos
