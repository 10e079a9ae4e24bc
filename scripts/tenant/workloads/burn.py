"""Burns the device: one large matmul after another into a declared part of the memory, every result compared.

As gpu-burn does: the same product goes into each of many result matrices, one after the other, and each is compared
with the first one that was computed. An iteration is one product and its comparison; one with elements that differ
is an error.

Params: `size` (rows and columns), `dtype` (float32 or float64; on CUDA also float16, bfloat16 and tf32), and how much
memory is filled: `memory_fraction` of what is free when the tenant starts (CUDA), `mebibytes` (CPU).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenant.failures import is_out_of_memory
from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import CPU_DTYPES, ELEMENTS, RequestError, Work, Workload, digest

if TYPE_CHECKING:
    import torch

FRAMEWORKS = {"cuda": ("torch",)}
# The relative difference that is still the same result, by bytes of an element.
TOLERANCES = {8: 1e-7, 4: 1e-3, 2: 1e-2}


def _work(size: int, dtype: str) -> Work:
    # Two factors are read and the result written; it and the reference are read to be compared.
    return Work(2.0 * size**3, 5.0 * size**2 * ELEMENTS[dtype].bytes, 1, ELEMENTS[dtype].precision)


def _error(number: int, wrong: int) -> RequestError:
    return RequestError(f"{wrong} elements of result {number} are wrong")


class Burn(Workload):
    """With numpy, on a CPU."""

    modules = ("numpy",)

    def __init__(self, size: int, dtype: str, mebibytes: int) -> None:
        generator = np.random.default_rng(0)
        self._left, self._right = generator.standard_normal((2, size, size)).astype(dtype)
        self._reference = self._left @ self._right
        count = mebibytes * 2**20 // self._reference.nbytes - 3
        if count < 1:
            raise ParameterError(f"burn mebibytes: {mebibytes} cannot hold four matrices of {size} x {size}; set more")
        # Filled, so that the memory is really taken.
        self.results = np.full((count, size, size), np.nan, dtype)
        self._limit = TOLERANCES[ELEMENTS[dtype].bytes] * float(np.abs(self._reference).max())
        self._next = 0
        self.work = _work(size, dtype)

    def step(self) -> None:
        """One product into the next result, compared. Raises RequestError when it is wrong."""
        number, self._next = self._next, (self._next + 1) % len(self.results)
        result = self.results[number]
        np.matmul(self._left, self._right, out=result)
        # Written so that NaN counts as wrong.
        wrong = int(result.size - np.count_nonzero(np.abs(result - self._reference) <= self._limit))
        if wrong:
            raise _error(number, wrong)

    def output_digest(self) -> list[float]:
        return digest(self.results[self._next - 1].astype(np.float64))


class TorchBurn(TorchWorkload):
    """The same with torch, which takes what memory it gets: first come, first served."""

    def __init__(self, device: str, size: int, dtype: str, memory_bytes: int) -> None:
        import torch

        super().__init__(device, dtype=dtype)
        self.work = _work(size, dtype)
        self._next = 0
        with self.building():
            # Drawn on the CPU, because what a GPU draws depends on how many SMs it shows.
            left, right = torch.randn(2, size, size, dtype=torch.float64).to(self.device, self.element)
            # Before the memory is full: this is when the libraries take theirs.
            reference = torch.mm(left, right)
            limit = TOLERANCES[ELEMENTS[dtype].bytes] * reference.abs().max()
            self._wrong = ((reference - reference).abs() > limit).sum()
            self.synchronize()
            self.results = self._fill(reference, memory_bytes)

            def burn() -> torch.Tensor:
                result = self.results[self._next]
                torch.mm(left, right, out=result)
                # Written so that NaN counts as wrong.
                self._wrong = (~((result - reference).abs() <= limit)).sum()
                return result

            self.prepare(burn)

    def _fill(self, reference: torch.Tensor, memory_bytes: int) -> torch.Tensor:
        """As many results as fit, one at least; fewer where another tenant was faster."""
        import torch

        # The factors and the reference are there already, and what a comparison needs.
        count = max(1, memory_bytes // (reference.numel() * reference.element_size()) - 6)
        while True:
            try:
                return torch.full((count, *reference.shape), torch.nan, dtype=reference.dtype, device=self.device)
            except RuntimeError as error:
                if count == 1 or not is_out_of_memory(error):
                    raise
                count //= 2

    def step(self) -> None:
        """One product into the next result, compared. Raises RequestError when it is wrong."""
        number = self._next
        self.run()
        self._next = (number + 1) % len(self.results)
        if wrong := int(self._wrong):
            raise _error(number, wrong)


def create(params: Params, device: str) -> Workload:
    dtypes = tuple(ELEMENTS) if device == "cuda" else CPU_DTYPES
    defaults = {"size": 512, "dtype": dtypes, "memory_fraction": 0.9, "mebibytes": 64}
    size, dtype, fraction, mebibytes = with_defaults(params, defaults, "burn").values()
    if fraction > 1:
        raise ParameterError(f"burn memory_fraction must be at most 1, not {fraction:g}")
    if device != "cuda":
        return Burn(size, dtype, mebibytes)
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return TorchBurn(device, size, dtype, int(fraction * free_bytes))
