"""The CUDA driver through ctypes: a tenant's view of its GPU, and kernels from PTX text. No torch or toolkit is needed.

Everything happens in the primary context of the first visible device, which torch and the CUDA runtime use, too.
"""

import ctypes
import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID
from weakref import finalize

from tenant.contract import CONTEXT_LOCK_VARIABLE, PROBE_BYTES_VARIABLE, DeviceView, device_digest
from tenant.workload import Workload

LIBRARY = "libcuda.so.1"
MIG_PREFIX = "MIG-"
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
# Values of CUdevice_attribute, CUstream_flags and CUjit_option in the driver's header.
MULTIPROCESSOR_COUNT = 16
STREAM_NON_BLOCKING = 1
JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6
JIT_LOG_BYTES = 4096

_INTEGERS, _SIZES, _HANDLES = POINTER(c_int), POINTER(c_size_t), POINTER(c_void_p)
# Argument types of the library's functions. The `_v2` functions have 64-bit sizes and addresses. Streams, events,
# contexts, modules and functions are handles.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_INTEGERS,),
    "cuDeviceGet": (_INTEGERS, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (POINTER(c_ubyte * 16), c_int),
    "cuDeviceGetAttribute": (_INTEGERS, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLES, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_SIZES, _SIZES),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuMemsetD32_v2": (c_uint64, c_uint, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuModuleLoadDataEx": (_HANDLES, c_char_p, c_uint, _INTEGERS, _HANDLES),
    "cuModuleGetFunction": (_HANDLES, c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, _HANDLES, _HANDLES),
    "cuStreamCreate": (_HANDLES, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuEventCreate": (_HANDLES, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}


# Creates the streams of a thread that has a green context of its own (tenant.gpu.green_contexts).
stream_source: ContextVar[Callable[[], c_void_p] | None] = ContextVar("stream_source", default=None)


class CudaError(Exception):
    """A call of the driver failed; `name` is the driver's name of the error, empty if there is no driver."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
        for symbol, types in SIGNATURES.items():
            getattr(library, symbol).argtypes = types
    except (OSError, AttributeError) as error:
        raise CudaError(f"no CUDA driver: {error}") from error
    library.cuGetErrorName.argtypes = (c_int, POINTER(c_char_p))
    return library


def _check(symbol: str, code: int) -> None:
    if code:
        text = c_char_p()
        _library().cuGetErrorName(code, byref(text))
        name = text.value.decode() if text.value else f"CUDA error {code}"
        raise CudaError(f"{symbol}: {name}", name)


def call(symbol: str, *arguments: Any) -> None:
    _check(symbol, getattr(_library(), symbol)(*arguments))


def new_handle(symbol: str, *arguments: Any) -> c_void_p:
    handle = c_void_p()
    call(symbol, byref(handle), *arguments)
    return handle


@cache
def device_number() -> int:
    call("cuInit", 0)
    device = c_int()
    call("cuDeviceGet", byref(device), 0)
    return device.value


@cache
def _primary_context() -> c_void_p:
    return new_handle("cuDevicePrimaryCtxRetain", device_number())


def open_context() -> None:
    """Make the primary context current in the calling thread; creates it if need be. Raises CudaError.

    A thread with a green context keeps that.
    """
    with ExitStack() as stack:
        if path := os.environ.get(CONTEXT_LOCK_VARIABLE):
            # Tenants that share this file create their contexts one after another.
            fcntl.flock(stack.enter_context(Path(path).open("w")), fcntl.LOCK_EX)
        context = _primary_context()
    if stream_source.get() is None:
        call("cuCtxSetCurrent", context)


def driver_version() -> str:
    """The driver's CUDA version, such as 13.0. Raises CudaError."""
    version = c_int()
    call("cuDriverGetVersion", byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _uuid() -> str:
    octets = (c_ubyte * 16)()
    # For a MIG instance, this is the UUID of the instance, as in NVML: only the name distinguishes the two.
    call("cuDeviceGetUuid_v2", byref(octets), device_number())
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, len(name), device_number())
    kind = "MIG" if " MIG " in name.value.decode() else "GPU"
    return f"{kind}-{UUID(bytes=bytes(octets))}"


def sm_count() -> int:
    """Number of SMs under the active limits. Raises CudaError."""
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), MULTIPROCESSOR_COUNT, device_number())
    return value.value


def memory_bytes() -> tuple[int, int]:
    """Free and total memory under the active limits. Needs `open_context`. Raises CudaError."""
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value, total.value


def is_allocation_refused(size_bytes: int) -> bool:
    pointer = c_uint64()
    try:
        call("cuMemAlloc_v2", byref(pointer), size_bytes)
    except CudaError as error:
        if error.name != OUT_OF_MEMORY:
            raise
        return True
    call("cuMemFree_v2", pointer)
    return False


