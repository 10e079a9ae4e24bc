"""The fault workload: the moment of the fault, and its calls of the CUDA driver."""

import ctypes
import os
import signal
import time
from types import SimpleNamespace
from typing import get_args

import pytest
from unit.tenant.test_cuda import stub

from sharebench.model import faults
from sharebench.model.study_config import Fault
from tenant.gpu import cuda
from tenant.workloads import fault

__all__ = ["stub"]
# Of the window, when the fault is due.
LEFT_NS = 1_000_000_000


class RecordingFault(fault.Fault):
    """Records the times of its faults."""

    def __init__(self) -> None:
        super().__init__("killed", 0.5)
        self.times_ns: list[int] = []
        self._inject = lambda: self.times_ns.append(time.monotonic_ns())


def test_a_fault_occurs_on_time_and_only_in_the_second_window() -> None:
    workload = RecordingFault()
    now_ns = time.monotonic_ns()
    workload.on_window(now_ns, now_ns + 1)
    for _ in range(3):
        workload.step()
    assert workload.times_ns == [], "the first window is a rehearsal"
    start_ns = time.monotonic_ns()
    workload.on_window(start_ns, start_ns + 60_000_000)
    while not workload.times_ns:
        workload.step()
    assert workload.times_ns[0] >= start_ns + 30_000_000


def cuda_fault(kind: str) -> fault.CudaFault:
    """The workload on the stand-in of the CUDA driver, in the middle of its window."""
    workload = fault.create({"kind": kind}, "cuda")
    assert isinstance(workload, fault.CudaFault)
    workload.attach()
    now_ns = time.monotonic_ns()
    workload._due_ns, workload._end_ns = now_ns, now_ns + LEFT_NS
    return workload


def extents(library: ctypes.CDLL) -> list[int]:
    return list((ctypes.c_uint * 6).in_dll(library, "launched_extents"))


def arguments(library: ctypes.CDLL) -> list[int]:
    return list((ctypes.c_uint64 * 9).in_dll(library, "launched_arguments"))


def test_a_spin_fault_fills_the_gpu_and_ends_by_itself(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = cuda_fault("spin")
    # No time passes, or a busy machine would take it from the spin's.
    clock = SimpleNamespace(monotonic_ns=lambda: workload._due_ns, sleep=lambda _: None)
    monkeypatch.setattr(fault, "time", clock)
    workload.step()
    assert extents(stub) == [2 * 132, 1, 1, 1024, 1, 1]
    assert arguments(stub)[0] == LEFT_NS + fault.SPIN_BEYOND_NS


def test_a_tenant_is_killed_while_its_kernel_runs(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    cuda_fault("killed").step()
    assert killed == [signal.SIGKILL]
    assert extents(stub)[0] == 2 * 132
    assert arguments(stub)[0] == fault.KERNEL_NS


@pytest.mark.parametrize("kind", ["illegal-address", "assert"])
def test_a_faulty_kernel_is_launched_after_a_quiet_one(
    stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    workload = cuda_fault(kind)
    launches = ctypes.c_int.in_dll(stub, "launches")
    before = launches.value
    workload.step()
    assert launches.value == before + 2, "a quiet kernel, and the faulty one"


def test_an_oom_fault_allocates_gpu_memory_until_it_is_refused(
    stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: list[cuda.DeviceBuffer] = []

    class RecordedBuffer(cuda.DeviceBuffer):
        def __init__(self, size_bytes: int) -> None:
            super().__init__(size_bytes)
            buffers.append(self)

    monkeypatch.setattr(cuda, "DeviceBuffer", RecordedBuffer)
    with pytest.raises(MemoryError, match="refused after 1 MiB"):
        cuda_fault("oom").step()
    assert cuda.device_view()["memory_free_bytes"] == 0
    for buffer in buffers:
        buffer.free()


def test_the_config_has_exactly_these_kinds_of_faults() -> None:
    assert get_args(Fault) == tuple(fault.FAULTS)
    assert set(fault.FAULTS.values()) == {"oom", "crashed", "killed", "hung"}
    assert all(faults.fault_kind(faults.workload_name(kind, "matmul")) == kind for kind in fault.FAULTS)
    assert faults.fault_kind("fault-drill") is faults.fault_kind("matmul+fault-killed") is None
