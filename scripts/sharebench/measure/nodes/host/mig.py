"""Changes of a GPU's MIG layout where its owner allows them (`nvidia: {may_change: [mig]}`); MIG mode never changes.

A layout is a list of GPU instances with their placements, each filled by one compute instance, so that the original
can be restored exactly. NVIDIA, Multi-Instance GPU User Guide, and NVML's "Multi Instance GPU Management".
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypedDict

import pynvml

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host.nvml import Gpu
from sharebench.model.strategy import profile_matches
from tenant.gpu.nvml import try_read


class Placement(TypedDict):
    """A GPU instance: its profile, first memory slice, and the profile ids of its compute instances."""

    profile: str
    profile_id: int
    start: int
    compute: list[int]


def _profiles(gpu: Gpu) -> list[tuple[str, Any]]:
    """Name and NVML info of each GPU instance profile of this GPU, by size, then by memory."""
    infos = (
        try_read(partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu.handle, index))
        for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    )
    named = [(_text(info.name).removeprefix("MIG "), info) for info in infos if info is not None]
    return sorted(named, key=lambda each: (each[1].sliceCount, each[1].memorySizeMB))


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _compute_profiles(gpu_instance: Any) -> Iterator[Any]:
    """NVML info of each compute instance profile of this GPU instance."""
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = try_read(partial(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gpu_instance, index, 0))
        if info is not None:
            yield info


def profiles(gpu: Gpu) -> list[str]:
    return [name for name, _ in _profiles(gpu)]


def capacity(gpu: Gpu, wanted: str) -> int:
    """The number of instances of that profile that fit on the empty GPU; 0 for an unknown profile."""
    return next((int(info.instanceCount) for name, info in _profiles(gpu) if profile_matches(name, wanted)), 0)


def _instances(read: Callable[..., None], owner: Any, info: Any, handle: Any) -> list[Any]:
    """The instances of that profile on their `owner`, by the NVML call `read`; `handle` is their ctypes class."""
    array, count = (handle * max(1, info.instanceCount))(), pynvml.c_uint(0)
    read(owner, info.id, array, pynvml.byref(count))
    # Each item keeps its array alive.
    return [array[index] for index in range(count.value)]


def _gpu_instances(gpu: Gpu) -> Iterator[tuple[str, Any, Any]]:
    """Profile name, profile info and handle of each GPU instance."""
    for name, info in _profiles(gpu):
        for instance in _instances(pynvml.nvmlDeviceGetGpuInstances, gpu.handle, info, pynvml.c_nvmlGpuInstance_t):
            yield name, info, instance


def _compute_instances(gpu_instance: Any) -> Iterator[tuple[int, Any]]:
    """Profile id and handle of each compute instance."""
    for info in _compute_profiles(gpu_instance):
        read, handle = pynvml.nvmlGpuInstanceGetComputeInstances, pynvml.c_nvmlComputeInstance_t
        for instance in _instances(read, gpu_instance, info, handle):
            yield info.id, instance


def layout(gpu: Gpu) -> list[Placement]:
    """The current layout, by placement. Raises NodeError."""
    try:
        placements: list[Placement] = [
            {
                "profile": name,
                "profile_id": info.id,
                "start": pynvml.nvmlGpuInstanceGetInfo(instance).placement.start,
                "compute": sorted(profile_id for profile_id, _ in _compute_instances(instance)),
            }
            for name, info, instance in _gpu_instances(gpu)
        ]
    except pynvml.NVMLError as error:
        raise NodeError(f"the MIG layout cannot be read: {error}") from None
    return sorted(placements, key=lambda placement: placement["start"])


def _destroy_instances(gpu: Gpu) -> None:
    for _, _, instance in list(_gpu_instances(gpu)):
        for _, compute in list(_compute_instances(instance)):
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)


def _profile_info(gpu: Gpu, wanted: str) -> Any:
    """NVML info of the smallest profile of that name. Raises NodeError for a profile that this GPU does not have."""
    for name, info in _profiles(gpu):
        if profile_matches(name, wanted):
            return info
    raise NodeError(f"this GPU has no MIG profile {wanted}; it has {', '.join(profiles(gpu))}")


def fits(gpu: Gpu, wanted: Sequence[str]) -> bool:
    """Whether these profiles fit on the empty GPU together, by their compute and memory slices."""
    infos = [_profile_info(gpu, each) for each in wanted]
    _, whole = list(_profiles(gpu))[-1]
    compute, memory = sum(info.sliceCount for info in infos), sum(_memory_slices(gpu, info) for info in infos)
    return bool(compute <= whole.sliceCount and memory <= _memory_slices(gpu, whole))


def partition(gpu: Gpu, wanted: Sequence[str]) -> None:
    """Replace the layout by one instance of each of these profiles.

    Raises NodeError for a profile that this GPU does not have, and when the GPU is in use.
    """
    # The largest first, since they fit at few places.
    infos = sorted((_profile_info(gpu, each) for each in wanted), key=lambda info: -info.sliceCount)
    try:
        _destroy_instances(gpu)
        for info in infos:
            instance = pynvml.nvmlDeviceCreateGpuInstance(gpu.handle, info.id)
            whole = next((each for each in _compute_profiles(instance) if each.sliceCount == info.sliceCount), None)
            if whole is None:
                raise NodeError(f"no compute instance profile has {info.sliceCount} slices")
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)
    except pynvml.NVMLError as error:
        raise NodeError(f"the MIG layout cannot be changed: {error}; is something still using the GPU?") from None


def restore(gpu: Gpu, original: list[Placement]) -> None:
    """Restore exactly this layout, unless it is there. Raises NodeError."""
    if layout(gpu) == original:
        return
    try:
        _destroy_instances(gpu)
        for placement in original:
            info = next(info for _, info in _profiles(gpu) if info.id == placement["profile_id"])
            where = pynvml.c_nvmlGpuInstancePlacement_t()
            where.start, where.size = placement["start"], _memory_slices(gpu, info, placement["start"])
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu.handle, info.id, pynvml.byref(where))
            for profile_id in placement["compute"]:
                pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile_id)
    except (pynvml.NVMLError, StopIteration) as error:
        raise NodeError(f"the MIG layout cannot be restored: {error}; it was {original}") from None
    if layout(gpu) != original:
        raise NodeError(f"the MIG layout was not restored exactly; it was {original}")


def _memory_slices(gpu: Gpu, info: Any, start: int | None = None) -> int:
    """The number of memory slices of an instance of that profile at that start, or at its first possible one."""
    array = (pynvml.c_nvmlGpuInstancePlacement_t * 32)()
    count = pynvml.c_uint(32)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.handle, info.id, array, pynvml.byref(count))
    return next((int(array[k].size) for k in range(count.value) if array[k].start == start), int(array[0].size))
