"""The tasks of `tenant.tasks` on a GPU: kernels from PTX text, memory of the driver, answers of torch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from threading import Lock
from typing import Any

import torch

from tenant.gpu import cuda
from tenant.gpu.answers import check_answers, library_versions
from tenant.gpu.torch_device import TorchWorkload
from tenant.tasks import Tasks
from tenant.workload import Work

THREADS = 256
# A busy iteration is the same work on whatever part of the SMs a tenant has, in enough blocks to fill it evenly.
# It takes about 4 ms on an H100.
BLOCKS, ROUNDS = 16896, 1600
LIGHT_BLOCKS, LIGHT_ROUNDS = 16, 1000
# All of the shared memory that a block may have without asking for more.
SHARED_BYTES = 49152
WORD_BYTES = 4
BUFFER_BYTES = 1 << 30

# void burn2(float *out, uint64 rounds): each thread does 16 multiply-adds per round, towards 1.
# void count4(uint64 *out, uint32 *words, uint64 count, uint64 pattern): adds the number of words that are the pattern.
# void fill1(uint64 pattern): leaves it in shared memory. void seen2(uint64 *out, uint64 pattern): counts it there.
_FMA = "\n".join(f"    fma.rn.f32          %x{i}, %x{i}, %a, %b;" for i in [0, 1, 2, 3] * 4)
_STRIDE = """
    mov.u32             %t, %tid.x;
    mov.u32             %s, %ntid.x;
    shl.b32             %t, %t, 2;
    shl.b32             %s, %s, 2;
    mov.u32             %area, area;
    add.u32             %t, %t, %area;
    add.u32             %end, %area, SHARED;
"""
PTX = f"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry burn2(.param .u64 p_out, .param .u64 p_rounds)
{{
    .reg .pred  %p;
    .reg .b32   %t;
    .reg .f32   %a, %b, %x<4>;
    .reg .b64   %out, %rounds, %at;
    ld.param.u64        %out, [p_out];
    ld.param.u64        %rounds, [p_rounds];
    cvta.to.global.u64  %out, %out;
    mov.u32             %t, %tid.x;
    cvt.rn.f32.u32      %x0, %t;
    add.f32             %x1, %x0, 0f3F800000;
    add.f32             %x2, %x1, 0f3F800000;
    add.f32             %x3, %x2, 0f3F800000;
    mov.f32             %a, 0f3F7FBE77;
    mov.f32             %b, 0f3A83126F;
ROUND:
{_FMA}
    sub.u64             %rounds, %rounds, 1;
    setp.ne.u64         %p, %rounds, 0;
    @%p bra             ROUND;
    add.f32             %x0, %x0, %x1;
    add.f32             %x2, %x2, %x3;
    add.f32             %x0, %x0, %x2;
    mul.wide.u32        %at, %t, 4;
    add.u64             %at, %out, %at;
    st.global.f32       [%at], %x0;
    ret;
}}

.visible .entry count4(.param .u64 p_out, .param .u64 p_words, .param .u64 p_count, .param .u64 p_pattern)
{{
    .reg .pred  %p, %q;
    .reg .b32   %b, %bs, %t, %gs, %word, %pattern;
    .reg .b64   %out, %words, %count, %i, %t64, %stride, %at, %n, %wide;
    ld.param.u64        %out, [p_out];
    ld.param.u64        %words, [p_words];
    ld.param.u64        %count, [p_count];
    ld.param.u64        %wide, [p_pattern];
    cvt.u32.u64         %pattern, %wide;
    cvta.to.global.u64  %out, %out;
    cvta.to.global.u64  %words, %words;
    mov.u32             %b, %ctaid.x;
    mov.u32             %bs, %ntid.x;
    mov.u32             %t, %tid.x;
    mov.u32             %gs, %nctaid.x;
    mul.wide.u32        %i, %b, %bs;
    cvt.u64.u32         %t64, %t;
    add.u64             %i, %i, %t64;
    mul.wide.u32        %stride, %bs, %gs;
    mov.u64             %n, 0;
WORD:
    setp.ge.u64         %p, %i, %count;
    @%p bra             DONE;
    shl.b64             %at, %i, 2;
    add.u64             %at, %words, %at;
    ld.global.u32       %word, [%at];
    setp.eq.u32         %q, %word, %pattern;
    @%q add.u64         %n, %n, 1;
    add.u64             %i, %i, %stride;
    bra                 WORD;
DONE:
    red.global.add.u64  [%out], %n;
    ret;
}}

.visible .entry fill1(.param .u64 p_pattern)
{{
    .reg .pred  %p;
    .reg .b32   %t, %s, %area, %end, %word;
    .reg .b64   %wide;
    .shared .align 4 .b8 area[{SHARED_BYTES}];
    ld.param.u64        %wide, [p_pattern];
    cvt.u32.u64         %word, %wide;
{_STRIDE.replace("SHARED", str(SHARED_BYTES))}
STORE:
    st.volatile.shared.u32 [%t], %word;
    add.u32             %t, %t, %s;
    setp.lt.u32         %p, %t, %end;
    @%p bra             STORE;
    ret;
}}

.visible .entry seen2(.param .u64 p_out, .param .u64 p_pattern)
{{
    .reg .pred  %p, %q;
    .reg .b32   %t, %s, %area, %end, %word, %pattern;
    .reg .b64   %out, %n, %wide;
    .shared .align 4 .b8 area[{SHARED_BYTES}];
    ld.param.u64        %out, [p_out];
    ld.param.u64        %wide, [p_pattern];
    cvt.u32.u64         %pattern, %wide;
    cvta.to.global.u64  %out, %out;
    mov.u64             %n, 0;
{_STRIDE.replace("SHARED", str(SHARED_BYTES))}
LOAD:
    ld.volatile.shared.u32 %word, [%t];
    setp.eq.u32         %q, %word, %pattern;
    @%q add.u64         %n, %n, 1;
    add.u32             %t, %t, %s;
    setp.lt.u32         %p, %t, %end;
    @%p bra             LOAD;
    red.global.add.u64  [%out], %n;
    ret;
}}
"""


