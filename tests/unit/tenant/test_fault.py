"""A tenant that goes wrong: when it does, how it ends on the stand-in, and what it asks of a CUDA driver."""

import ctypes
import os
import signal
import time
from typing import get_args

import pytest
from unit.tenant.test_cuda import stub

from sharebench.core import faults
from sharebench.core.study_config import Fault
from tenant.gpu import cuda
from tenant.workloads import fault

__all__ = ["stub"]


class Watched(fault.Fault):
    """Notes when it goes wrong."""

    def __init__(self) -> None:
        super().__init__("killed", 0.5)
        self.wrong: list[int] = []
        self._inject = lambda: self.wrong.append(time.monotonic_ns())


def test_it_goes_wrong_in_the_second_window_only_and_on_time() -> None:
    workload = Watched()
    now_ns = time.monotonic_ns()
    workload.on_window(now_ns, now_ns + 1)
    for _ in range(3):
        workload.step()
    assert workload.wrong == [], "the first window is a rehearsal"
    start_ns = time.monotonic_ns()
    workload.on_window(start_ns, start_ns + 60_000_000)
    while not workload.wrong:
        workload.step()
    assert workload.wrong[0] >= start_ns + 30_000_000


def made(kind: str) -> fault.CudaFault:
    """The workload on the driver's stand-in, in the middle of its window."""
    workload = fault.create({"kind": kind}, "cuda")
    assert isinstance(workload, fault.CudaFault)
    workload.attach()
    now_ns = time.monotonic_ns()
    workload._due_ns, workload._end_ns = now_ns, now_ns + 1_000_000_000
    return workload


def extents(library: ctypes.CDLL) -> list[int]:
    return list((ctypes.c_uint * 6).in_dll(library, "launched_extents"))


def arguments(library: ctypes.CDLL) -> list[int]:
    return list((ctypes.c_uint64 * 9).in_dll(library, "launched_arguments"))


def test_a_hang_on_a_gpu_fills_it_and_ends_by_itself(stub: ctypes.CDLL) -> None:
    made("spin").step()
    assert extents(stub) == [2 * 132, 1, 1, 1024, 1, 1]
    assert 3_000_000_000 < arguments(stub)[0] <= 1_000_000_000 + fault.SPIN_BEYOND_NS


def test_a_tenant_of_a_gpu_is_killed_while_a_kernel_runs(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    made("killed").step()
    assert killed == [signal.SIGKILL]
    assert extents(stub)[0] == 2 * 132
    assert arguments(stub)[0] == fault.KERNEL_NS


@pytest.mark.parametrize("kind", ["illegal-address", "assert"])
def test_a_kernel_that_fails_ends_the_tenant(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    workload = made(kind)
    launches = ctypes.c_int.in_dll(stub, "launches")
    before = launches.value
    workload.step()
    assert launches.value == before + 2, "a quiet kernel, and the one that goes wrong"


def test_memory_of_a_gpu_is_taken_until_it_is_refused(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[cuda.DeviceBuffer] = []

    class Kept(cuda.DeviceBuffer):
        def __init__(self, size_bytes: int) -> None:
            super().__init__(size_bytes)
            taken.append(self)

    monkeypatch.setattr(cuda, "DeviceBuffer", Kept)
    with pytest.raises(MemoryError, match="refused after 1 MiB"):
        made("oom").step()
    assert cuda.device_view()["memory_free_bytes"] == 0
    for buffer in taken:
        cuda._call("cuMemFree_v2", buffer.pointer)


def test_the_config_knows_exactly_these_kinds() -> None:
    assert get_args(Fault) == tuple(fault.FAULTS)
    assert set(fault.FAULTS.values()) == {"oom", "crashed", "killed", "hung"}
    assert all(faults.fault_kind(faults.workload_name(kind, "matmul")) == kind for kind in fault.FAULTS)
    assert faults.fault_kind("fault-drill") is faults.fault_kind("matmul+fault-killed") is None
