import numpy as np
import pytest

from tenant import workloads
from tenant.workloads.matmul import Matmul
from tenant.workloads.memcopy import Memcopy


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matmul_multiplies(dtype: str) -> None:
    workload = workloads.create(workloads.load_module("matmul", "cpu"), {"size": 32, "dtype": dtype}, "cpu")
    assert isinstance(workload, Matmul)
    workload.step()
    expected = np.einsum("ij,jk->ik", workload._left.astype(float), workload._right.astype(float))
    assert workload.output_digest() == pytest.approx(
        [np.abs(expected).mean(), expected.max(), -expected.min()], rel=1e-5
    )
    assert workload.work.flop == 2 * 32**3
    assert workload.work.bytes == 3 * 32 * 32 * np.dtype(dtype).itemsize
    assert workload.packages() == {"numpy": np.__version__}


def test_memcopy_copies() -> None:
    workload = workloads.create(workloads.load_module("memcopy", "cpu"), {"mebibytes": 1}, "cpu")
    assert isinstance(workload, Memcopy)
    before = workload.output_digest()
    workload.step()
    assert (workload._copy == workload._source).all()
    assert workload.output_digest() != before
    assert workload.work.bytes == 2 * 2**20
