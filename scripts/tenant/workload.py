"""What a workload is: the base class, its declared work, and the times that it takes itself."""

import sys
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

from tenant.contract import Precision
from tenant.usage import peak_resident_bytes

# The samples of device time; every other kind is the name of a stage.
DEVICE_TIME = "device"


class Element(NamedTuple):
    """What an element of a matrix is: the precision of arithmetic on it, and its size."""

    precision: Precision
    bytes: int


# By the names that parameters have for them; tf32 is float32 with TF32 allowed in products and convolutions.
ELEMENTS = {
    "float32": Element("fp32", 4),
    "float64": Element("fp64", 8),
    "tf32": Element("tf32", 4),
    "float16": Element("fp16", 2),
    "bfloat16": Element("bf16", 2),
}
CPU_DTYPES = ("float32", "float64")


def digest(values: Any) -> list[float]:
    """Mean magnitude, largest and negated smallest element of an array or tensor of double precision."""
    return [float(abs(values).mean()), float(values.max()), float(-values.min())]


class RequestError(Exception):
    """One iteration failed; it is counted as an error and the loop goes on."""


class Work(NamedTuple):
    """Declared work of one iteration: operations, bytes moved at least (None where unknown), and items.

    `precision` names the arithmetic, and so the peak rate that the work is compared with; None where there is none.
    """

    flop: float | None
    bytes: float | None
    items: float
    precision: Precision | None = None


class Sample(NamedTuple):
    """A time that the workload measured: DEVICE_TIME or a stage, its begin (monotonic) and its length."""

    kind: str
    begun_ns: int
    duration_ns: int


class Workload(ABC):
    """One tenant's work, ready to run: a module's `create` has loaded everything."""

    work: Work
    # Whether a step is one launch of a captured CUDA graph. Only then may several tenants share a process: threads
    # that launch hundreds of kernels would wait for the interpreter's lock, not for the device.
    captured = False
    # The modules that do the work, imported and with a version.
    modules: tuple[str, ...] = ()
    # Whether the work is a server's, whose client this is, and whether its answers are streams of tokens.
    is_client = False
    is_stream = False

    @cached_property
    def samples(self) -> list[Sample]:
        """Device times and stages since they were last counted.

        The loop thread adds and takes, another one may look. Of a stage there may be several in an iteration, of device
        time one.
        """
        return []

    def attach(self) -> None:
        """Called once, in the thread that will call `step`, before it does."""
        return

    def window_set(self, start_ns: int, end_ns: int) -> None:
        """Called from another thread when a window is announced, in ns of the monotonic clock."""
        return

    @abstractmethod
    def step(self) -> None:
        """Run one iteration; returns when the device has finished it. Raises RequestError when it failed."""

    def synchronize(self) -> None:
        """Return when the device has nothing left to do for this workload; a CPU has nothing left anyway."""
        return

    @abstractmethod
    def output_digest(self) -> list[float]:
        """A few finite numbers that sum up the last iteration's output, well away from 0."""

    def packages(self) -> dict[str, str]:
        return {name: str(sys.modules[name].__version__) for name in self.modules}

    def memory_bytes(self) -> int | None:
        """Peak memory on the device, of all tenants in the process; here that of the process."""
        return peak_resident_bytes()
