"""What the torch model workloads share: parameters, generated inputs, and the work that an inference declares.

A model workload makes its module and inputs in `building`, moves them with `placed`, and calls `serve`.
Inputs and random weights are drawn on the CPU: what a GPU draws depends on how many SMs it shows, and tenants under
a limit would get other numbers than the reference.
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
from tenant.workload import ELEMENTS, Work

Placed = TypeVar("Placed", torch.Tensor, torch.nn.Module)

# The parameters of every model workload; the first type is the default.
COMMON = {"batch": 1, "dtype": tuple(name for name in ELEMENTS if name != "float64"), "graph": False}


def import_transformers() -> Any:
    """The package transformers, which reads when it is imported whether it may look for a network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return importlib.import_module("transformers")


def random_images(batch: int, height: int, width: int) -> torch.Tensor:
    """Random images (batch, 3, height, width), float32 on the CPU, normalised as models expect them.

    Their spectrum falls as that of photographs does, 1 / frequency, so that neighbouring pixels are alike.
    """
    noise = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0))
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None, :]
    frequency = torch.hypot(rows, columns)
    frequency[0, 0] = torch.inf
    drawn = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency, s=(height, width))
    return drawn / drawn.std(dim=(1, 2, 3), keepdim=True)


class ModelWorkload(TorchWorkload):
    """Inference of one torch module on inputs that stay the same; `library` is where it comes from, besides torch."""

    def __init__(self, device: str, batch: int, dtype: str, graph: bool, library: str | None = None) -> None:
        super().__init__(device, graph, dtype)
        self.modules = ("torch",) if library is None else ("torch", library)
        self.batch = batch
        self.precision = ELEMENTS[dtype].precision

    def placed(self, thing: Placed) -> Placed:
        """A module or a floating-point tensor on the device in the wanted precision."""
        return thing.to(device=self.device, dtype=self.element)

    def serve(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        pick: Callable[[Any], torch.Tensor] = lambda output: output,
        state: tuple[torch.Tensor, ...] = (),
    ) -> None:
        """Make each iteration one call of the module with these inputs, and declare its work; within `building`.

        `pick` takes the main output from what the module returns; `state` is what it reads besides its weights.
        """
        model.eval().requires_grad_(False)
        counter = FlopCounterMode(display=False)
        # Without fused attention, whose kernels differ by device and are not all known to the counter.
        with counter, sdpa_kernel(SDPBackend.MATH):
            output = pick(model(**inputs))
        moved = sum(tensor.nbytes for tensor in (*_weights(model), *inputs.values(), *state, output))
        self.work = Work(float(counter.get_total_flops()), float(moved), self.batch, self.precision)
        self.prepare(lambda: pick(model(**inputs)))


def _weights(model: torch.nn.Module) -> list[torch.Tensor]:
    """What one call reads in full; of an embedding's table it reads a few rows, which are left out."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    weights = (weight for weight in (*model.parameters(), *model.buffers()) if weight.is_floating_point())
    return [weight for weight in weights if id(weight) not in tables]
