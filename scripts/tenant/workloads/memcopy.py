"""Copy of a buffer larger than the caches: bound by memory bandwidth. numpy on a CPU, torch on CUDA.

Params: `mebibytes` (size of the buffer; source and copy together take twice as much).
"""

import numpy as np

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import Params, with_defaults
from tenant.workload import Work, Workload

FRAMEWORKS = {"cuda": ("torch",)}
# Every STRIDE-th element is 2, all others are 1.
STRIDE = 4096


class Memcopy(Workload):
    modules = ("numpy",)

    def __init__(self, mebibytes: int) -> None:
        size = mebibytes * 2**20 // 8
        self._source = np.empty(size)
        self._source[:] = 1.0
        self._source[::STRIDE] = 2.0
        # Written once here, so that no iteration has to fault in a page.
        self._copy = np.zeros(size)
        self._copy[:] = -1.0
        self.work = Work(flop=None, bytes=2.0 * self._source.nbytes, items=1)

    def step(self) -> None:
        np.copyto(self._copy, self._source)

    def output_digest(self) -> list[float]:
        return [float(self._copy.mean()), float(self._copy[-1])]


class TorchMemcopy(TorchWorkload):
    def __init__(self, device: str, mebibytes: int) -> None:
        import torch

        super().__init__(device)
        self.work = Work(flop=None, bytes=2.0 * mebibytes * 2**20, items=1)
        with self.building():
            source = torch.ones(mebibytes * 2**20 // 8, dtype=torch.float64, device=self.device)
            source[::STRIDE] = 2.0
            copy = torch.empty_like(source)
            self.prepare(lambda: copy.copy_(source))

    def output_digest(self) -> list[float]:
        return [float(self.output.mean()), float(self.output[-1])]


def create(params: Params, device: str) -> Workload:
    mebibytes = with_defaults(params, {"mebibytes": 64}, "memcopy")["mebibytes"]
    return TorchMemcopy(device, mebibytes) if device == "cuda" else Memcopy(mebibytes)
