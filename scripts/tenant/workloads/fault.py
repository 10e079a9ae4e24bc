"""A tenant that goes wrong at a set moment of its second window, next to others that should not notice.

Params: `kind` (a key of faults.FAULTS), `at_fraction` (of the window, when it goes wrong).

Until then it is a quiet neighbour: 5 ms of sleep, on CUDA an empty kernel before it. The first window is a rehearsal,
in which all is well. Nothing here is endless: what spins ends by itself, and memory is limited before it is taken (on
CUDA the device, or a limit of the strategy, is the limit). All memory is plain, none of it managed.
"""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenant.contract import FAULTS
from tenant.gpu import cuda
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import Work, Workload
from tenant.workloads import empty

STEP_NS = 5_000_000
# A hang lasts that much longer than the window, so that no one takes it for a slow iteration.
SPIN_BEYOND_NS = 2_500_000_000
# On CUDA a process is killed while this runs: idle, it would be the harmless case.
KERNEL_NS = 500_000_000
# The stand-in's memory; the limit is set on the process itself, so that no host runs out of memory.
LIMIT_BYTES = 128 << 20
# A leak reaches its limit after this share of what is left of the window.
LEAK_SHARE = 0.8
THREADS_PER_BLOCK, BLOCKS_PER_SM = 1024, 2

PTX = """
.version 7.0
.target sm_70
.address_size 64

.extern .func __assertfail
(
    .param .b64 __assertfail_param_0,
    .param .b64 __assertfail_param_1,
    .param .b32 __assertfail_param_2,
    .param .b64 __assertfail_param_3,
    .param .b64 __assertfail_param_4
);
.global .align 1 .b8 words[6] = {102, 97, 117, 108, 116, 0};

.visible .entry spin1(.param .u64 p_duration)
{
    .reg .pred  %p1;
    .reg .b64   %duration, %first, %now;
    ld.param.u64        %duration, [p_duration];
    mov.u64             %first, %globaltimer;
READ:
    mov.u64             %now, %globaltimer;
    sub.u64             %now, %now, %first;
    setp.lt.u64         %p1, %now, %duration;
    @%p1 bra            READ;
    ret;
}

.visible .entry illegal()
{
    .reg .b64   %address;
    .reg .b32   %value;
    mov.u64             %address, 64;
    mov.u32             %value, 1;
    st.global.u32       [%address], %value;
    ret;
}

.visible .entry fail()
{
    .reg .b64   %text;
    mov.u64             %text, words;
    cvta.global.u64     %text, %text;
    {
    .param .b64 param0;
    .param .b64 param1;
    .param .b32 param2;
    .param .b64 param3;
    .param .b64 param4;
    st.param.b64        [param0+0], %text;
    st.param.b64        [param1+0], %text;
    st.param.b32        [param2+0], 1;
    st.param.b64        [param3+0], %text;
    st.param.b64        [param4+0], 1;
    call.uni            __assertfail, (param0, param1, param2, param3, param4);
    }
    ret;
}
"""


class Fault(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self, kind: str, at_fraction: float) -> None:
        self._at_fraction = at_fraction
        self._windows = 0
        self._due_ns = self._end_ns = 0
        self._held: list[Any] = []
        self._held_bytes = 0
        self._limit_bytes = LIMIT_BYTES
        self._go_wrong: Callable[[], None] = getattr(self, "_" + kind.replace("-", "_"))

    def window_set(self, start_ns: int, end_ns: int) -> None:
        self._windows += 1
        if self._windows == 2:
            self._end_ns = end_ns
            self._due_ns = start_ns + int(self._at_fraction * (end_ns - start_ns))

    def step(self) -> None:
        """A moment of quiet, or of what goes wrong. Raises MemoryError."""
        self._quiet()
        left_ns = self._due_ns - time.monotonic_ns()
        time.sleep((left_ns if 0 < left_ns < STEP_NS else STEP_NS) / 1e9)
        if self._due_ns and time.monotonic_ns() >= self._due_ns:
            self._go_wrong()

    def _quiet(self) -> None: ...

    def _killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _stopped(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _spin(self) -> None:
        until_ns = self._end_ns + SPIN_BEYOND_NS
        while time.monotonic_ns() < until_ns:
            pass

    def _illegal_address(self) -> None:
        _leave_no_core()
        ctypes.string_at(0)

    def _assert(self) -> None:
        _leave_no_core()
        # What a failed assert() of C does.
        os.abort()

    def _oom(self) -> None:
        while True:
            self._take(self._limit_bytes // 8)

    def _leak(self) -> None:
        passed = (time.monotonic_ns() - self._due_ns) / (self._end_ns - self._due_ns)
        while self._held_bytes <= passed / LEAK_SHARE * self._limit_bytes:
            self._take(self._limit_bytes // 64)

    def _take(self, size_bytes: int) -> None:
        try:
            self._held.append(self._allocated(size_bytes))
        except MemoryError:
            held_mib = self._held_bytes >> 20
            # To have room for the last words.
            self._held.clear()
            raise MemoryError(f"refused after {held_mib} MiB") from None
        self._held_bytes += size_bytes

    def _allocated(self, size_bytes: int) -> Any:
        if not self._held:
            _limit_address_space(self._limit_bytes)
        if self._held_bytes >= self._limit_bytes:
            # The system does not respect the limit.
            raise MemoryError
        # Zeroed byte by byte, so that it is really there.
        return bytearray(size_bytes)

    def output_digest(self) -> list[float]:
        return [1.0]


class FaultOnDevice(cuda.CudaWorkload, Fault):
    def __init__(self, kind: str, at_fraction: float) -> None:
        cuda.CudaWorkload.__init__(self)
        Fault.__init__(self, kind, at_fraction)
        self._limit_bytes, _ = cuda.memory_bytes()
        self._blocks = BLOCKS_PER_SM * cuda.sm_count()
        self._kernels = {name: cuda.Kernel(PTX, name) for name in ("spin1", "illegal", "fail")}
        self._kernels[empty.NAME] = cuda.Kernel(empty.PTX, empty.NAME)

    def _quiet(self) -> None:
        self._run(empty.NAME, 1, 1)

    def _run(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        self._kernels[name].launch(blocks, threads, *arguments, stream=self.stream)
        self.synchronize()

    def _killed(self) -> None:
        self._kernels["spin1"].launch(self._blocks, THREADS_PER_BLOCK, KERNEL_NS, stream=self.stream)
        super()._killed()

    def _spin(self) -> None:
        duration_ns = self._end_ns + SPIN_BEYOND_NS - time.monotonic_ns()
        if duration_ns > 0:
            self._run("spin1", self._blocks, THREADS_PER_BLOCK, duration_ns)

    def _illegal_address(self) -> None:
        self._run("illegal", 1, 1)

    def _assert(self) -> None:
        self._run("fail", 1, 1)

    def _allocated(self, size_bytes: int) -> Any:
        try:
            return cuda.Buffer(size_bytes)
        except cuda.CudaError as error:
            if error.name == cuda.OUT_OF_MEMORY:
                raise MemoryError from error
            raise


def _leave_no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _limit_address_space(more_bytes: int) -> None:
    """Let this process have that much more address space than now, where the system reports how much that is."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        now_bytes = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now_bytes + more_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


def create(params: Params, device: str) -> Fault:
    kind, at_fraction = with_defaults(params, {"kind": tuple(FAULTS), "at_fraction": 0.4}, "fault").values()
    if at_fraction >= 1:
        raise ParameterError(f"fault at_fraction must be below 1, not {at_fraction:g}")
    return (FaultOnDevice if device == "cuda" else Fault)(kind, at_fraction)