_ANSWERING = Lock()


class CudaTasks(TorchWorkload, Tasks):
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self) -> None:
        cuda.open_context()
        TorchWorkload.__init__(self, "cuda")
        Tasks.__init__(self)
        self.is_captured = True
        self._modes["pattern"] = self._leave_pattern
        # Its kernels use a stream of the driver on the same SMs as torch's.
        self._kernel_stream = cuda.CudaStream()
        self._out = cuda.DeviceBuffer(WORD_BYTES * THREADS)
        self._kernels = {name: cuda.Kernel(PTX, name) for name in ("burn2", "count4", "fill1", "seen2")}

    def attach(self) -> None:
        super().attach()
        cuda.open_context()

    def step(self) -> None:
        Tasks.step(self)

    def synchronize(self) -> None:
        self._kernel_stream.synchronize()

    def _run(self, name: str, blocks: int, *arguments: int) -> None:
        self._kernels[name].launch(blocks, THREADS, *arguments, stream=self._kernel_stream)
        self.synchronize()

    def _busy(self) -> None:
        self._run("burn2", BLOCKS, self._out.pointer, ROUNDS)

    def _light(self) -> None:
        self._run("burn2", LIGHT_BLOCKS, self._out.pointer, LIGHT_ROUNDS)

    def _leave_pattern(self) -> None:
        self._run("fill1", BLOCKS, self.pattern)

    def output_digest(self) -> list[float]:
        self._busy()
        values = array("f", self._out.read())
        return [sum(values) / len(values), max(values)]

    def packages(self) -> dict[str, str]:
        return {**super().packages(), "cuda-driver": cuda.driver_version(), **library_versions()}

    def _total_bytes(self) -> int:
        return cuda.memory_bytes()[1]

    def _free_bytes(self) -> int:
        return cuda.memory_bytes()[0]

    def _is_allocatable(self, size_bytes: int) -> bool:
        return not cuda.is_allocation_refused(size_bytes)

    def _buffers(self, size_bytes: int) -> list[cuda.DeviceBuffer]:
        """Buffers of 1 GiB that were not initialised, as many as fit; the last may be smaller."""
        sizes = [BUFFER_BYTES] * (size_bytes // BUFFER_BYTES) + [size_bytes % BUFFER_BYTES]
        return [cuda.DeviceBuffer(size, is_zeroed=False) for size in sizes if size]

    def _filled(self, size_bytes: int) -> Sequence[cuda.DeviceBuffer]:
        buffers = self._buffers(size_bytes)
        for buffer in buffers:
            buffer.fill(self.pattern)
        return buffers

    def look(self) -> dict[str, Any]:
        size_bytes = self._pattern_bytes()
        found = cuda.DeviceBuffer(8)
        for buffer in self._buffers(size_bytes):
            self._run("count4", BLOCKS, found.pointer, buffer.pointer, buffer.size_bytes // WORD_BYTES, self.pattern)
        return {"looked_bytes": size_bytes, "found_bytes": WORD_BYTES * _number(found)}

    def look_shared(self, rounds: int) -> dict[str, Any]:
        found, blocks = cuda.DeviceBuffer(8), cuda.sm_count()
        for _ in range(rounds):
            self._run("seen2", blocks, found.pointer, self.pattern)
        looked_bytes = rounds * blocks * SHARED_BYTES
        return {"shared_looked_bytes": looked_bytes, "shared_found_bytes": WORD_BYTES * _number(found)}

    def answers(self) -> dict[str, Any]:
        # The precision of products is a setting of the process, which may have several tenants.
        with _ANSWERING:
            answers = check_answers(self.device)
        self.synchronize()
        torch.cuda.empty_cache()
        return {**vars(answers), "versions": self.packages()}


def _number(buffer: cuda.DeviceBuffer) -> int:
    return array("Q", buffer.read())[0]
