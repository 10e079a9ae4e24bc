"""Base of the workloads that run on torch: stream, CUDA graph, device time, digest and memory.

A workload calls `super().__init__(device, graph)`, makes its model and its inputs on `self.device` within
`with self.building():`, sets `self.work`, and hands its forward pass to `prepare` (docs/your-own-workload.md has one).
A step then is `self.run()`: the forward pass (or a replay of its graph), one synchronisation of the stream, and now and
then a sample of device time. One with stages overrides `step` and adds them to `self.samples`.

torch is imported when a workload is made, not here: a module that needs it on CUDA only can be loaded without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tenant.device_time import sampled
from tenant.parameters import ParameterError
from tenant.usage import peak_resident_bytes
from tenant.workload import Workload, digest

if TYPE_CHECKING:
    import torch

SEED = 0
GRAPH_WARM_UPS = 3


class _TorchEvents:
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


class TorchWorkload(Workload):
    """A workload whose iteration is one forward pass; see above for how to make one.

    `device` (torch.device), `element` (torch.dtype) and `run` are for the subclass; `output` is the last tensor.
    """

    # The version of torch names its CUDA.
    modules: tuple[str, ...] = ("torch",)
    output: torch.Tensor
    run: Callable[[], None]

    def __init__(self, device: str, graph: bool = False, dtype: str = "float32") -> None:
        """`dtype` is one of ELEMENTS. Raises ParameterError for a graph on a CPU."""
        import torch

        if graph and device != "cuda":
            raise ParameterError(f"graph: true needs device cuda, not {device}")
        is_tf32 = dtype == "tf32"
        torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = is_tf32
        self.device = torch.device(device)
        self.element = torch.float32 if is_tf32 else getattr(torch, dtype)
        self.captured = graph
        self._stream: torch.cuda.Stream | None = torch.cuda.Stream() if device == "cuda" else None
        self._attached = ExitStack()
        torch.manual_seed(SEED)

    def _enter(self, stack: ExitStack) -> None:
        import torch

        stack.enter_context(torch.inference_mode())
        if self._stream is not None:
            stack.enter_context(torch.cuda.stream(self._stream))

    @contextmanager
    def building(self) -> Iterator[None]:
        """Inference mode on this tenant's stream: whatever is made or run within belongs to them."""
        with ExitStack() as stack:
            self._enter(stack)
            yield
            self.synchronize()

    def prepare(self, forward: Callable[[], torch.Tensor]) -> None:
        """Make `run` from the forward pass, which queues the device's work of one iteration and returns its output.

        Call it within `building`. With a graph, shapes and addresses of what `forward` reads must never change.
        """

        def eager() -> None:
            self.output = forward()

        launch = self._capture(forward) if self.captured else eager
        if self._stream is None:
            self.run = launch
        else:
            self.run = sampled(launch, self._stream.synchronize, _TorchEvents(self._stream), self.samples)

    def _capture(self, forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
        import torch

        # Lazily made handles and workspaces must exist before the capture.
        for _ in range(GRAPH_WARM_UPS):
            forward()
        self.synchronize()
        # A graph holds addresses, not tensors: what `forward` reads must live as long as its replays.
        self._forward = forward
        graph = torch.cuda.CUDAGraph()
        # Not on torch's own capture stream: a workspace belongs to a stream, and all graphs that were captured on one
        # would share it, while they are replayed side by side on the streams of several tenants.
        with torch.cuda.graph(graph, stream=self._stream):
            self.output = forward()
        replay: Callable[[], None] = graph.replay
        return replay

    def attach(self) -> None:
        """Inference mode and the current stream are the thread's, so the loop's thread enters them for good."""
        self._enter(self._attached)

    def step(self) -> None:
        self.run()

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def output_digest(self) -> list[float]:
        return digest(self.output.double())

    def memory_bytes(self) -> int | None:
        """Peak of what torch's allocator held on the device; without one, that of the process."""
        import torch

        if self._stream is None:
            return peak_resident_bytes()
        reserved: int = torch.cuda.max_memory_reserved()
        return reserved
