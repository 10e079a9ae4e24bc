"""HAMi-core on a host: a library in each tenant's process that delays kernel launches and refuses memory.

The user provides the library. Variables and files: HAMi-core, README and src/multiprocess (version 1.2 of its region).
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import psutil

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import Evidence, Grant, item
from sharebench.measure.nodes.host.mps import process_variables
from sharebench.model.strategy import TenantLimits
from tenant.contract import CONTEXT_LOCK_VARIABLE

SOURCE = "https://github.com/Project-HAMi/HAMi-core"
LIBRARY_VARIABLE = "LD_PRELOAD"
THREADS_VARIABLE = "CUDA_DEVICE_SM_LIMIT"
MEMORY_VARIABLE = "CUDA_DEVICE_MEMORY_LIMIT"
POLICY_VARIABLE = "GPU_CORE_UTILIZATION_POLICY"
LIMIT_VARIABLES = (THREADS_VARIABLE, MEMORY_VARIABLE, POLICY_VARIABLE)


def unavailable(library: str | None, gpu_index: int) -> str | None:
    """The reason why HAMi-core cannot limit tenants of this GPU, or None."""
    if library is None:
        return f"nvidia.hami_core names no library; build libvgpu.so of {SOURCE}, and give its path"
    if gpu_index:
        return f"HAMi-core would watch GPU 0 and not GPU {gpu_index}, since it takes a UUID for the index 0"
    return None


def variables(library: str, region: Path, own: TenantLimits, memory_bytes: int | None) -> dict[str, str]:
    """A tenant's environment variables, on a device with that memory; `region` is the tenant's own usage file.

    The policy `force` applies the limit even when a tenant is alone on the GPU.
    """
    limit_bytes = own.memory_bytes(memory_bytes)
    values = {
        LIBRARY_VARIABLE: library,
        # Its own path; the default path may hold another version.
        "CUDA_REDIRECT": library,
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
        # It takes any new process in NVML's list for its own, and its lock for that is per region: ours is common.
        CONTEXT_LOCK_VARIABLE: str(region.with_name("lock")),
        "LIBCUDA_LOG_LEVEL": "0",
        POLICY_VARIABLE: "force",
        THREADS_VARIABLE: None if own.thread_percent is None else f"{own.thread_percent:g}",
        MEMORY_VARIABLE: None if limit_bytes is None else f"{limit_bytes // MEBIBYTE}m",
    }
    return {name: value for name, value in values.items() if value is not None}


def empty_region_folder(folder: Path) -> None:
    """Empty the folder of the regions: an existing region keeps its limits, whatever the environment says."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


@lru_cache
def _library_identity(library: str) -> str:
    """The library's name and the beginning of its digest, since its versions have no other name."""
    content = Path(library).read_bytes()
    return f"{Path(library).name} sha256:{hashlib.sha256(content).hexdigest()[:12]}"


def _has_mapped(pid: int, library: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return str(Path(library).resolve()) in {each.path for each in psutil.Process(pid).memory_maps()}
    return False


def evidence(grant: Grant, family: Iterable[int | None]) -> Evidence:
    """Evidence that the library is in all of a tenant's processes, and that they were started with its limits."""
    pids = [pid for pid in family if pid is not None]
    library = grant.environment[LIBRARY_VARIABLE]
    identity = _library_identity(library)
    is_mapped = bool(pids) and all(_has_mapped(pid, library) for pid in pids)
    wanted = {name: grant.environment[name] for name in LIMIT_VARIABLES if name in grant.environment}
    actual: list[Mapping[str, str]] = [process_variables(pid, LIMIT_VARIABLES) for pid in pids]
    observed = next((each for each in actual if each != wanted), wanted if actual else {})
    return [
        item(f"library in tenant {grant.index}", identity, identity if is_mapped else "not mapped", "node"),
        item(f"limits in the environment of tenant {grant.index}", wanted, observed, "node"),
    ]


def memory_evidence(
    limit_bytes: int | None, device_bytes: int | None, total_bytes: int | None, source: str
) -> Evidence:
    """Evidence that CUDA's size of the device is the limit; for a limit of the whole device, at most the limit."""
    if limit_bytes is None or device_bytes is None:
        return []
    limit = limit_bytes // MEBIBYTE * MEBIBYTE
    is_whole = total_bytes is not None and limit_bytes >= device_bytes and total_bytes <= limit_bytes
    return [item("memory that CUDA shows, in bytes", limit, total_bytes, source, total_bytes == limit or is_whole)]
