"""Matmul of square matrices: bound by arithmetic, as a small dense layer is. numpy on a CPU, torch on CUDA.

Params: `size` (rows and columns), `dtype` (float32 or float64; on CUDA also float16, bfloat16, and tf32, which is
float32 with TF32 allowed), `graph` (CUDA only: replay one captured graph).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import CPU_DTYPES, DTYPES, Work, Workload, array_digest

if TYPE_CHECKING:
    import torch

FRAMEWORKS = {"cuda": ("torch",)}
# A prime, so that no two rows of a matrix of repeated values are equal.
DISTINCT_VALUES = 1_048_583


def _work(size: int, dtype: str) -> Work:
    return Work(2.0 * size**3, 3.0 * size**2 * DTYPES[dtype].bytes, 1, DTYPES[dtype].precision)


class Matmul(Workload):
    """An iteration multiplies two (size, size) matrices with numpy into the same output array."""

    modules = ("numpy",)

    def __init__(self, size: int, dtype: str) -> None:
        generator = np.random.default_rng(0)
        self._left = generator.standard_normal((size, size)).astype(dtype)
        self._right = generator.standard_normal((size, size)).astype(dtype)
        self._product = np.zeros_like(self._left)
        self.work = _work(size, dtype)

    def step(self) -> None:
        np.matmul(self._left, self._right, out=self._product)

    def output_digest(self) -> list[float]:
        return array_digest(self._product.astype(np.float64))


class TorchMatmul(TorchWorkload):
    def __init__(self, device: str, size: int, dtype: str, graph: bool) -> None:
        import torch

        super().__init__(device, graph, dtype)
        self.work = _work(size, dtype)
        with self.building():
            left, right = self._random_matrix(size), self._random_matrix(size)
            product = torch.empty_like(left)
            self.prepare(lambda: torch.mm(left, right, out=product))

    def _random_matrix(self, size: int) -> torch.Tensor:
        """Normal random values (size, size). A large matrix repeats them, because drawing would take seconds."""
        import torch

        # Drawn on the CPU, because the numbers that a GPU draws depend on how many SMs it shows.
        values = torch.randn(min(size**2, DISTINCT_VALUES), dtype=torch.float64).to(self.device, self.torch_dtype)
        return values.repeat(-(-(size**2) // values.numel()))[: size**2].view(size, size)


def create(params: Params, device: str) -> Workload:
    dtypes = tuple(DTYPES) if device == "cuda" else CPU_DTYPES
    size, dtype, graph = with_defaults(params, {"size": 256, "dtype": dtypes, "graph": False}, "matmul").values()
    if device == "cuda":
        return TorchMatmul(device, size, dtype, graph)
    if graph:
        raise ParameterError("matmul graph: true needs device cuda, not cpu")
    return Matmul(size, dtype)
