import pytest

from tenant.failures import exit_code


class OutOfMemoryError(RuntimeError):
    """As torch's, which is a RuntimeError too."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("unable to allocate 3 GiB"),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore lines"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"),
        RuntimeError("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1"),
    ],
)
def test_out_of_memory_errors_of_all_libraries_have_one_exit_code(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(error) == 12
    said = capsys.readouterr().err
    assert said.startswith("out of memory: ") and said.count("\n") == 1
