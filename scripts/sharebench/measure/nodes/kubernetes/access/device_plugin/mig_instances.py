"""The MIG instances that a strategy needs on a cluster's node: their names, and whether the node can have them."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_layouts
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import MIG_RESOURCE_PREFIX, RESOURCE, PluginConfig
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import (
    CAPABLE_LABEL,
    MIG_CONFIG_LABEL,
    Layout,
    LayoutMap,
)
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    COUNT_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    labeled_memory_mib,
)
from sharebench.model.strategy import Strategy, profile_matches, slice_count

STRATEGY_LABEL = "nvidia.com/mig.strategy"
INSTANCES_LABEL = re.compile(r"nvidia\.com/mig-(.+)\.count")
MIG_PRODUCT = re.compile(r"-MIG-(\S+?)(-SHARED)?$")
# GPU Feature Discovery's profile for unequal instances under the MIG strategy single.
INVALID_PROFILE = "INVALID"
# This variable of the plugin's DaemonSet overrides the MIG strategy of all keys of its ConfigMap.
STRATEGY_VARIABLE = "MIG_STRATEGY"
# The end of a reason why existing instances are not sufficient.
ALLOW_CHANGE = "the GPU operator's MIG manager makes others, with kubernetes: {may_change: [mig]}"


class MigInfeasible(NodeError):
    """Raised with the reason why the node cannot give the strategy its instances."""


@dataclass(frozen=True)
class Partitioning:
    """The MIG partitioning of the GPU under a strategy, and how the plugin offers it."""

    layout: Layout
    """All instances; empty for the whole GPU."""
    profiles: tuple[str, ...] = ()
    """Profile of the instance of each group of tenants."""
    config: str | None = None
    """The layout's entry in the manager's map; None to leave the layout as it is."""
    is_single: bool = False
    """Whether the plugin offers instances as `nvidia.com/gpu` (its MIG strategy single), not by profile."""
    replicas: int = 1
    """How many tenants share each instance of `profiles`."""
    whole_gpus: int = 0
    """Number of the node's GPUs that are not partitioned."""

    def resource_of_group(self, group: int) -> str:
        if self.is_single or not self.layout:
            return RESOURCE
        return mig_resource(self.profiles[group])

    @property
    def plugin_config(self) -> PluginConfig:
        names = (RESOURCE,) if self.is_single else tuple(map(mig_resource, dict.fromkeys(self.profiles)))
        return PluginConfig(_sharing(self.replicas), self.replicas, "single" if self.is_single else "mixed", names)

    @property
    def resources(self) -> dict[str, int]:
        """All GPU resources that the node must offer."""
        if self.is_single:
            return {RESOURCE: sum(self.layout.values()) * self.replicas}
        instances = {mig_resource(name): count * self._replicas_of(name) for name, count in self.layout.items()}
        return instances | ({RESOURCE: self.whole_gpus} if self.whole_gpus else {})

    def _replicas_of(self, profile: str) -> int:
        return self.replicas if profile in self.profiles else 1

    def labels(self, product: str) -> dict[str, str]:
        """The labels that GPU Feature Discovery must set; `product` is the whole GPU's."""
        if self.is_single:
            (name,) = self.layout
            shared = "-SHARED" if self.replicas > 1 else ""
            return {
                STRATEGY_LABEL: "single",
                PRODUCT_LABEL: f"{product}-MIG-{name}{shared}",
                COUNT_LABEL: str(sum(self.layout.values())),
                REPLICAS_LABEL: str(self.replicas),
                SHARING_LABEL: _sharing(self.replicas),
            }
        labels = {STRATEGY_LABEL: "mixed", REPLICAS_LABEL: "1" if self.whole_gpus else "0", SHARING_LABEL: "none"}
        for name, count in self.layout.items():
            resource = mig_resource(name)
            labels |= {
                f"{resource}.count": str(count),
                f"{resource}.replicas": str(self._replicas_of(name)),
                f"{resource}.sharing-strategy": _sharing(self._replicas_of(name)),
            }
        return labels


def _sharing(replicas: int) -> str:
    return "time-slicing" if replicas > 1 else "none"


def mig_resource(profile: str) -> str:
    return MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def _single_profile(labels: Mapping[str, str]) -> str | None:
    """The profile of the instances that the plugin offers as GPUs (its MIG strategy single); None without."""
    match = MIG_PRODUCT.search(labels.get(PRODUCT_LABEL, ""))
    return _full_name(match.group(1)) if match and match.group(1) != INVALID_PROFILE else None


