"""Object detection by a transformer of YOLOS-small's shape, as in the nos benchmark. Its weights are random.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph).
"""

from tenant.gpu.models import COMMON_DEFAULTS, ModelWorkload, import_transformers, random_images
from tenant.parameters import Params, with_defaults

transformers = import_transformers()
# Named here, since transformers imports a model when it is first named.
MODEL, CONFIG = transformers.YolosForObjectDetection, transformers.YolosConfig

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
    """An iteration is one forward pass over constant images; the output is the class logits of 100 detections."""
    yolos = ModelWorkload(device, **with_defaults(params, COMMON_DEFAULTS, "yolos"), library="transformers")
    with yolos.building():
        model = yolos.random_model(lambda: MODEL(CONFIG(**SMALL)))
        inputs = {"pixel_values": yolos.to_device(random_images(yolos.batch, HEIGHT, WIDTH))}
        yolos.prepare_model(model, inputs, lambda output: output.logits)
    return yolos
