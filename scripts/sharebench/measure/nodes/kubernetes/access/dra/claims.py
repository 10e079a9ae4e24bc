"""The claims of a cell: one request for each group of tenants, all in one claim or each in its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_

from sharebench.measure.nodes.kubernetes.access.dra import nvidia
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.model.strategy import Strategy, profile_matches

CLAIM_NAME = "gpu"
DeviceGroup = tuple[DraDevice, ...]
"""The devices of one request: one device, or several whole GPUs."""


def group_count(strategy: Strategy, replicas: int) -> int:
    """Number of parts of the node's devices that tenants have; a part is one request."""
    return 1 if nvidia.is_shared_by_claims(strategy) else strategy.group_count(replicas)


def request_name(strategy: Strategy, group: int) -> str:
    """Name of the request of a group of tenants in its claim. Claims of a template are all alike."""
    return f"part-{0 if strategy.claim_per == 'tenant' else group}"


def claim_name(strategy: Strategy, group: int) -> str:
    """Name, within the cell, of the claim with the request of a group of tenants."""
    return CLAIM_NAME if strategy.claim_per is None else f"{CLAIM_NAME}-{group}"


def _select_instances(devices: Sequence[DraDevice], strategy: Strategy, layout: Sequence[str]) -> list[DraDevice] | str:
    """An instance of one GPU for each profile of the layout, or the reason why there is none."""
    options: list[list[DraDevice]] = []
    for wanted in layout:
        matching = [device for device in devices if profile_matches(nvidia.mig_profile(device) or "", wanted)]
        # A profile given only by its slices means the one with the least memory.
        matching.sort(key=lambda device: (device.capacity_bytes.get("memory", 0), device.name))
        alike = [device for device in matching if nvidia.mig_profile(device) == nvidia.mig_profile(matching[0])]
        needed = layout.count(wanted)
        if len(alike) < needed:
            return f"{needed} MIG instances of {wanted} are needed on one GPU, the driver offers {len(alike)}"
        options.append(alike)
    on_demand = any(nvidia.device_uuid(device) is None for device in chain(*options))
    if on_demand and not all(device.consumed_counters for device in chain(*options)):
        return (
            "the API server drops what places for MIG instances take of their GPU; switch the feature gate "
            "DRAPartitionableDevices on, its own and the scheduler's (it is on from Kubernetes 1.36)"
        )
    if on_demand and strategy.claim_per is not None and len(set(layout)) > 1:
        return (
            "the DRA driver makes the MIG instances, and those of several claims are placed one by one: of unequal "
            "ones the last may not fit; leave claim_per out"
        )
    # A driver that creates instances offers every possible placement. The largest one uses all counters of the GPU.
    room: Counter[str] = reduce(or_, (Counter(device.consumed_counters) for device in devices), Counter())
    return _select_fitting(options, room) or f"MIG instances {', '.join(layout)} do not fit on one GPU together"


def _select_fitting(options: Sequence[Sequence[DraDevice]], room: Mapping[str, int]) -> list[DraDevice] | None:
    """One device of each of the options, all different, that fit the room of each counter together; None if none do."""
    if not options:
        return []
    for device in options[0]:
        left = {name: amount - device.consumed_counters.get(name, 0) for name, amount in room.items()}
        remaining = [[other for other in devices if other is not device] for devices in options[1:]]
        if min(left.values(), default=0) >= 0 and (rest := _select_fitting(remaining, left)) is not None:
            return [device, *rest]
    return None


def _select_whole_gpus(devices: Sequence[DraDevice], size: int, groups: int) -> list[DeviceGroup] | str:
    whole = list(filter(nvidia.is_whole_gpu, devices))
    if not whole:
        return "the DRA driver offers no whole GPU of the node: partitioned by MIG, or not visible to it"
    if len(whole) < (needed := size * groups):
        return f"{needed} whole GPUs are needed, the DRA driver offers {len(whole)} of the node"
    return [tuple(whole[size * group : size * (group + 1)]) for group in range(groups)]


def select_devices(devices: Sequence[DraDevice], strategy: Strategy, replicas: int) -> list[DeviceGroup] | str:
    """Devices for each group of tenants, like those that the driver will allocate; the reason if that is impossible."""
    if strategy.mechanism[0] != "mig":
        return _select_whole_gpus(devices, strategy.gpus or 1, group_count(strategy, replicas))
    layout = strategy.layout(replicas)[: strategy.group_count(replicas)]
    # In the order of the whole GPUs, of which cells use the first.
    parents = dict.fromkeys(filter(None, map(nvidia.parent_uuid, devices)))
    reason = (
        "the DRA driver offers no MIG instances of the node; have it make them (featureGates.DynamicMIG=true, an A100 "
        "being in MIG mode before it starts), or partition the GPU and restart the driver's pod"
    )
    for parent in parents:
        instances = [device for device in devices if nvidia.parent_uuid(device) == parent]
        selected = _select_instances(instances, strategy, layout)
        if not isinstance(selected, str):
            return [(device,) for device in selected]
        reason = selected
    return reason


def build_claims(strategy: Strategy, device_groups: Sequence[DeviceGroup], replicas: int = 1) -> list[Json]:
    """The cell's claims for devices like those of `select_devices`: one claim, or one for each group or tenant.

    Every cell uses the same GPU, so claims select a whole GPU by its UUID, and MIG instances by profile and GPU. Within
    one claim, a constraint also requires that all instances are of one GPU. Claims for a GPU each select any.
    """
    groups = dict(enumerate(device_groups))
    if strategy.claim_per is None:
        return [_build_claim(strategy, groups, CLAIM_NAME)]
    if nvidia.is_shared_by_claims(strategy):
        groups = {tenant: groups[0] for tenant in range(replicas)}
    return [
        _build_claim(strategy, {group: devices}, claim_name(strategy, group), replicas)
        for group, devices in groups.items()
    ]


def _build_claim(strategy: Strategy, groups: Mapping[int, DeviceGroup], name: str, sharers: int = 1) -> Json:
    """A ResourceClaim; `name` is its name within the cell."""
    is_mig = strategy.mechanism[0] == "mig"
    device_class = nvidia.MIG_CLASS if is_mig else nvidia.DRIVER
    names = [request_name(strategy, group) for group in groups]
    requests, configs = [], []
    for request, group in zip(names, groups.values(), strict=True):
        exactly: Json = {"deviceClassName": device_class}
        if strategy.claim_per != "tenant" or nvidia.is_shared_by_claims(strategy):
            exactly["selectors"] = [{"cel": {"expression": expression}} for expression in nvidia.selectors(group)]
        if len(group) > 1:
            exactly["count"] = len(group)
        if nvidia.is_shared_by_claims(strategy):
            exactly["capacity"] = {"requests": {"memory": nvidia.memory_part(group, sharers)}}
        requests.append({"name": request, "exactly": exactly})
        parameters = nvidia.sharing_config(strategy, group)
        if parameters is not None:
            # One config per request, since the driver starts an MPS daemon for each, which serves one instance.
            configs.append({"requests": [request], "opaque": {"driver": nvidia.DRIVER, "parameters": parameters}})
    devices: Json = {"requests": requests}
    if configs:
        devices["config"] = configs
    if is_mig and len(requests) > 1:
        devices["constraints"] = [{"requests": names, "matchAttribute": nvidia.PARENT_ATTRIBUTE}]
    spec = {"devices": devices}
    return {"apiVersion": claims_api.VERSION, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
