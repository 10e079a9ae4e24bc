"""The claims of a cell: a request for each part of the GPU that tenants share, all in one claim or each in its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_

from sharebench.core.strategies import Strategy, profile_matches
from sharebench.nodes.kubernetes.access.dra import nvidia
from sharebench.nodes.kubernetes.cluster import claims_api
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import DraDevice

CLAIM_NAME = "gpu"
DeviceGroup = tuple[DraDevice, ...]
"""The devices of a request: one, or several whole GPUs."""


def request_name(strategy: Strategy, group: int) -> str:
    """Name of the request of a group of tenants in its claim; claims of a template are all alike."""
    return f"part-{0 if strategy.claim_per == 'tenant' else group}"


def claim_name(strategy: Strategy, group: int) -> str:
    """Name, within the cell, of the claim that has the request of a group of tenants."""
    return CLAIM_NAME if strategy.claim_per is None else f"{CLAIM_NAME}-{group}"


def _select_instances(devices: Sequence[DraDevice], strategy: Strategy, layout: Sequence[str]) -> list[DraDevice] | str:
    """An instance of one GPU for each profile of the layout; the reason where the GPU has too few."""
    options: list[list[DraDevice]] = []
    for wanted in layout:
        matching = [device for device in devices if profile_matches(nvidia.mig_profile(device) or "", wanted)]
        # A profile by its slices alone is the one with the least memory.
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
    # A driver that makes instances offers every place for one. The largest takes all that instances can have.
    room: Counter[str] = reduce(or_, (Counter(device.consumed_counters) for device in devices), Counter())
    return _select_fitting(options, room) or f"MIG instances {', '.join(layout)} do not fit on one GPU together"


def _select_fitting(options: Sequence[Sequence[DraDevice]], room: Mapping[str, int]) -> list[DraDevice] | None:
    """One device of each of the options, none twice, that together take no more than there is; None if none do."""
    if not options:
        return []
    for device in options[0]:
        left = {name: amount - device.consumed_counters.get(name, 0) for name, amount in room.items()}
        others = [[other for other in several if other is not device] for several in options[1:]]
        if min(left.values(), default=0) >= 0 and (rest := _select_fitting(others, left)) is not None:
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
    """What each group of tenants would get, or some like it; the reason where that cannot be."""
    if strategy.mechanisms[0] != "mig":
        return _select_whole_gpus(devices, strategy.gpus or 1, strategy.group_count(replicas))
    layout = strategy.layout(replicas)[: strategy.group_count(replicas)]
    # In the order of the whole GPUs, of which the first is taken.
    parents = dict.fromkeys(filter(None, map(nvidia.parent_uuid, devices)))
    why = (
        "the DRA driver offers no MIG instances of the node; have it make them (featureGates.DynamicMIG=true, an A100 "
        "being in MIG mode before it starts), or partition the GPU and restart the driver's pod"
    )
    for parent in parents:
        found = _select_instances(
            [device for device in devices if nvidia.parent_uuid(device) == parent], strategy, layout
        )
        if not isinstance(found, str):
            return [(device,) for device in found]
        why = found
    return why


def build_claims(strategy: Strategy, found: Sequence[DeviceGroup]) -> list[Json]:
    """The cell's claims for these devices, or others like them (`parts`): one, or one for each of them.

    Every cell has the same GPU: a whole one is named by its id, MIG instances by their profile and GPU. In one claim a
    constraint says once more that all are of one GPU; none reaches over several claims. Claims of a template get any.
    """
    groups = dict(enumerate(found))
    if strategy.claim_per is None:
        return [_build_claim(strategy, groups, CLAIM_NAME)]
    return [_build_claim(strategy, {group: part}, claim_name(strategy, group)) for group, part in groups.items()]


def _build_claim(strategy: Strategy, found: Mapping[int, DeviceGroup], name: str) -> Json:
    is_mig = strategy.mechanisms[0] == "mig"
    device_class = nvidia.MIG_CLASS if is_mig else nvidia.DRIVER
    names = [request_name(strategy, group) for group in found]
    requests, configs = [], []
    for request, part in zip(names, found.values(), strict=True):
        selectors = [] if strategy.claim_per == "tenant" else nvidia.selectors(part)
        requests.append(claims_api.device_request(request, device_class, selectors, len(part)))
        parameters = nvidia.sharing_config(strategy, part)
        if parameters is not None:
            # One for each request: the driver starts an MPS daemon for each, and each daemon knows one instance.
            configs.append({"requests": [request], "opaque": {"driver": nvidia.DRIVER, "parameters": parameters}})
    devices: Json = {"requests": requests}
    if configs:
        devices["config"] = configs
    if is_mig and len(requests) > 1:
        devices["constraints"] = [{"requests": names, "matchAttribute": nvidia.PARENT_ATTRIBUTE}]
    return claims_api.resource_claim(name, devices)
