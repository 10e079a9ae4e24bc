"""Tools that limit the tenants of a host's GPU from inside their processes, each by the name of its mechanism.

HAMi-core is a library that delays kernel launches and refuses memory; the user provides it. Variables and files:
HAMi-core, README and src/multiprocess (version 1.2 of its region).
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import Evidence, Grant, item
from sharebench.measure.nodes.host.mps import variables_item
from sharebench.model.strategy import HAMI_CORE, TenantLimits
from tenant.contract import CONTEXT_LOCK_VARIABLE, DeviceView

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NvidiaOptions

SOURCE = "https://github.com/Project-HAMi/HAMi-core"
LIBRARY_VARIABLE = "LD_PRELOAD"


class Tool:
    """A mechanism's tool, which is set by the environment of its tenants; `whole` is a device's memory in bytes."""

    limit_variables: tuple[str, ...]
    """Variables whose values are evidence."""
    plan: str
    """What happens to the tenants, as `sharebench plan` says it."""

    def unavailable(self, options: "NvidiaOptions", gpu_index: int) -> str | None:
        """The reason why the tool cannot limit tenants of this GPU, or None."""
        return None

    def variables(self, options: "NvidiaOptions", file: Path, own: TenantLimits, whole: int | None) -> dict[str, str]:
        """A tenant's environment variables; it may use that `file`, in a folder that is empty before each cell."""
        raise NotImplementedError

    def evidence(self, grant: Grant, pids: Sequence[int]) -> Evidence:
        """Evidence that all processes of a tenant have its library, if any, and were started with its limits."""
        evidence = [variables_item("limits in the environment of", grant, self.limit_variables, pids)]
        if (library := grant.environment.get(LIBRARY_VARIABLE)) is not None:
            identity = _library_identity(library)
            is_mapped = bool(pids) and all(_has_mapped(pid, library) for pid in pids)
            seen = identity if is_mapped else "not mapped"
            evidence.insert(0, item(f"library in tenant {grant.index}", identity, seen, "node"))
        return evidence

    def view_evidence(self, own: TenantLimits, whole: int | None, view: DeviceView | None, source: str) -> Evidence:
        """Evidence that CUDA's size of the device is the limit; for a limit of the whole device, at most the limit."""
        limit_bytes, total_bytes = own.memory_bytes(whole), view and view["memory_total_bytes"]
        if limit_bytes is None or whole is None:
            return []
        limit = limit_bytes // MEBIBYTE * MEBIBYTE
        is_whole = total_bytes is not None and limit_bytes >= whole and total_bytes <= limit_bytes
        return [item("memory that CUDA shows, in bytes", limit, total_bytes, source, total_bytes == limit or is_whole)]


class HamiCore(Tool):
    limit_variables = ("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT", "GPU_CORE_UTILIZATION_POLICY")
    plan = "HAMi-core is loaded into the tenants"

    def unavailable(self, options: "NvidiaOptions", gpu_index: int) -> str | None:
        if options["hami_core"] is None:
            return f"nvidia.hami_core names no library; build libvgpu.so of {SOURCE}, and give its path"
        if gpu_index:
            return f"HAMi-core would watch GPU 0 and not GPU {gpu_index}, since it takes a UUID for the index 0"
        return None

    def variables(self, options: "NvidiaOptions", file: Path, own: TenantLimits, whole: int | None) -> dict[str, str]:
        """The policy `force` applies the limit even when a tenant is alone on the GPU."""
        library, limit_bytes = str(options["hami_core"]), own.memory_bytes(whole)
        values = {
            LIBRARY_VARIABLE: library,
            # Its own path; the default path may hold another version.
            "CUDA_REDIRECT": library,
            # The region in which it counts the memory of the tenant's processes.
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(file),
            # It takes any new process in NVML's list for its own, and its lock for that is per region: ours is common.
            CONTEXT_LOCK_VARIABLE: str(file.with_name("lock")),
            "LIBCUDA_LOG_LEVEL": "0",
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "CUDA_DEVICE_SM_LIMIT": None if own.thread_percent is None else f"{own.thread_percent:g}",
            "CUDA_DEVICE_MEMORY_LIMIT": None if limit_bytes is None else f"{limit_bytes // MEBIBYTE}m",
        }
        return {name: value for name, value in values.items() if value is not None}


TOOLS: Mapping[str, Tool] = {HAMI_CORE: HamiCore()}


@lru_cache
def _library_identity(library: str) -> str:
    """The library's name and the beginning of its digest, since its versions have no other name."""
    content = Path(library).read_bytes()
    return f"{Path(library).name} sha256:{hashlib.sha256(content).hexdigest()[:12]}"


def _has_mapped(pid: int, library: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return str(Path(library).resolve()) in {each.path for each in psutil.Process(pid).memory_maps()}
    return False