def _full_name(shown: str) -> str:
    """The profile as NVIDIA writes it; names of labels and resources cannot have a plus."""
    return re.sub(r"(?<=gb)\.", "+", shown)


def invalid_reason(labels: Mapping[str, str]) -> str | None:
    """Why no instance of the node can be used, under any strategy; None if they can."""
    product = labels.get(PRODUCT_LABEL, "")
    if f"-MIG-{INVALID_PROFILE}" not in product:
        return None
    return (
        f"the node's label {PRODUCT_LABEL} is {product}: its MIG instances are unequal, which the MIG strategy single "
        "cannot offer; make them equal, or set the plugin's MIG strategy to mixed"
    )


def shown_layout(labels: Mapping[str, str]) -> Layout:
    """The layout that the node's labels show; empty if they show no instances."""
    if (profile := _single_profile(labels)) is not None:
        return {profile: int(labels.get(COUNT_LABEL, 0))}
    counts = {match.group(1): int(value) for name, value in labels.items() if (match := INSTANCES_LABEL.match(name))}
    return {_full_name(name): count for name, count in counts.items() if count}


def is_partitioned(labels: Mapping[str, str]) -> bool:
    """Whether a GPU of the node is in MIG mode, even without instances, or with instances that the labels hide."""
    return bool(shown_layout(labels)) or labels.get(REPLICAS_LABEL) == "0"


def is_layout_shown(labels: Mapping[str, str], layout: Layout) -> bool:
    """Whether the labels allow for this layout on each GPU; without a MIG strategy they only show that MIG is on."""
    shown = shown_layout(labels)
    expected = {name: count * gpu_count(labels) for name, count in layout.items()}
    return shown == expected if shown or not layout else is_partitioned(labels)


