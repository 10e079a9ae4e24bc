"""Training of a perceptron with one hidden layer: an iteration is forward pass, backward pass and Adam's step.

The batch is always the same. After RESTART_STEPS steps the initial weights are restored, because a trained network
computes with ever smaller numbers, which is not the same work. The digest is that of the first step from the initial
weights, however many steps came before.

Params: `inputs`, `hidden`, `outputs` (units of the layers), `batch` (samples of a step), `dtype` (float32, or
tf32, which is float32 with TF32 allowed).
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import torch

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import Params, with_defaults
from tenant.workload import DTYPES, Work

FRAMEWORKS = {"cpu": ("torch",), "cuda": ("torch",)}
RESTART_STEPS = 200
LEARNING_RATE = 0.001
Floats = npt.NDArray[np.float32]


def _data(inputs: int, hidden: int, outputs: int, batch: int) -> tuple[Floats, npt.NDArray[np.int64], list[Floats]]:
    """Samples (batch, inputs), their labels (batch,), and the initial weights and biases of both layers."""
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


class Training(TorchWorkload):
    def __init__(self, device: str, inputs: int, hidden: int, outputs: int, batch: int, dtype: str) -> None:
        super().__init__(device, dtype=dtype)
        # Matmuls: two forward, two for the gradients of the weights, one for the gradient of the hidden layer.
        first, second = 2.0 * batch * inputs * hidden, 2.0 * batch * hidden * outputs
        self.work = Work(2 * first + 3 * second, None, batch, DTYPES[dtype].precision)
        with self.building():
            samples, labels, weights = _data(inputs, hidden, outputs, batch)
            data, targets = torch.from_numpy(samples).to(self.device), torch.from_numpy(labels).to(self.device)
            self._initial_weights = [torch.from_numpy(weight).to(self.device) for weight in weights]
            self.weights = [weight.clone().requires_grad_() for weight in self._initial_weights]
            self._restart()

            def train() -> torch.Tensor:
                first, first_bias, second, second_bias = self.weights
                hidden_units = torch.relu(torch.addmm(first_bias, data, first))
                scores = torch.addmm(second_bias, hidden_units, second)
                loss = torch.nn.functional.cross_entropy(scores, targets)
                self._optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self._optimizer.step()
                return loss.detach()

            self.prepare(train)

    def _enter(self, stack: ExitStack) -> None:
        # Without inference mode, which has no gradients.
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))

    def _restart(self) -> None:
        with torch.no_grad():
            for weight, initial in zip(self.weights, self._initial_weights, strict=True):
                weight.copy_(initial)
        self._optimizer = torch.optim.Adam(self.weights, lr=LEARNING_RATE)
        self._steps = 0

    def step(self) -> None:
        if self._steps == RESTART_STEPS:
            self._restart()
        self._steps += 1
        self.run()

    def output_digest(self) -> list[float]:
        self._restart()
        self.step()
        return [float(self.output), *(float(self.weights[layer].detach().double().abs().mean()) for layer in (0, 2))]


def create(params: Params, device: str) -> Training:
    defaults = {"inputs": 256, "hidden": 512, "outputs": 10, "batch": 64, "dtype": ("float32", "tf32")}
    return Training(device, **with_defaults(params, defaults, "training"))