def device_view() -> DeviceView:
    """This process's view of its device, for the record. Needs `open_context`. Raises CudaError.

    `over_limit_refused` tests an allocation of PROBE_BYTES_VARIABLE's bytes; None if the variable is not set.
    """
    free_bytes, total_bytes = memory_bytes()
    probe, uuid = os.environ.get(PROBE_BYTES_VARIABLE), _uuid()
    return {
        "pid": os.getpid(),
        "device": device_digest(uuid),
        "is_mig": uuid.startswith(MIG_PREFIX),
        "sm_count": sm_count(),
        "memory_free_bytes": free_bytes,
        "memory_total_bytes": total_bytes,
        "over_limit_refused": None if probe is None else is_allocation_refused(int(probe)),
    }


class CudaStream:
    """A stream that does not wait for the default stream. Needs `open_context` in the calling thread."""

    def __init__(self, handle: c_void_p | None = None) -> None:
        """With a `handle`, this stream of the driver."""
        create = stream_source.get() or (lambda: new_handle("cuStreamCreate", STREAM_NON_BLOCKING))
        self.handle = handle or create()
        self._wait = _library().cuStreamSynchronize

    def synchronize(self) -> None:
        """Wait for all work in the stream; other threads of the process run meanwhile."""
        _check("cuStreamSynchronize", self._wait(self.handle))


class CudaEventPair:
    def __init__(self, stream: CudaStream) -> None:
        self._stream = stream
        self._begin = new_handle("cuEventCreate", 0)
        self._end = new_handle("cuEventCreate", 0)

    def begin(self) -> None:
        call("cuEventRecord", self._begin, self._stream.handle)

    def end(self) -> None:
        call("cuEventRecord", self._end, self._stream.handle)

    def elapsed_ns(self) -> int:
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), self._begin, self._end)
        return round(milliseconds.value * 1e6)


class DeviceBuffer:
    """Device memory, zeroed or as it is; `pointer` is its device address. It is freed with the object."""

    def __init__(self, size_bytes: int, is_zeroed: bool = True) -> None:
        self.size_bytes = size_bytes
        address = c_uint64()
        call("cuMemAlloc_v2", byref(address), size_bytes)
        self.pointer = address.value
        self.free = finalize(self, call, "cuMemFree_v2", address)
        # The process's end frees it, too, and the driver may be gone by then.
        self.free.atexit = False
        if is_zeroed:
            call("cuMemsetD8_v2", address, 0, size_bytes)

    def fill(self, word: int) -> None:
        """Fill it with a word of 32 bits, and wait for that."""
        call("cuMemsetD32_v2", self.pointer, word, self.size_bytes // 4)
        call("cuCtxSynchronize")

    def read(self) -> bytes:
        """Copy the memory to the host. Waits for the default stream only, so synchronise the writing stream first."""
        content = ctypes.create_string_buffer(self.size_bytes)
        call("cuMemcpyDtoH_v2", content, self.pointer, self.size_bytes)
        return content.raw


class Kernel:
    """A kernel of a PTX text, which the driver compiles. Raises CudaError with the compiler's message."""

    def __init__(self, ptx_text: str, name: str) -> None:
        log = ctypes.create_string_buffer(JIT_LOG_BYTES)
        options = (c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), JIT_LOG_BYTES)
        try:
            module = new_handle("cuModuleLoadDataEx", ptx_text.encode(), 2, options, values)
        except CudaError as error:
            message = log.value.decode(errors="replace").strip()
            raise CudaError(f"{error}: {message}" if message else str(error), error.name) from error
        self._function = new_handle("cuModuleGetFunction", module, name.encode())

    def launcher(self, blocks: int, threads: int, *arguments: int, stream: CudaStream) -> Callable[[], None]:
        """Return a function that launches the kernel with these arguments and raises CudaError.

        `threads` counts per block. Each argument has 64 bits: a number, or the pointer of a buffer.
        """
        values = [c_uint64(argument) for argument in arguments]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        handle, extents = stream.handle, (blocks, 1, 1, threads, 1, 1)
        function, start = self._function, _library().cuLaunchKernel

        def launch() -> None:
            # Using `values` here keeps alive what `pointers` points to.
            _check("cuLaunchKernel", start(function, *extents, 0, handle, pointers if values else None, None))

        return launch

    def launch(self, blocks: int, threads: int, *arguments: int, stream: CudaStream) -> None:
        self.launcher(blocks, threads, *arguments, stream=stream)()


class CudaWorkload(Workload):
    """Base class of workloads that launch kernels in one stream of their own. Raises CudaError."""

    def __init__(self) -> None:
        open_context()
        self.stream = CudaStream()

    def attach(self) -> None:
        open_context()

    def synchronize(self) -> None:
        self.stream.synchronize()

    def packages(self) -> dict[str, str]:
        return {"cuda-driver": driver_version()}

    def memory_bytes(self) -> int | None:
        """None, because the driver does not report a context's memory to its own process."""
        return None
