"""Tests of what a strategy promises (tenant/tasks.py), for config/conformance.yaml.

Params: none.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from typing import Any

import numpy as np

from tenant.parameters import Params, with_defaults
from tenant.tasks import BATCHES, Answers, Tasks
from tenant.usage import peak_resident_bytes

FRAMEWORKS = {"cuda": ("torch",)}
ONE_LAUNCH = True
# On a CPU a busy iteration hashes this number of chunks, on as many threads as the tenant has cores.
CHUNK = bytes(1 << 18)
CHUNKS = 12
LIGHT_BYTES = 1 << 17
# Number of rows and columns of the weights, for float32 products on a CPU.
CPU_SHAPES = ((1024, 512), (512, 1024), (768, 768))


class CpuTasks(Tasks):
    """Cores stand in for SMs, and address space for device memory."""

    modules = ("numpy",)
    # The memory of this host, which is not only the stand-in's.
    most_pattern_bytes = 64 << 20

    def __init__(self) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._digest = b""

    def _busy(self) -> None:
        # Hashing releases the interpreter's lock.
        self._digest = list(self._pool.map(_hashed, [CHUNK] * CHUNKS))[-1]

    def _light(self) -> None:
        self._digest = _hashed(CHUNK[:LIGHT_BYTES])

    def output_digest(self) -> list[float]:
        # Modes have different outputs.
        return [1.0 + _hashed(CHUNK)[0]]

    def _total_bytes(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def _free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def _is_allocatable(self, size_bytes: int) -> bool:
        # Pages that are not touched do not exist, so that this host does not run out of memory.
        try:
            mmap(-1, size_bytes).close()
        except OSError:
            return False
        return True

    def _filled(self, size_bytes: int) -> np.ndarray:
        return np.full(size_bytes // 4, self.pattern, dtype=np.uint32)

    def look(self) -> dict[str, Any]:
        seen = np.empty(self._pattern_bytes() // 4, dtype=np.uint32)
        return {"looked_bytes": seen.nbytes, "found_bytes": 4 * int((seen == self.pattern).sum())}

    def look_shared(self, rounds: int) -> dict[str, Any]:
        return {}

    def answers(self) -> dict[str, Any]:
        answers, generator = Answers(), np.random.default_rng(0)
        for rows, columns in CPU_SHAPES:
            weights = (generator.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)
            for batch in BATCHES:
                vectors = generator.standard_normal((batch, columns)).astype(np.float32)
                right = vectors.astype(np.float64) @ weights.T.astype(np.float64)
                error = float(np.abs(self._product(vectors, weights) - right).max())
                answers.add("linear", "fp32", (rows, columns), batch, error)
        return {**vars(answers), "versions": {"numpy": np.__version__}}

    def _product(self, vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
        product: np.ndarray = vectors @ weights.T
        return product

    def memory_bytes(self) -> int | None:
        return peak_resident_bytes()


def _hashed(chunk: bytes) -> bytes:
    return hashlib.sha256(chunk).digest()


def create(params: Params, device: str) -> Tasks:
    with_defaults(params, {}, "conformance")
    if device == "cuda":
        from tenant.gpu.conformance import CudaTasks

        return CudaTasks()
    return CpuTasks()
