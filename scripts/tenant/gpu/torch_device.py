"""Base class of the workloads that run on torch. It handles stream, CUDA graph, device time, digest and memory.

A subclass calls `super().__init__(device, graph)` and sets `self.work`. Within `with self.building():` it creates model
and inputs on `self.device` and passes its forward pass to `self.prepare` (docs/your-own-workload.md has an example).

A step is then `self.run()`: the forward pass or a replay of its graph, one synchronisation of the stream, and sometimes
a sample of device time. A workload with stages overrides `step` and adds their times to `self.samples`.

torch is imported when a workload is created, not here, so that a module that needs it only on CUDA loads without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tenant.device_time import with_device_time
from tenant.gpu import cuda
from tenant.parameters import ParameterError
from tenant.usage import peak_resident_bytes
from tenant.workload import Workload, array_digest

if TYPE_CHECKING:
    import torch

SEED = 0
GRAPH_WARM_UPS = 3


class _TorchEventPair:
    def __init__(self, stream: torch.cuda.Stream) -> None:
        import torch

        self._stream = stream
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def begin(self) -> None:
        self._begin.record(self._stream)

    def end(self) -> None:
        self._end.record(self._stream)

    def elapsed_ns(self) -> int:
        milliseconds: float = self._begin.elapsed_time(self._end)
        return round(milliseconds * 1e6)


def _new_stream() -> torch.cuda.Stream:
    import torch

    if cuda.stream_source.get() is None:
        return torch.cuda.Stream()
    return torch.cuda.ExternalStream(cuda.CudaStream().handle.value or 0)


class TorchWorkload(Workload):
    """A workload whose iteration is one forward pass; the module's docstring explains how to write one.

    Subclasses use `device` (torch.device), `torch_dtype` (torch.dtype) and `run`. `output` is the last output tensor.
    """

    # torch's version string also names its CUDA version.
    modules: tuple[str, ...] = ("torch",)
    output: torch.Tensor
    run: Callable[[], None]

    def __init__(self, device: str, graph: bool = False, dtype: str = "float32") -> None:
        """`dtype` is a key of DTYPES; `graph` replays one captured CUDA graph. Raises ParameterError without CUDA."""
        import torch

        if graph and device != "cuda":
            raise ParameterError(f"graph: true needs device cuda, not {device}")
        is_tf32 = dtype == "tf32"
        torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = is_tf32
        self.device = torch.device(device)
        self.torch_dtype = torch.float32 if is_tf32 else getattr(torch, dtype)
        self.is_captured = graph
        self._stream: torch.cuda.Stream | None = _new_stream() if device == "cuda" else None
        self._thread_context = ExitStack()
        torch.manual_seed(SEED)

    def _enter(self, stack: ExitStack) -> None:
        import torch

        stack.enter_context(torch.inference_mode())
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))

    @contextmanager
    def building(self) -> Iterator[None]:
        """Context in inference mode on this tenant's stream, for creating model and inputs; synchronises at its end."""
        with ExitStack() as stack:
            self._enter(stack)
            yield
            self.synchronize()

    def prepare(self, forward: Callable[[], torch.Tensor]) -> None:
        """Set `run` to one iteration of `forward`, which queues the device's work and returns the output.

        Call it within `building`. With a graph, shapes and addresses of what `forward` reads must never change.
        """

        def eager() -> None:
            self.output = forward()

        launch = self._capture(forward) if self.is_captured else eager
        if self._stream is None:
            self.run = launch
        else:
            self.run = with_device_time(launch, self._stream.synchronize, _TorchEventPair(self._stream), self.samples)

    def _capture(self, forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
        import torch

        # Handles and workspaces that libraries create lazily must exist before the capture.
        for _ in range(GRAPH_WARM_UPS):
            forward()
        self.synchronize()
        # A graph holds addresses, not tensors, so the tensors that `forward` reads must stay alive.
        self._forward = forward
        graph = torch.cuda.CUDAGraph()
        # Not on torch's own capture stream: a workspace belongs to a stream, so all graphs captured there would share
        # one, although they are replayed at the same time on the streams of several tenants.
        with torch.cuda.graph(graph, stream=self._stream):
            self.output = forward()
        replay: Callable[[], None] = graph.replay
        return replay

    def attach(self) -> None:
        """Enter inference mode and the stream for good: both belong to the thread, here the loop's."""
        self._enter(self._thread_context)

    def step(self) -> None:
        self.run()

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def output_digest(self) -> list[float]:
        return array_digest(self.output.double())

    def memory_bytes(self) -> int | None:
        """Peak memory that torch's allocator reserved on the GPU; on a CPU the process's peak resident memory."""
        import torch

        if self._stream is None:
            return peak_resident_bytes()
        return int(torch.cuda.max_memory_reserved())
