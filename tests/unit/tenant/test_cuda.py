"""Calls of the CUDA driver, against a stand-in of its library."""

import ctypes
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenant import contract
from tenant.gpu import cuda, green_contexts

UUID = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"


@pytest.fixture
def stub(driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The stand-in, freshly loaded by the module, with a context in this thread."""
    library = str(driver / "libcuda.so.1")
    monkeypatch.setattr(cuda, "LIBRARY", library)
    for cached in (cuda._library, cuda.device_number, cuda._primary_context):
        cached.cache_clear()
    cuda.open_context()
    yield ctypes.CDLL(library)
    cuda.call("cuCtxSetCurrent", None)
    for cached in (cuda._library, cuda.device_number, cuda._primary_context):
        cached.cache_clear()


def test_the_view_of_a_gpu(stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contract.PROBE_BYTES_VARIABLE, raising=False)
    assert cuda.device_view() == {
        "pid": os.getpid(),
        "device": hashlib.sha256(f"gpu-{UUID}".encode()).hexdigest()[:16],
        "is_mig": False,
        "sm_count": 132,
        "memory_free_bytes": 1 << 20,
        "memory_total_bytes": 1 << 20,
        "over_limit_refused": None,
    }


@pytest.mark.parametrize(("probe_bytes", "is_refused"), [((1 << 20) + 1, True), (1 << 20, False)])
def test_probing_a_memory_limit_keeps_no_memory(
    stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, probe_bytes: int, is_refused: bool
) -> None:
    monkeypatch.setenv(contract.PROBE_BYTES_VARIABLE, str(probe_bytes))
    for _ in range(2):
        view = cuda.device_view()
        assert (view["over_limit_refused"], view["memory_free_bytes"]) == (is_refused, 1 << 20)


def test_tenants_that_share_a_lock_create_their_contexts_one_after_another(
    stub: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`open_context` waits for another holder's lock, and releases its own once the context exists."""
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


def test_a_device_buffer_is_zeroed_read_and_freed(stub: ctypes.CDLL) -> None:
    buffer = cuda.DeviceBuffer(64)
    # An address needs all of its 64 bits.
    assert buffer.pointer > 1 << 32
    assert buffer.read() == bytes(64)
    ctypes.memset(buffer.pointer, 7, 64)
    assert buffer.read() == bytes([7]) * 64
    buffer.fill(0x01020304)
    assert buffer.read() == bytes([4, 3, 2, 1]) * 16
    assert cuda.DeviceBuffer(64, is_zeroed=False).size_bytes == 64
    del buffer
    assert cuda.device_view()["memory_free_bytes"] == 1 << 20
    with pytest.raises(cuda.CudaError) as caught:
        cuda.DeviceBuffer(1 << 21)
    assert caught.value.name == cuda.OUT_OF_MEMORY


def test_a_kernel_error_has_the_compilers_message(stub: ctypes.CDLL) -> None:
    with pytest.raises(cuda.CudaError, match="cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX: ptxas: syntax error"):
        cuda.Kernel("broken", "nothing")


@pytest.mark.parametrize(
    "wanted, granted", [([44, 44, 44], [40, 40, 40]), ([66, 66], [64, 64]), ([39, 92], [32, 88]), ([132], [128])]
)
def test_green_contexts_are_rounded_down_and_disjoint(stub: ctypes.CDLL, wanted: list[int], granted: list[int]) -> None:
    parts = green_contexts.split(wanted)
    views = [part.view(cuda.device_view()) for part in parts]
    assert [view["sm_count"] for view in views] == granted
    seen = [number for view in views for number in view["sm_ids"]]
    assert len(seen) == len(set(seen)) == sum(granted)


def test_a_thread_keeps_the_context_and_the_streams_of_its_part(stub: ctypes.CDLL) -> None:
    made = []

    def run(part: green_contexts.Part) -> None:
        part.enter()
        cuda.open_context()
        cuda.CudaStream()
        made.append((cuda.stream_source.get(), min(part.sm_ids())))

    for part in green_contexts.split([64, 64]):
        thread = threading.Thread(target=run, args=(part,))
        thread.start()
        thread.join()
        assert made[-1][0] == part._stream
    assert [begin for _, begin in made] == [0, 64]
    assert cuda.stream_source.get() is None


def test_a_green_context_below_the_smallest_is_refused(stub: ctypes.CDLL) -> None:
    with pytest.raises(cuda.CudaError, match="no green context is as small as 7 of 132 SMs"):
        green_contexts.split([7])


def test_a_missing_cuda_driver_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", "libno-such-driver.so.1")
    cuda._library.cache_clear()
    cuda.device_number.cache_clear()
    cuda._primary_context.cache_clear()
    with pytest.raises(cuda.CudaError, match="no CUDA driver: libno-such-driver"):
        cuda.open_context()
