"""Burning and training: right results, planted wrong ones, and gradients by an independent way."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tenant import workloads
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.workload import RequestError
from tenant.workloads import burn, training

from .conftest import MS, FakeClock
from .test_measure import CLOSED, RULE, measured

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is only in the GPU environment"
)
SMALL = {"inputs": 6, "hidden": 5, "outputs": 3, "batch": 7}


def make(module: str, params: dict[str, Any]) -> Any:
    workload = workloads.create(workloads.load_module(module, "cpu"), params, "cpu")
    workload.attach()
    return workload


@pytest.fixture
def torch_burn() -> Iterator[Any]:
    """Attached for as long as the test takes."""
    workload = burn.TorchBurn("cpu", 32, "float32", 32 * 32 * 4 * 10)
    workload.attach()
    yield workload
    workload._attached.close()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_burn_fills_its_memory_and_computes_every_result(dtype: str) -> None:
    workload = make("burn", {"size": 64, "dtype": dtype, "mebibytes": 1})
    matrix_bytes = 64 * 64 * np.dtype(dtype).itemsize
    assert workload.results.nbytes + 3 * matrix_bytes == 2**20
    for _ in range(len(workload.results)):
        workload.step()
    expected = np.einsum("ij,jk->ik", workload._left.astype(float), workload._right.astype(float))
    assert np.allclose(workload.results, expected, rtol=1e-3, atol=1e-3)
    assert workload.output_digest() == pytest.approx(
        [np.abs(expected).mean(), expected.max(), -expected.min()], rel=1e-3
    )
    assert workload.work.flop == 2 * 64**3


@pytest.mark.parametrize("planted", [np.nan, 1e6])
def test_a_wrong_result_is_an_error_of_its_iteration(
    planted: float, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = make("burn", {"size": 16, "dtype": "float64", "mebibytes": 1})
    compute, steps, wrong = np.matmul, [0], set()

    def faulty(left: Any, right: Any, out: Any) -> None:
        compute(left, right, out=out)
        steps[0] += 1
        clock.advance_ns(MS)
        if steps[0] in wrong:
            out[3, 4] = planted

    monkeypatch.setattr(np, "matmul", faulty)
    measurement = Measurement(workload, Identity(0, "burn", 0, 0, 0), CLOSED, RULE, clock, clock.sleep)
    measurement.warm_up()
    wrong |= {steps[0] + 30, steps[0] + 33}
    record = measured(measurement, clock, MS, 100 * MS)
    assert (record["count"], record["errors"]) == (98, 2)


def test_a_wrong_result_names_its_place() -> None:
    workload = make("burn", {"size": 16, "dtype": "float64", "mebibytes": 1})
    workload.step()
    workload._reference = workload._reference.copy()
    workload._reference[2, 3:5] += 1.0
    with pytest.raises(RequestError, match="2 elements of result 1 are wrong"):
        workload.step()


@pytest.mark.torch
@needs_torch
def test_burn_with_torch_takes_its_share_and_computes_every_result(torch_burn: Any) -> None:
    assert len(torch_burn.results) == 10 - 6
    for _ in range(5):
        torch_burn.step()
    assert torch_burn.results.isfinite().all()
    assert np.allclose(torch_burn.results, torch_burn.results[0])


@pytest.mark.torch
@needs_torch
@pytest.mark.parametrize("planted", [float("nan"), 1e6])
def test_burn_with_torch_finds_a_planted_fault(
    planted: float, torch_burn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch_burn.step()
    multiply = torch.mm

    def faulty(left: Any, right: Any, out: Any) -> None:
        multiply(left, right, out=out)
        out[0, :3] = planted

    monkeypatch.setattr(torch, "mm", faulty)
    with pytest.raises(RequestError, match="3 elements of result 1 are wrong"):
        torch_burn.step()
    monkeypatch.undo()
    torch_burn.step()


@pytest.mark.torch
@needs_torch
def test_burn_with_torch_takes_less_where_another_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    fill = torch.full

    def scarce(shape: tuple[int, ...], *rest: Any, **options: Any) -> Any:
        if shape[0] > 20:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return fill(shape, *rest, **options)

    monkeypatch.setattr(torch, "full", scarce)
    workload = burn.TorchBurn("cpu", 8, "float32", 8 * 8 * 4 * 106)
    assert len(workload.results) == 12


def test_training_learns_and_begins_again() -> None:
    workload = make("training", SMALL)
    workload.step()
    first = workload.loss
    for _ in range(training.RESTART - 1):
        workload.step()
    assert workload.loss < 0.9 * first
    workload.step()
    assert workload.loss == first, "from the first weights again"
    assert workload.work.items == 7


def test_gradients_are_those_of_finite_differences() -> None:
    workload = make("training", SMALL)
    for weights in workload.weights:
        # So that no bias is at 0, where its unit may be at the kink.
        weights += 0.01
    workload.weights = [weights.astype(np.float64) for weights in workload.weights]
    workload._samples = workload._samples.astype(np.float64)
    _, gradients = workload.loss_and_gradients()
    for weights, gradient in zip(workload.weights, gradients, strict=True):
        numeric = np.zeros_like(weights)
        for at in np.ndindex(weights.shape):
            ends = []
            for sign in (1, -1):
                weights[at] += sign * 1e-6
                ends.append(workload.loss_and_gradients()[0])
                weights[at] -= sign * 1e-6
            numeric[at] = (ends[0] - ends[1]) / 2e-6
        assert np.allclose(gradient, numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("steps", [1, 7, training.RESTART + 3])
def test_the_digest_of_training_does_not_depend_on_the_number_of_steps(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, fresh = make("training", SMALL), make("training", SMALL)
    for _ in range(steps):
        workload.step()
    digest = fresh.output_digest()
    assert workload.output_digest() == digest
    monkeypatch.setattr(training, "LEARNING_RATE", 0.002)
    assert workload.output_digest() != digest, "the optimiser's step is in it"


@pytest.mark.torch
@needs_torch
def test_training_with_torch_is_the_same_training() -> None:
    torch = pytest.importorskip("torch")
    by_hand = make("training", SMALL)
    # Another test's workload may have left this thread in inference mode, which has no gradients.
    with torch.inference_mode(False):
        by_torch = training.TorchTraining("cpu", **SMALL)
        by_torch.attach()
        for _ in range(20):
            by_hand.step()
            by_torch.step()
        for ours, theirs in zip(by_hand.weights, by_torch.weights, strict=True):
            assert np.allclose(ours, theirs.detach().numpy(), rtol=1e-3, atol=1e-5)
        assert by_torch.output_digest() == pytest.approx(by_hand.output_digest(), rel=1e-5)