def are_instances_allocatable(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> bool:
    """Whether the instances that the labels show are allocatable yet: the kubelet is some seconds behind."""
    is_single = _single_profile(labels) is not None
    return all((RESOURCE if is_single else mig_resource(name)) in allocatable for name in shown_layout(labels))


def whole_product(labels: Mapping[str, str]) -> str:
    """The GPU's product without the suffixes of sharing and MIG; empty if no label has it."""
    return MIG_PRODUCT.sub("", labels.get(PRODUCT_LABEL, "")).removesuffix("-SHARED")


def gpu_count(labels: Mapping[str, str]) -> int:
    """Number of the node's GPUs; if the plugin offers instances as GPUs, the fewest that can hold these."""
    count = int(labels.get(COUNT_LABEL, 0))
    profile = _single_profile(labels)
    most = mig_layouts.max_slices(whole_product(labels))
    return count if profile is None else -(-count // (most // slice_count(profile)))


def gpu_memory_mib(labels: Mapping[str, str]) -> int | None:
    """Memory of the whole GPU; None if the labels have only that of an instance."""
    return labeled_memory_mib(labels) if MIG_PRODUCT.search(labels.get(PRODUCT_LABEL, "")) is None else None


@dataclass(frozen=True)
class MigInventory:
    """The possible partitionings of a node; `layout_map` is the manager's, None if the layout must stay."""

    labels: Mapping[str, str]
    layout_map: LayoutMap | None
    fixed_strategy: str | None
    """The MIG strategy that the plugin's DaemonSet sets for all keys; None if keys decide."""
    existing: Layout
    """The instances before our first change."""
    is_made_by_hand: bool = False
    """Whether the existing instances were made without the manager."""

    def partitioning(self, strategy: Strategy, max_tenants: int) -> Partitioning:
        """The partitioning for the strategy with up to `max_tenants` tenants. Raises MigInfeasible."""
        if strategy.mechanism[0] != "mig":
            return self._without_mig()
        whole, fixed, known = gpu_count(self.labels) - 1, self.fixed_strategy, self.layout_map
        is_mps = strategy.mechanism == ("mig", "mps")
        reasons = {
            "the device plugin refuses MPS on MIG instances; DRA can do it (access: dra)": is_mps,
            f"the node's GPU has no MIG ({CAPABLE_LABEL} is not true)": self.labels.get(CAPABLE_LABEL) != "true",
            f"the device plugin offers no MIG instances: {STRATEGY_VARIABLE} of its DaemonSet is none": fixed == "none",
            f"the plugin distributes the tenants over the MIG instances of several GPUs; {ALLOW_CHANGE}": (
                whole and known is None
            ),
            f"{STRATEGY_VARIABLE} of the device plugin's DaemonSet is single, for all GPUs of a node or none": (
                whole and fixed == "single"
            ),
        }
        for reason, is_given in reasons.items():
            if is_given:
                raise MigInfeasible(reason)
        layout, names = self._existing_layout(strategy) if known is None else self._new_layout(strategy, known)
        if fixed == "single" and len(layout) > 1:
            raise MigInfeasible(
                "the device plugin offers no unequal instances: "
                f"{STRATEGY_VARIABLE} of its DaemonSet is single, not mixed"
            )
        replicas = max(2, -(-max_tenants // len(names))) if len(strategy.mechanism) > 1 else 1
        config = self._entry_name(layout, known) if known else None
        return Partitioning(layout, names, config, fixed == "single", replicas, whole)

    def _entry_name(self, layout: Layout, known: LayoutMap) -> str:
        if (name := known.entry_name(layout, self.labels.get(MIG_CONFIG_LABEL))) is None:
            raise MigInfeasible(known.no_entry_message(layout))
        return name

    def _without_mig(self) -> Partitioning:
        if self.layout_map is not None and (is_partitioned(self.labels) or MIG_CONFIG_LABEL in self.labels):
            return Partitioning({}, config=self._entry_name({}, self.layout_map))
        if is_partitioned(self.labels):
            raise MigInfeasible(
                f"the node's GPUs are partitioned by MIG, so that only MIG instances can be used; {ALLOW_CHANGE}"
            )
        return Partitioning({})

    def _full_name(self, profile: str, known: LayoutMap) -> str:
        names = known.profiles()
        product, shown = whole_product(self.labels), shown_layout(self.labels)
        full = mig_layouts.full_profile_name(profile, names, shown, product, known.memory_mib)
        if full is None:
            listed = ", ".join(names) or "none"
            raise MigInfeasible(
                f"MIG profile {profile} could be none or several of the manager's map ({listed}); name one in full"
            )
        return full

    def _new_layout(self, strategy: Strategy, known: LayoutMap) -> tuple[Layout, tuple[str, ...]]:
        if self.is_made_by_hand:
            raise MigInfeasible(
                f"the MIG layout was not made by the MIG manager (the node had no label {MIG_CONFIG_LABEL}), "
                "so that it could not be restored; set the label to what is there"
            )
        # To restore a node without the label, the map needs an entry without MIG.
        self._entry_name({}, known)
        wanted = [self._full_name(each, known) for each in strategy.layout(1)]
        if strategy.profiles is not None or len(strategy.mechanism) > 1:
            return Counter(wanted), tuple(wanted)
        (name,) = wanted
        # The largest layout serves every number of tenants.
        count = known.max_instances(name) or mig_layouts.max_slices(whole_product(self.labels)) // slice_count(name)
        return {name: count}, (name,) * count

    def _existing_layout(self, strategy: Strategy) -> tuple[Layout, tuple[str, ...]]:
        wanted = strategy.layout(1)
        names = [next((name for name in self.existing if profile_matches(name, each)), None) for each in wanted]
        needed = Counter(filter(None, names))
        if None in names or any(self.existing[name] < count for name, count in needed.items()):
            have = ", ".join(f"{count} of {name}" for name, count in self.existing.items()) or "none"
            raise MigInfeasible(f"MIG instances {', '.join(wanted)} are needed, there are: {have}; {ALLOW_CHANGE}")
        if strategy.profiles is None and len(strategy.mechanism) == 1:
            (name,) = needed
            return self.existing, (name,) * self.existing[name]
        if len(strategy.mechanism) > 1 and any(self.existing[name] != count for name, count in needed.items()):
            raise MigInfeasible(
                "there are more such MIG instances than the strategy shares, and the plugin would use them all"
            )
        return self.existing, tuple(filter(None, names))

    def infeasible(self, strategy: Strategy, replicas: int, max_tenants: int) -> str | None:
        try:
            wanted = self.partitioning(strategy, max_tenants)
        except MigInfeasible as reason:
            return str(reason)
        if (shortage := strategy.profile_shortage(replicas)) is not None:
            return shortage
        needed = strategy.group_count(replicas)
        if wanted.layout and needed > len(wanted.profiles):
            profile, available = wanted.profiles[0], len(wanted.profiles)
            return f"{needed} MIG instances of profile {profile} are needed, {available} fit or exist"
        return None
