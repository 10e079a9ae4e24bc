"""GPU stress test in the manner of gpu-burn: large matmuls into a set share of the memory, each result checked.

The same matmul is written to one of many result matrices after another and compared with a reference that was computed
first. An iteration is one matmul and its comparison; it fails if any elements differ.

Params: `size` (rows and columns), `dtype` (float32, float64, tf32, float16, bfloat16), `memory_fraction` (share of the
free memory at the tenant's start that is filled).
"""

from __future__ import annotations

import torch

from tenant.failures import is_out_of_memory
from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import DTYPES, RequestError, Work

FRAMEWORKS = {"cpu": ("torch",), "cuda": ("torch",)}
# Largest difference of equal results, relative to the largest element, by bytes of an element.
TOLERANCES = {8: 1e-7, 4: 1e-3, 2: 1e-2}


class Burn(TorchWorkload):
    def __init__(self, device: str, size: int, dtype: str, memory_bytes: int) -> None:
        super().__init__(device, dtype=dtype)
        # The matmul reads two factors and writes the result; the comparison reads the result and the reference.
        self.work = Work(2.0 * size**3, 5.0 * size**2 * DTYPES[dtype].bytes, 1, DTYPES[dtype].precision)
        self._next = 0
        with self.building():
            # Drawn on the CPU, because the numbers that a GPU draws depend on how many SMs it shows.
            left, right = torch.randn(2, size, size, dtype=torch.float64).to(self.device, self.torch_dtype)
            # Computed before the memory is full, because the libraries allocate their workspaces here.
            reference = torch.mm(left, right)
            limit = TOLERANCES[DTYPES[dtype].bytes] * reference.abs().max()
            self._wrong_count = ((reference - reference).abs() > limit).sum()
            self.synchronize()
            self.results = self._allocate_results(reference, memory_bytes)

            def burn() -> torch.Tensor:
                result = self.results[self._next]
                torch.mm(left, right, out=result)
                # Negated, so that NaN counts as wrong.
                self._wrong_count = (~((result - reference).abs() <= limit)).sum()
                return result

            self.prepare(burn)

    def _allocate_results(self, reference: torch.Tensor, memory_bytes: int) -> torch.Tensor:
        """Allocate as many results as fit, at least one; fewer if another tenant took the memory first."""
        # Six matrices are needed besides: the factors, the reference, and the temporaries of a comparison.
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
        if wrong_count := int(self._wrong_count):
            raise RequestError(f"{wrong_count} elements of result {number} are wrong")


def create(params: Params, device: str) -> Burn:
    defaults = {"size": 8192, "dtype": tuple(DTYPES), "memory_fraction": 0.9}
    size, dtype, fraction = with_defaults(params, defaults, "burn").values()
    if fraction > 1:
        raise ParameterError(f"burn memory_fraction must be at most 1, not {fraction:g}")
    if device != "cuda":
        raise ParameterError(f"burn needs device cuda, not {device}")
    free_bytes, _ = torch.cuda.mem_get_info()
    return Burn(device, size, dtype, int(fraction * free_bytes))
