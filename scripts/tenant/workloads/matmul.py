"""Square matrix product: bound by arithmetic, as a small dense layer is. numpy on a CPU, torch on CUDA.

Params: `size` (rows and columns), `dtype` (float32 or float64; on CUDA also float16, bfloat16, tf32, which is float32
with TF32 allowed, and float8, whose product is bfloat16), `graph` (CUDA only: replay one captured graph).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import ParameterError, Params, boolean, one_of, positive_integer, with_defaults
from tenant.workload import CPU_DTYPES, ELEMENTS, Element, Work, Workload, digest

if TYPE_CHECKING:
    import torch

FRAMEWORKS = {"cuda": ("torch",)}
CUDA_DTYPES = {**ELEMENTS, "float8": Element("fp8", 1)}
# A prime.
DRAWN = 1_048_583
FLOAT8_CAPABILITY = (8, 9)
FLOAT8_MULTIPLE = 16


def _work(size: int, dtype: str) -> Work:
    element = CUDA_DTYPES[dtype]
    # The product of float8 is bfloat16.
    return Work(2.0 * size**3, float(size**2 * (2 * element.bytes + max(element.bytes, 2))), 1, element.precision)


class Matmul(Workload):
    """`size` x `size` times `size` x `size` on a CPU, into the same output each time."""

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
        return digest(self._product.astype(np.float64))


class TorchMatmul(TorchWorkload):
    """The same with torch, on any device of its; raises ParameterError where the GPU has no such arithmetic."""

    def __init__(self, device: str, size: int, dtype: str, graph: bool) -> None:
        import torch

        super().__init__(device, graph, "float32" if dtype == "float8" else dtype)
        self.work = _work(size, dtype)
        with self.building():
            if dtype == "float8":
                self._prepare_float8(size)
                return
            left, right = self._normal(size, self.element), self._normal(size, self.element)
            product = torch.empty_like(left)
            self.prepare(lambda: torch.mm(left, right, out=product))

    def _normal(self, size: int, kind: torch.dtype) -> torch.Tensor:
        import torch

        # Drawn on the CPU, because what a GPU draws depends on how many SMs it shows. A large matrix repeats its
        # draws, with a period that no row has, so that making it does not take seconds.
        drawn = torch.randn(min(size**2, DRAWN), dtype=torch.float64).to(self.device, kind)
        return drawn.repeat(-(-(size**2) // drawn.numel()))[: size**2].view(size, size)

    def _prepare_float8(self, size: int) -> None:
        import torch

        if torch.cuda.get_device_capability() < FLOAT8_CAPABILITY:
            wanted = ".".join(map(str, FLOAT8_CAPABILITY))
            raise ParameterError(f"matmul dtype float8 needs a GPU of compute capability {wanted} or higher")
        if size % FLOAT8_MULTIPLE:
            raise ParameterError(f"matmul size must be a multiple of {FLOAT8_MULTIPLE} for float8, not {size}")
        kind = torch.float8_e4m3fn
        left = self._normal(size, torch.float32).to(kind)
        # The second factor has to be stored by columns.
        right = self._normal(size, torch.float32).to(kind).t()
        scale = torch.ones((), device=self.device)
        product = torch.empty(size, size, dtype=torch.bfloat16, device=self.device)
        self.prepare(lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16, out=product))


def create(params: Params, device: str) -> Workload:
    values = with_defaults(params, {"size": 256, "dtype": "float32", "graph": False}, "matmul")
    size = positive_integer(values["size"], "matmul size")
    graph = boolean(values["graph"], "matmul graph")
    dtype = one_of(values["dtype"], CUDA_DTYPES if device == "cuda" else CPU_DTYPES, "matmul dtype")
    if device == "cuda":
        return TorchMatmul(device, size, dtype, graph)
    if graph:
        raise ParameterError("matmul graph: true needs device cuda, not cpu")
    return Matmul(size, dtype)
