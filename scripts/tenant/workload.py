"""The base class of all workloads, with the types in which a workload declares its work and its own times."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tenant.contract import Answer, Precision
from tenant.failures import RefusedError
from tenant.parameters import Params
from tenant.usage import peak_resident_bytes

if TYPE_CHECKING:
    from tenant.load import Trace

# The kind of a TimeSample that holds device time; every other kind is the name of a stage.
DEVICE_TIME = "device"


class Dtype(NamedTuple):
    """Element type of a matrix: the precision of the arithmetic on it, and the size of an element in bytes."""

    precision: Precision
    bytes: int


# Keys are the values of a workload's `dtype` parameter. tf32 is float32 with TF32 allowed in matmuls and convolutions.
DTYPES = {
    "float32": Dtype("fp32", 4),
    "float64": Dtype("fp64", 8),
    "tf32": Dtype("tf32", 4),
    "float16": Dtype("fp16", 2),
    "bfloat16": Dtype("bf16", 2),
}
CPU_DTYPES = ("float32", "float64")


def array_digest(values: Any) -> list[float]:
    """Mean magnitude, maximum and negated minimum of a numpy array or torch tensor in double precision."""
    return [float(abs(values).mean()), float(values.max()), float(-values.min())]


class RequestError(Exception):
    """One iteration failed. The loop counts an error and goes on."""


class Work(NamedTuple):
    """Declared work of one iteration: floating-point operations, least bytes moved, and items; None where unknown.

    `precision` selects the peak rate that the work is compared with; None where there is no such peak.
    """

    flop: float | None
    bytes: float | None
    items: float
    precision: Precision | None = None


class TimeSample(NamedTuple):
    """A time that the workload measured itself: DEVICE_TIME or a stage, its start (monotonic ns) and its duration."""

    kind: str
    begun_ns: int
    duration_ns: int


class Workload(ABC):
    """One tenant's work. The module's `create` has already loaded models and data."""

    work: Work
    # Whether a step is one launch of a captured CUDA graph. Only then may several tenants share a process: threads
    # that launch hundreds of kernels would wait for the interpreter's lock, not for the device.
    is_captured = False
    # Modules whose versions the record shows; they must be imported and have a `__version__`.
    modules: tuple[str, ...] = ()
    # True for the client of a server, and for a client whose answers are streams of tokens.
    is_client = False
    is_stream = False
    # The requests of a load that replays a trace.
    trace: Trace | None = None

    @cached_property
    def samples(self) -> list[TimeSample]:
        """Times not yet counted: at most one device time per iteration, and any number of times per stage.

        Only the loop thread adds and removes samples; other threads may read them.
        """
        return []

    def attach(self) -> None:
        """Prepare the thread that will call `step`; called once, from that thread."""
        return

    def on_window(self, start_ns: int, end_ns: int) -> None:
        """Hear of a window when it is announced, in monotonic ns; called from another thread."""
        return

    def end_load(self) -> None:
        """Wait for what is in flight under a load that another one follows."""
        self.synchronize()

    @abstractmethod
    def step(self) -> None:
        """Run one iteration and return when the device has finished it. Raises RequestError if the iteration failed."""

    def synchronize(self) -> None:
        """Wait until the device has finished all work of this workload; on a CPU there is nothing to wait for."""
        return

    @abstractmethod
    def output_digest(self) -> list[float]:
        """A few finite numbers, well away from 0, that a wrong output of the last iteration would change."""

    def fixed_answers(self) -> list[list[Answer]]:
        """Answers to fixed prompts, by when they were asked; empty for all but servers of language models."""
        return []

    def perform(self, name: str, params: Params) -> Mapping[str, Any]:
        """Do one task for the driver between two iterations. Raises RefusedError for an unknown task."""
        raise RefusedError(f"this workload has no task {name}")

    def packages(self) -> dict[str, str]:
        return {name: str(sys.modules[name].__version__) for name in self.modules}

    def memory_bytes(self) -> int | None:
        """Peak device memory of all tenants in this process, None where unknown; here the process's resident memory."""
        return peak_resident_bytes()
