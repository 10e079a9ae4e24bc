"""Base class of the torch model workloads, with their common parameters and random inputs.

A model workload creates its module and inputs within `building`, moves them with `to_device`, and passes them to
`prepare_model`, which also counts its work. Random values come from the CPU: the numbers that a GPU draws depend on
how many SMs it shows, so tenants under a limit would get others than the reference.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tenant.gpu.torch_device import TorchWorkload
from tenant.workload import DTYPES, Work

Movable = TypeVar("Movable", torch.Tensor, torch.nn.Module)

# Parameters of every model workload, for `with_defaults`.
COMMON_DEFAULTS = {"batch": 1, "dtype": tuple(name for name in DTYPES if name != "float64"), "graph": False}
# A processor draws slowly, so this number of values is repeated. It is odd, so that neighbouring rows of a matrix
# differ.
DISTINCT_VALUES = 2**20 + 7


def import_transformers() -> Any:
    """Import transformers in offline mode, which it reads from the environment when it is imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return importlib.import_module("transformers")


def random_images(batch: int, height: int, width: int) -> torch.Tensor:
    """Random images of shape (batch, 3, height, width), float32 on the CPU, with standard deviation 1 each.

    Their amplitude falls with 1 / frequency as that of photographs does, so that neighbouring pixels are similar.
    """
    noise = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0))
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None, :]
    frequency = torch.hypot(rows, columns)
    frequency[0, 0] = torch.inf
    images = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency, s=(height, width))
    return images / images.std(dim=(1, 2, 3), keepdim=True)


class Draw:
    """Draws random tensors on a device by repeating values from the CPU; each starts where the last one ended."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self._values = torch.randn(DISTINCT_VALUES, generator=generator).to(device, dtype)

    def __call__(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        count = torch.Size(shape).numel()
        drawn = self._values.repeat(-(-count // DISTINCT_VALUES))[:count].view(shape) * scale
        self._values = self._values.roll(-count)
        return drawn

    def matrix(self, rows: int, columns: int) -> torch.nn.Parameter:
        """Weights (rows, columns), scaled so that their outputs have the variance of their inputs."""
        return torch.nn.Parameter(self(rows, columns, scale=columns**-0.5), requires_grad=False)


class ModelWorkload(TorchWorkload):
    """Inference of one torch module on constant inputs; `library` is the package that defines it, if not torch."""

    def __init__(self, device: str, batch: int, dtype: str, graph: bool, library: str | None = None) -> None:
        super().__init__(device, graph, dtype)
        self.modules = ("torch",) if library is None else ("torch", library)
        self.batch = batch
        self.precision = DTYPES[dtype].precision

    def random_model(self, make: Callable[[], torch.nn.Module], gain: float = 1.0) -> torch.nn.Module:
        """The model that `make` returns, on the device, in the workload's dtype and with random weights.

        The outputs of a layer have `gain` times the deviation of its inputs; biases are 0.
        """
        with self.device:
            model = make()
        draw = Draw(self.device, torch.float32)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_(draw(*parameter.shape, scale=gain * parameter[0].numel() ** -0.5))
            elif name.endswith("bias"):
                parameter.zero_()
        return self.to_device(model)

    def to_device(self, movable: Movable) -> Movable:
        """Move a module or floating-point tensor to the device, in the workload's dtype."""
        return movable.to(device=self.device, dtype=self.torch_dtype)

    def prepare_model(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        select_output: Callable[[Any], torch.Tensor] = lambda output: output,
        state: tuple[torch.Tensor, ...] = (),
    ) -> None:
        """Make an iteration one call of `model` with `inputs`, and declare its work. Call it within `building`.

        `select_output` takes the main tensor from what the model returns. `state` lists tensors that it reads in
        addition to weights and inputs, such as a cache.
        """
        model.eval().requires_grad_(False)
        counter = FlopCounterMode(display=False)
        # Count without fused attention: its kernels differ by device, and the counter does not know all of them.
        with counter, sdpa_kernel(SDPBackend.MATH):
            output = select_output(model(**inputs))
        moved_bytes = sum(tensor.nbytes for tensor in (*_weights(model), *inputs.values(), *state, output))
        self.work = Work(float(counter.get_total_flops()), float(moved_bytes), self.batch, self.precision)
        self.prepare(lambda: select_output(model(**inputs)))


def _weights(model: torch.nn.Module) -> list[torch.Tensor]:
    """The tensors that one call reads in full: all weights but embedding tables, of which it reads a few rows."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    weights = (weight for weight in (*model.parameters(), *model.buffers()) if weight.is_floating_point())
    return [weight for weight in weights if id(weight) not in tables]
