"""A tenant that fails at a set moment of its second window, next to tenants that should not notice.

Params: `kind` (a key of FAULTS in tenant/contract), `at_fraction` (of the window, the moment of the fault).

Until then it is a quiet neighbour: an iteration is 5 ms of sleep, on CUDA after an empty kernel. In its first window,
the rehearsal, it does not fail. Nothing here is endless: what spins ends by itself, and memory is limited before it is
allocated (on CUDA by the device, or by the strategy's limit). It allocates no managed memory.
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
# A hang lasts this much longer than the window, so that it cannot pass for a slow iteration.
SPIN_BEYOND_NS = 2_500_000_000
# On CUDA the process is killed while a kernel of this length runs, because killing an idle process is harmless.
KERNEL_NS = 500_000_000
# The memory limit on the CPU stand-in. It is set on the process, so that the host does not run out of memory.
LIMIT_BYTES = 128 << 20
# A leak reaches the limit after this share of the rest of the window.
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
        self._allocations: list[Any] = []
        self._allocated_bytes = 0
        self._limit_bytes = LIMIT_BYTES
        self._inject: Callable[[], None] = getattr(self, "_" + kind.replace("-", "_"))

    def on_window(self, start_ns: int, end_ns: int) -> None:
        self._windows += 1
        if self._windows == 2:
            self._end_ns = end_ns
            self._due_ns = start_ns + int(self._at_fraction * (end_ns - start_ns))

    def step(self) -> None:
        """Sleep, and from the due moment on inject the fault. Raises MemoryError."""
        self._run_quiet_kernel()
        left_ns = self._due_ns - time.monotonic_ns()
        time.sleep((left_ns if 0 < left_ns < STEP_NS else STEP_NS) / 1e9)
        if self._due_ns and time.monotonic_ns() >= self._due_ns:
            self._inject()

    def _run_quiet_kernel(self) -> None: ...

    def _killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _stopped(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _spin(self) -> None:
        until_ns = self._end_ns + SPIN_BEYOND_NS
        while time.monotonic_ns() < until_ns:
            pass

    def _illegal_address(self) -> None:
        _disable_core_dumps()
        ctypes.string_at(0)

    def _assert(self) -> None:
        _disable_core_dumps()
        # As a failed assert() in C does.
        os.abort()

    def _oom(self) -> None:
        while True:
            self._allocate(self._limit_bytes // 8)

    def _leak(self) -> None:
        elapsed_share = (time.monotonic_ns() - self._due_ns) / (self._end_ns - self._due_ns)
        while self._allocated_bytes <= elapsed_share / LEAK_SHARE * self._limit_bytes:
            self._allocate(self._limit_bytes // 64)

    def _allocate(self, size_bytes: int) -> None:
        try:
            self._allocations.append(self._new_allocation(size_bytes))
        except MemoryError:
            allocated_mib = self._allocated_bytes >> 20
            # Reporting the error needs memory, too.
            self._allocations.clear()
            raise MemoryError(f"refused after {allocated_mib} MiB") from None
        self._allocated_bytes += size_bytes

    def _new_allocation(self, size_bytes: int) -> Any:
        if not self._allocations:
            _limit_address_space(self._limit_bytes)
        if self._allocated_bytes >= self._limit_bytes:
            # This system ignores the limit on the address space.
            raise MemoryError
        # A bytearray is zeroed, so its pages really exist.
        return bytearray(size_bytes)

    def output_digest(self) -> list[float]:
        return [1.0]


class CudaFault(cuda.CudaWorkload, Fault):
    def __init__(self, kind: str, at_fraction: float) -> None:
        cuda.CudaWorkload.__init__(self)
        Fault.__init__(self, kind, at_fraction)
        self._limit_bytes, _ = cuda.memory_bytes()
        self._blocks = BLOCKS_PER_SM * cuda.sm_count()
        self._kernels = {name: cuda.Kernel(PTX, name) for name in ("spin1", "illegal", "fail")}
        self._kernels[empty.KERNEL_NAME] = cuda.Kernel(empty.PTX, empty.KERNEL_NAME)

    def _run_quiet_kernel(self) -> None:
        self._run(empty.KERNEL_NAME, 1, 1)

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

    def _new_allocation(self, size_bytes: int) -> Any:
        try:
            return cuda.DeviceBuffer(size_bytes)
        except cuda.CudaError as error:
            if error.name == cuda.OUT_OF_MEMORY:
                raise MemoryError from error
            raise


def _disable_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _limit_address_space(more_bytes: int) -> None:
    """Limit this process to `more_bytes` above its present address space, if the system reports how large that is."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        now_bytes = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now_bytes + more_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


def create(params: Params, device: str) -> Fault:
    kind, at_fraction = with_defaults(params, {"kind": tuple(FAULTS), "at_fraction": 0.4}, "fault").values()
    if at_fraction >= 1:
        raise ParameterError(f"fault at_fraction must be below 1, not {at_fraction:g}")
    return (CudaFault if device == "cuda" else Fault)(kind, at_fraction)
