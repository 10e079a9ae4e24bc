"""The driver's calls against a library that answers as the driver does."""

import ctypes
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenant import contract, workloads
from tenant.gpu import cuda

UUID = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"


@pytest.fixture
def stub(driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The library, freshly taken up by the module, and a context in this thread."""
    library = str(driver / "libcuda.so.1")
    monkeypatch.setattr(cuda, "LIBRARY", library)
    for cached in (cuda._library, cuda._device, cuda._primary_context):
        cached.cache_clear()
    cuda.open_context()
    yield ctypes.CDLL(library)
    cuda._call("cuCtxSetCurrent", None)
    for cached in (cuda._library, cuda._device, cuda._primary_context):
        cached.cache_clear()


def test_the_view_of_a_gpu(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contract.PROBE_VARIABLE, raising=False)
    assert cuda.view() == {
        "pid": os.getpid(),
        "device": hashlib.sha256(f"gpu-{UUID}".encode()).hexdigest()[:16],
        "is_mig": False,
        "sm_count": 132,
        "memory_free_bytes": 1 << 20,
        "memory_total_bytes": 1 << 20,
        "over_limit_refused": None,
    }


def test_the_view_of_a_mig_instance_has_the_instances_identity(
    stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_NAME", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert cuda.view()["device"] == contract.device_digest(f"MIG-{UUID}")
    assert cuda.view()["is_mig"] is True


@pytest.mark.parametrize(("probe_bytes", "is_refused"), [((1 << 20) + 1, True), (1 << 20, False)])
def test_a_memory_limit_is_tried_and_nothing_is_kept(
    stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, probe_bytes: int, is_refused: bool
) -> None:
    monkeypatch.setenv(contract.PROBE_VARIABLE, str(probe_bytes))
    for _ in range(2):
        seen = cuda.view()
        assert (seen["over_limit_refused"], seen["memory_free_bytes"]) == (is_refused, 1 << 20)


def test_the_context_is_one_and_current_in_every_thread_that_opens_it(stub: ctypes.CDLL) -> None:
    before = ctypes.c_int.in_dll(stub, "contexts_retained").value
    failures: list[Exception] = []

    def use(opens: bool) -> None:
        try:
            if opens:
                cuda.open_context()
            cuda.Stream()
        except cuda.CudaError as error:
            failures.append(error)

    for opens in (True, False):
        thread = threading.Thread(target=use, args=(opens,))
        thread.start()
        thread.join()
    assert ctypes.c_int.in_dll(stub, "contexts_retained").value == before
    assert [str(error) for error in failures] == ["cuStreamCreate: CUDA_ERROR_INVALID_CONTEXT"]


def test_tenants_with_one_lock_make_their_contexts_one_after_another(
    stub: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of another is waited for, and given back once the context is there."""
    path = tmp_path / "lock"
    monkeypatch.setenv(contract.CONTEXT_LOCK_VARIABLE, str(path))
    thread = threading.Thread(target=cuda.open_context)
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(5)
    assert not thread.is_alive()
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_buffer_is_zeroed_read_and_given_back(stub: ctypes.CDLL) -> None:
    buffer = cuda.Buffer(64)
    # An address needs all of its 64 bits.
    assert buffer.pointer > 1 << 32
    assert buffer.read() == bytes(64)
    ctypes.memset(buffer.pointer, 7, 64)
    assert buffer.read() == bytes([7]) * 64
    cuda._call("cuMemFree_v2", buffer.pointer)
    assert cuda.view()["memory_free_bytes"] == 1 << 20
    with pytest.raises(cuda.CudaError) as caught:
        cuda.Buffer(1 << 21)
    assert caught.value.name == cuda.OUT_OF_MEMORY


def test_arguments_of_a_launch_arrive_whole(stub: ctypes.CDLL) -> None:
    kernel, stream = cuda.Kernel("fine", "two2"), cuda.Stream()
    kernel.launch(4, 32, 0x7FFF_1234_5678_9ABC, 3, stream=stream)
    assert list((ctypes.c_uint64 * 9).in_dll(stub, "launched_arguments"))[:2] == [0x7FFF_1234_5678_9ABC, 3]
    assert list((ctypes.c_uint * 6).in_dll(stub, "launched_extents")) == [4, 1, 1, 32, 1, 1]
    assert ctypes.c_void_p.in_dll(stub, "launched_stream").value == stream.handle.value


def test_what_the_compiler_says_is_in_the_error(stub: ctypes.CDLL) -> None:
    with pytest.raises(cuda.CudaError, match="cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX: ptxas: syntax error"):
        cuda.Kernel("broken", "nothing")


def test_events_bracket_what_lies_between(stub: ctypes.CDLL) -> None:
    stream = cuda.Stream()
    events = cuda.Events(stream)
    events.begin()
    stream.synchronize()
    events.end()
    assert 1_000_000 <= events.elapsed_ns() < 1_000_000_000


def test_without_a_library_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", "libno-such-driver.so.1")
    cuda._library.cache_clear()
    cuda._device.cache_clear()
    cuda._primary_context.cache_clear()
    with pytest.raises(cuda.CudaError, match="no CUDA driver: libno-such-driver"):
        cuda.open_context()


def test_the_empty_kernel_is_launched_once_per_step(stub: ctypes.CDLL) -> None:
    workload = workloads.create(workloads.load_module("empty", "cuda"), {}, "cuda")
    workload.attach()
    before = ctypes.c_int.in_dll(stub, "launches").value
    for _ in range(3):
        workload.step()
    assert ctypes.c_int.in_dll(stub, "launches").value == before + 3
    assert workload.packages() == {"cuda-driver": "13.2"}
    assert workload.captured
