"""Triton Inference Server from the wheel of nvidia-pytriton: `triton_server.py PORT [MODEL.onnx]`.

The model `served` takes FP32 `INPUT` and returns `OUTPUT`, in batches of up to 8. Without a file it is a small network
of random weights in torch, or else in numpy; with a file it runs in onnxruntime. Both use the GPU if they can; the
first line of output names library and device. It needs its own Python environment, because the wheel needs an older
numpy: docs/your-own-workload.md.
"""

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

# pytriton writes its files into the current folder, not the home folder.
os.environ.setdefault("PYTRITON_HOME", str(Path.cwd()))

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

Network = Callable[[np.ndarray], np.ndarray]


def small_network() -> tuple[tuple[int, ...], Network, str]:
    """Return the shape of an input without its batch dimension, the function of a batch, and library and device."""
    try:
        import torch
    except ModuleNotFoundError:
        layers = [
            np.random.rand(*pair).astype(np.float32) / pair[0] for pair in itertools.pairwise([16, *[512] * 8, 16])
        ]

        def infer(values: np.ndarray) -> np.ndarray:
            for weights in layers:
                values = np.maximum(values @ weights, 0)
            return values

        return (16,), infer, "numpy on the CPU"
    # 2 GiB of weights on a GPU, so that its work is not negligible next to Triton's cost of a request.
    device, width, depth = ("cuda", 4096, 32) if torch.cuda.is_available() else ("cpu", 512, 8)
    sizes = itertools.pairwise([16, *[width] * depth, 16])
    device_layers = [torch.rand(*pair, device=device) / pair[0] for pair in sizes]

    def infer_on_device(inputs: np.ndarray) -> np.ndarray:
        values = torch.from_numpy(inputs).to(device)
        for weights in device_layers:
            values = (values @ weights).relu()
        return values.cpu().numpy()

    return (16,), infer_on_device, f"torch on {device}"


def onnx_network(path: str) -> tuple[tuple[int, ...], Network, str]:
    """Like `small_network`, for an ONNX model with one input and one output, whose first dimension is the batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())
    (model_input,) = session.get_inputs()
    shape = tuple(size if isinstance(size, int) else -1 for size in model_input.shape[1:])
    # Providers that could be loaded, in the order of preference.
    library = f"onnxruntime on {', '.join(session.get_providers())}"
    return shape, lambda values: session.run(None, {model_input.name: values})[0], library


shape, network, library = onnx_network(sys.argv[2]) if len(sys.argv) > 2 else small_network()
print(f"served by {library}", flush=True)


@batch
def infer(INPUT: np.ndarray) -> dict[str, np.ndarray]:
    """Compute one batch."""
    return {"OUTPUT": network(INPUT)}


config = TritonConfig(http_address="127.0.0.1", http_port=int(sys.argv[1]), allow_grpc=False, allow_metrics=False)
with Triton(config=config) as triton:
    triton.bind(
        model_name="served",
        infer_func=infer,
        inputs=[Tensor(name="INPUT", dtype=np.float32, shape=shape)],
        outputs=[Tensor(name="OUTPUT", dtype=np.float32, shape=(-1,) * len(shape))],
        config=ModelConfig(max_batch_size=8),
    )
    triton.serve()
