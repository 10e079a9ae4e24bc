"""Torch workloads on a CPU; streams, graphs and events need a GPU (tests/gpu)."""

import threading

import numpy as np
import pytest

from tenant.gpu.torch_device import TorchWorkload
from tenant.workloads import matmul, memcopy

torch = pytest.importorskip("torch")


class Doubling(TorchWorkload):
    """Adds its output to itself."""

    def __init__(self) -> None:
        super().__init__("cpu")
        with self.building():
            values = torch.tensor([1.0, -3.0, 2.0], device=self.device)
            assert values.is_inference()
            self.prepare(lambda: values.mul_(2))


def test_a_step_is_a_forward_pass_in_inference_mode_in_the_loops_thread() -> None:
    workload = Doubling()
    seen = []

    def loop() -> None:
        workload.attach()
        seen.append(torch.is_inference_mode_enabled())
        workload.step()
        workload.step()

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert seen == [True]
    assert not torch.is_inference_mode_enabled()
    assert workload.output_digest() == [8.0, 8.0, 12.0]
    assert workload.packages()["torch"] == torch.__version__
    assert (workload.memory_bytes() or 0) > 2**20
    # A CPU has no device time.
    assert workload.samples == []


def test_a_digest_is_computed_in_double_precision() -> None:
    workload = Doubling()
    workload.output = torch.full((4096,), 1 + 2**-7, dtype=torch.bfloat16)
    assert workload.output_digest() == [1 + 2**-7, 1 + 2**-7, -1 - 2**-7]


@pytest.mark.parametrize(
    ("dtype", "precision", "element_bytes", "tolerance"),
    [
        ("float64", "fp64", 8, 1e-12),
        ("float32", "fp32", 4, 1e-4),
        ("tf32", "tf32", 4, 1e-4),
        ("float16", "fp16", 2, 1e-1),
        ("bfloat16", "bf16", 2, 1e-1),
    ],
)
def test_torch_matmul_multiplies_in_every_dtype(
    dtype: str, precision: str, element_bytes: int, tolerance: float
) -> None:
    workload = matmul.TorchMatmul("cpu", 32, dtype, graph=False)
    workload.attach()
    workload.step()
    assert workload.work == (2 * 32**3, 3 * 32**2 * element_bytes, 1, precision)
    torch.manual_seed(0)
    left, right = (torch.randn(32 * 32, dtype=torch.float64).view(32, 32).numpy() for _ in range(2))
    expected = left @ right
    assert workload.output_digest() == pytest.approx(
        [np.abs(expected).mean(), expected.max(), -expected.min()], rel=tolerance
    )


def test_a_large_random_matrix_repeats_values_without_equal_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "DISTINCT_VALUES", 101)
    workload = matmul.TorchMatmul("cpu", 32, "float64", graph=False)
    values = workload._random_matrix(32)
    assert values.shape == (32, 32)
    assert len({tuple(row) for row in values.tolist()}) == 32


def test_torch_memcopy_copies() -> None:
    workload = memcopy.TorchMemcopy("cpu", 1)
    workload.attach()
    workload.step()
    assert workload.output_digest() == pytest.approx([1 + 1 / 4096, 1])
    assert workload.work.bytes == 2 * 2**20
