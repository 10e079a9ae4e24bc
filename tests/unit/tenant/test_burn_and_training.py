"""The workloads burn and training on a CPU, with correct and wrong results. Skipped without torch."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tenant.workload import RequestError

torch = pytest.importorskip("torch", reason="torch is only in the GPU environment (make gpu-env)")
burn = importlib.import_module("tenant.workloads.burn")
training = importlib.import_module("tenant.workloads.training")

SMALL = {"inputs": 6, "hidden": 5, "outputs": 3, "batch": 7}


@pytest.fixture
def burning() -> Iterator[Any]:
    """A workload that is attached for the duration of the test, because inference mode belongs to the thread."""
    workload = burn.Burn("cpu", 32, "float32", 32 * 32 * 4 * 10)
    workload.attach()
    yield workload
    workload._thread_context.close()


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    """Enable gradients, because another test's workload may have left this thread in inference mode."""
    with torch.inference_mode(False):
        yield


def trained(steps: int = 0) -> Any:
    workload = training.create(SMALL, "cpu")
    for _ in range(steps):
        workload.step()
    return workload


def test_burn_fills_its_memory_and_computes_every_result(burning: Any) -> None:
    assert len(burning.results) == 10 - 6
    for _ in range(5):
        burning.step()
    assert burning.results.isfinite().all()
    torch.manual_seed(0)
    left, right = torch.randn(2, 32, 32, dtype=torch.float64)
    for result in burning.results:
        assert torch.allclose(result.double(), left @ right, rtol=1e-3, atol=1e-3)
    assert burning.work == (2 * 32**3, 5 * 32**2 * 4, 1, "fp32")


@pytest.mark.parametrize("planted", [float("nan"), 1e6])
def test_burn_finds_a_planted_fault(planted: float, burning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    burning.step()
    multiply = torch.mm

    def faulty(left: Any, right: Any, out: Any) -> None:
        multiply(left, right, out=out)
        out[0, :3] = planted

    monkeypatch.setattr(torch, "mm", faulty)
    with pytest.raises(RequestError, match="3 elements of result 1 are wrong"):
        burning.step()
    monkeypatch.undo()
    burning.step()


def test_burn_takes_less_memory_if_another_tenant_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = torch.full

    def scarce(shape: tuple[int, ...], *rest: Any, **options: Any) -> Any:
        if shape[0] > 20:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return fill(shape, *rest, **options)

    monkeypatch.setattr(torch, "full", scarce)
    assert len(burn.Burn("cpu", 8, "float32", 8 * 8 * 4 * 106).results) == 12


def test_training_learns_and_restarts_from_its_initial_weights() -> None:
    workload = trained(1)
    first = float(workload.output)
    for _ in range(training.RESTART_STEPS - 1):
        workload.step()
    assert float(workload.output) < 0.9 * first
    workload.step()
    assert float(workload.output) == first, "from the first weights again"
    assert workload.work == (2 * 7 * (2 * 6 * 5 + 3 * 5 * 3), None, 7, "fp32")


def test_the_digest_of_training_does_not_depend_on_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = trained().output_digest()
    assert trained(7).output_digest() == trained(training.RESTART_STEPS + 3).output_digest() == digest
    monkeypatch.setattr(training, "LEARNING_RATE", 0.002)
    assert trained().output_digest() != digest, "the optimiser's step is in it"
