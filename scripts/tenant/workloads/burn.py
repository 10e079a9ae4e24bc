"""Burns a GPU: one large matmul after another into a declared part of the memory, every result compared.

As gpu-burn does: the same product goes into each of many result matrices, one after the other, and each is compared
with the first one that was computed. An iteration is one product and its comparison; one with elements that differ
is an error.

Params: `size` (rows and columns), `dtype` (float32, float64, tf32, float16, bfloat16), `memory_fraction` (how much is
filled of what is free when the tenant starts).
"""

from __future__ import annotations

import torch

from tenant.failures import is_out_of_memory
from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import ELEMENTS, RequestError, Work

FRAMEWORKS = {"cpu": ("torch",), "cuda": ("torch",)}
# The relative difference that is still the same result, by bytes of an element.
TOLERANCES = {8: 1e-7, 4: 1e-3, 2: 1e-2}


class Burn(TorchWorkload):
    def __init__(self, device: str, size: int, dtype: str, memory_bytes: int) -> None:
        super().__init__(device, dtype=dtype)
        # Two factors are read and the result written; it and the reference are read to be compared.
        self.work = Work(2.0 * size**3, 5.0 * size**2 * ELEMENTS[dtype].bytes, 1, ELEMENTS[dtype].precision)
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
        number = self._next
        self.run()
        self._next = (number + 1) % len(self.results)
        if wrong := int(self._wrong):
            raise RequestError(f"{wrong} elements of result {number} are wrong")


def create(params: Params, device: str) -> Burn:
    defaults = {"size": 8192, "dtype": tuple(ELEMENTS), "memory_fraction": 0.9}
    size, dtype, fraction = with_defaults(params, defaults, "burn").values()
    if fraction > 1:
        raise ParameterError(f"burn memory_fraction must be at most 1, not {fraction:g}")
    if device != "cuda":
        raise ParameterError(f"burn needs device cuda, not {device}")
    free_bytes, _ = torch.cuda.mem_get_info()
    return Burn(device, size, dtype, int(fraction * free_bytes))
