"""Steps of training: forward, backward and optimiser of a perceptron with one hidden layer. numpy or torch.

The batch is the same each time, and after RESTART steps the weights are those of the start again: training that had
learnt everything would compute with ever smaller numbers, which is not the same work. The digest is that of one step
from the first weights, whatever came before.

Params: `inputs`, `hidden`, `outputs` (units of the layers), `batch` (samples of a step), `dtype` (float32; on CUDA also
tf32, which is float32 with TF32 allowed). The optimiser is Adam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import Params, with_defaults
from tenant.workload import ELEMENTS, Work, Workload

if TYPE_CHECKING:
    from contextlib import ExitStack

    import torch

FRAMEWORKS = {"cuda": ("torch",)}
CPU_DTYPES = ("float32",)
CUDA_DTYPES = ("float32", "tf32")
RESTART = 200
LEARNING_RATE = 0.001
# Kingma & Ba, Adam, 2015: decay of the two moments, and what keeps the quotient finite.
BETAS, EPSILON = (0.9, 0.999), 1e-8
Floats = npt.NDArray[np.float32]


def _work(inputs: int, hidden: int, outputs: int, batch: int) -> Work:
    """The products: two forward, two for the weights' gradients, one for the hidden layer's."""
    first, second = 2.0 * batch * inputs * hidden, 2.0 * batch * hidden * outputs
    return Work(2 * first + 3 * second, None, batch, "fp32")


def _data(inputs: int, hidden: int, outputs: int, batch: int) -> tuple[Floats, npt.NDArray[np.int64], list[Floats]]:
    """The batch (batch, inputs), its labels (batch,), and weights and biases of both layers."""
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((batch, inputs)).astype(np.float32)
    labels = generator.integers(outputs, size=batch)
    weights = [
        (generator.standard_normal((inputs, hidden)) / np.sqrt(inputs)).astype(np.float32),
        np.zeros(hidden, np.float32),
        (generator.standard_normal((hidden, outputs)) / np.sqrt(hidden)).astype(np.float32),
        np.zeros(outputs, np.float32),
    ]
    return samples, labels, weights


class Training(Workload):
    """With numpy, on a CPU; gradients by hand."""

    modules = ("numpy",)

    def __init__(self, inputs: int, hidden: int, outputs: int, batch: int) -> None:
        self._samples, self._labels, self._first = _data(inputs, hidden, outputs, batch)
        self.work = _work(inputs, hidden, outputs, batch)
        self._restart()

    def _restart(self) -> None:
        self.weights = [each.copy() for each in self._first]
        self._moments = [(np.zeros_like(each), np.zeros_like(each)) for each in self._first]
        self._steps = 0

    def loss_and_gradients(self) -> tuple[float, list[Floats]]:
        """Mean cross entropy of the batch, and its gradient for each of `weights`."""
        first, first_bias, second, second_bias = self.weights
        hidden = np.maximum(self._samples @ first + first_bias, 0)
        scores = hidden @ second + second_bias
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        rows, batch = np.arange(len(self._labels)), len(self._labels)
        loss = float(-np.log(chances[rows, self._labels]).mean())
        chances[rows, self._labels] -= 1
        chances /= batch
        back = (chances @ second.T) * (hidden > 0)
        return loss, [self._samples.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)]

    def step(self) -> None:
        if self._steps == RESTART:
            self._restart()
        self._steps += 1
        self.loss, gradients = self.loss_and_gradients()
        for weight, gradient, (mean, square) in zip(self.weights, gradients, self._moments, strict=True):
            mean += (1 - BETAS[0]) * (gradient - mean)
            square += (1 - BETAS[1]) * (gradient * gradient - square)
            unbiased = np.sqrt(square / (1 - BETAS[1] ** self._steps)) + EPSILON
            weight -= LEARNING_RATE / (1 - BETAS[0] ** self._steps) * mean / unbiased

    def output_digest(self) -> list[float]:
        """Loss, and mean magnitude of the weights of both layers, after one step from the first weights."""
        self._restart()
        self.step()
        return [self.loss, *(float(np.abs(self.weights[layer]).mean()) for layer in (0, 2))]


class TorchTraining(TorchWorkload):
    """The same with torch's gradients and optimiser, on any device of its."""

    def __init__(self, device: str, inputs: int, hidden: int, outputs: int, batch: int, dtype: str = "float32") -> None:
        import torch

        super().__init__(device, dtype=dtype)
        self.work = _work(inputs, hidden, outputs, batch)._replace(precision=ELEMENTS[dtype].precision)
        with self.building():
            samples, labels, weights = _data(inputs, hidden, outputs, batch)
            data, wanted = torch.from_numpy(samples).to(self.device), torch.from_numpy(labels).to(self.device)
            self._first = [torch.from_numpy(each).to(self.device) for each in weights]
            self.weights = [each.clone().requires_grad_() for each in self._first]
            self._restart()

            def train() -> torch.Tensor:
                first, first_bias, second, second_bias = self.weights
                hidden_units = torch.relu(torch.addmm(first_bias, data, first))
                scores = torch.addmm(second_bias, hidden_units, second)
                loss = torch.nn.functional.cross_entropy(scores, wanted)
                self._optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self._optimizer.step()
                return loss.detach()

            self.prepare(train)

    def _enter(self, stack: ExitStack) -> None:
        import torch

        # Not in inference mode, which has no gradients.
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))

    def _restart(self) -> None:
        import torch

        with torch.no_grad():
            for weight, first in zip(self.weights, self._first, strict=True):
                weight.copy_(first)
        self._optimizer = torch.optim.Adam(self.weights, lr=LEARNING_RATE)
        self._steps = 0

    def step(self) -> None:
        if self._steps == RESTART:
            self._restart()
        self._steps += 1
        self.run()

    def output_digest(self) -> list[float]:
        self._restart()
        self.step()
        return [float(self.output), *(float(self.weights[layer].detach().double().abs().mean()) for layer in (0, 2))]


def create(params: Params, device: str) -> Workload:
    dtypes = CUDA_DTYPES if device == "cuda" else CPU_DTYPES
    defaults = {"inputs": 256, "hidden": 512, "outputs": 10, "batch": 64, "dtype": dtypes}
    values = with_defaults(params, defaults, "training")
    if device == "cuda":
        return TorchTraining(device, **values)
    values.pop("dtype")
    return Training(**values)
