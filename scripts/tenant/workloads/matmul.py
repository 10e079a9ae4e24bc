"""Square matrix product with numpy: bound by arithmetic, as a small dense layer is.

Params: `size` (rows and columns), `dtype` (float32 or float64).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenant.parameters import ParameterError, positive_integer, with_defaults
from tenant.workloads import Work, Workload

DTYPES = ("float32", "float64")


class Matmul(Workload):
    """`size` x `size` times `size` x `size`, into the same output each time."""

    def __init__(self, size: int, dtype: str) -> None:
        generator = np.random.default_rng(0)
        self._left = generator.standard_normal((size, size)).astype(dtype)
        self._right = generator.standard_normal((size, size)).astype(dtype)
        self._product = np.zeros_like(self._left)
        self.work = Work(flop=2.0 * size**3, bytes=3.0 * self._left.nbytes, items=1)

    def step(self) -> None:
        """One product."""
        np.matmul(self._left, self._right, out=self._product)

    def output_digest(self) -> list[float]:
        """Mean magnitude, largest and negated smallest element."""
        product = self._product.astype(np.float64)
        return [float(np.abs(product).mean()), float(product.max()), float(-product.min())]

    def packages(self) -> dict[str, str]:
        """The version of numpy, which brings its BLAS along."""
        return {"numpy": np.__version__}


def create(params: Mapping[str, Any]) -> Matmul:
    """Raises ParameterError for a parameter that does not exist or is not possible."""
    values = with_defaults(params, {"size": 256, "dtype": "float32"}, "matmul")
    if values["dtype"] not in DTYPES:
        raise ParameterError(f"matmul dtype must be one of {', '.join(DTYPES)}, not {values['dtype']!r}")
    return Matmul(positive_integer(values["size"], "matmul size"), values["dtype"])
