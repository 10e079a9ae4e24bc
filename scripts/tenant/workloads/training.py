"""Steps of training: forward, backward and optimiser of a perceptron with one hidden layer.

The batch is the same each time, and after RESTART steps the weights are those of the start again: training that had
learnt everything would compute with ever smaller numbers, which is not the same work. The digest is that of one step
from the first weights, whatever came before.

Params: `inputs`, `hidden`, `outputs` (units of the layers), `batch` (samples of a step), `dtype` (float32, or
tf32, which is float32 with TF32 allowed). The optimiser is Adam.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import torch

from tenant.gpu.torch_device import TorchWorkload
from tenant.parameters import Params, with_defaults
from tenant.workload import ELEMENTS, Work

FRAMEWORKS = {"cpu": ("torch",), "cuda": ("torch",)}
RESTART = 200
LEARNING_RATE = 0.001
Floats = npt.NDArray[np.float32]


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


class Training(TorchWorkload):
    def __init__(self, device: str, inputs: int, hidden: int, outputs: int, batch: int, dtype: str) -> None:
        super().__init__(device, dtype=dtype)
        # The products: two forward, two for the weights' gradients, one for the hidden layer's.
        first, second = 2.0 * batch * inputs * hidden, 2.0 * batch * hidden * outputs
        self.work = Work(2 * first + 3 * second, None, batch, ELEMENTS[dtype].precision)
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
        # Not in inference mode, which has no gradients.
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))

    def _restart(self) -> None:
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


def create(params: Params, device: str) -> Training:
    defaults = {"inputs": 256, "hidden": 512, "outputs": 10, "batch": 64, "dtype": ("float32", "tf32")}
    return Training(device, **with_defaults(params, defaults, "training"))
