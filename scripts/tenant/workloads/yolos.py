"""Object detection by a transformer in the shape of YOLOS-small, as in the nos benchmark.

Params: `batch`, `dtype` (float32, tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph), `path`
(a local folder with trained weights; without one they are random, which makes no difference to the time).
"""

from __future__ import annotations

from pathlib import Path

from tenant.gpu.models import ModelWorkload, Settings, import_transformers, local_path, pictures, read
from tenant.parameters import Params

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
    """One pass over the same pictures; the output is the classes of the 100 detections."""

    def __init__(self, device: str, settings: Settings, path: Path | None) -> None:
        super().__init__(device, settings)
        kind = transformers.YolosForObjectDetection
        with self.building():
            if path:
                model = kind.from_pretrained(path, local_files_only=True)
            else:
                model = kind(transformers.YolosConfig(**SMALL))
            inputs = {"pixel_values": self.placed(pictures(self.batch, HEIGHT, WIDTH))}
            self.serve(self.placed(model), inputs, lambda output: output.logits)

    def packages(self) -> dict[str, str]:
        """Versions of torch and transformers."""
        return {**super().packages(), "transformers": transformers.__version__}


def create(params: Params, device: str) -> Yolos:
    """Raises ParameterError for a parameter that does not exist or is not possible."""
    settings, own = read(params, {"path": ""}, "yolos")
    return Yolos(device, settings, local_path(own["path"], "yolos path"))
