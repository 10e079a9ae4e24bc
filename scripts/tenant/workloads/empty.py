"""No work at all: on CUDA an iteration launches an empty kernel, on a CPU it reads the clock. Shows a launch's cost.

Params: none.
"""

import time

from tenant.device_time import with_device_time
from tenant.gpu import cuda
from tenant.parameters import Params, with_defaults
from tenant.workload import Work, Workload

# To the interpreter, a kernel launch is one call, as the replay of a graph is.
ONE_LAUNCH = True
KERNEL_NAME = "nothing"
# sm_70 (Volta) is the oldest target that MPS treats like current GPUs; the driver compiles it for the actual GPU.
PTX = f"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry {KERNEL_NAME}()
{{
    ret;
}}
"""


class Empty(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def step(self) -> None:
        time.monotonic_ns()

    def output_digest(self) -> list[float]:
        """There is no output, so the digest is a constant."""
        return [1.0]


class EmptyKernel(cuda.CudaWorkload, Empty):
    """An iteration is one launch and one synchronisation of the tenant's stream."""

    is_captured = ONE_LAUNCH

    def __init__(self) -> None:
        super().__init__()
        launch = cuda.Kernel(PTX, KERNEL_NAME).launcher(1, 1, stream=self.stream)
        self._run = with_device_time(launch, self.stream.synchronize, cuda.CudaEventPair(self.stream), self.samples)

    def step(self) -> None:
        self._run()


def create(params: Params, device: str) -> Workload:
    with_defaults(params, {}, "empty")
    return EmptyKernel() if device == "cuda" else Empty()
