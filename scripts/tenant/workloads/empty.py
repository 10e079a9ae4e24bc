"""Nothing, as often as possible: on CUDA an empty kernel, whose cost is that of a launch; on a CPU a look at the clock.

Params: none.
"""

import time

from tenant.device_time import sampled
from tenant.gpu import cuda
from tenant.parameters import Params, with_defaults
from tenant.workload import Work, Workload

# A launch is what a graph's replay is to the interpreter: one call.
ONE_LAUNCH = True
NAME = "nothing"
# The oldest that MPS treats as it treats today's GPUs; the driver compiles it for whatever is there.
PTX = f"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry {NAME}()
{{
    ret;
}}
"""


class Empty(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def step(self) -> None:
        time.monotonic_ns()

    def output_digest(self) -> list[float]:
        """There is no output; a number that is never another."""
        return [1.0]


class EmptyKernel(cuda.CudaWorkload, Empty):
    """One launch and one synchronisation of the tenant's stream."""

    captured = ONE_LAUNCH

    def __init__(self) -> None:
        super().__init__()
        launch = cuda.Kernel(PTX, NAME).prepared(1, 1, stream=self.stream)
        self._run = sampled(launch, self.stream.synchronize, cuda.Events(self.stream), self.samples)

    def step(self) -> None:
        self._run()


def create(params: Params, device: str) -> Workload:
    with_defaults(params, {}, "empty")
    return EmptyKernel() if device == "cuda" else Empty()
