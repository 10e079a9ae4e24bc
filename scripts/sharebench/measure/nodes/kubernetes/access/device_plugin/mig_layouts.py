"""The map of MIG layouts of NVIDIA's mig-manager, from which we choose entries, and the names of profiles.

The map is a file of nvidia-mig-parted (`mig-configs`), stored as one text in a ConfigMap.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import yaml

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.model.strategy import profile_matches, slice_count

Layout = Mapping[str, int]
"""Number of instances of each profile, by its full name (`1g.5gb`); empty for a GPU without MIG."""

MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
CAPABLE_LABEL = "nvidia.com/mig.capable"
# A profile's share of the GPU's memory, by its compute slices: of GPUs with seven slices, and of those with four
# (NVIDIA, Multi-Instance GPU User Guide, Supported GPUs).
SEVEN_SLICES = {1: 1 / 8, 2: 2 / 8, 3: 4 / 8, 4: 4 / 8, 7: 1.0}
FOUR_SLICES = {1: 1 / 4, 2: 2 / 4, 4: 1.0}
SLICES_BY_PRODUCT = (
    (re.compile(r"\bA30\b|\bRTX.PRO\b"), FOUR_SLICES),
    (re.compile(r"\b[AHB]\d00\b|\bG[HB]\d00\b|\bH20\b"), SEVEN_SLICES),
)
# Profile names round the memory, and the driver keeps a part of it.
MEMORY_TOLERANCE = 0.1


class LayoutRule(NamedTuple):
    """One element of an entry: the layout for these GPUs. Its filter of kinds of GPU is ignored."""

    devices: str | list[int]
    is_enabled: bool
    layout: Layout


def memory_shares(product: str) -> Sequence[Mapping[int, float]]:
    """The possible shares of a GPU's memory, one for a known product."""
    known = [shares for name, shares in SLICES_BY_PRODUCT if name.search(product)]
    return known or [SEVEN_SLICES, FOUR_SLICES]


def max_slices(product: str) -> int:
    return max(memory_shares(product)[0])


class LayoutMap(NamedTuple):
    """The manager's map for a node with this number of GPUs, each with this memory (None if unknown)."""

    location: str
    """The map's ConfigMap and key, for messages."""
    entries: Mapping[str, list[LayoutRule]]
    gpus: int
    memory_mib: int | None

    def profiles(self) -> list[str]:
        """All profiles in the map, the smallest first."""
        names = {profile for rules in self.entries.values() for rule in rules for profile in rule.layout}
        return sorted((name for name in names if re.match(r"\dg\.\d+gb", name)), key=lambda name: (_size(name), name))

    def entry_name(self, wanted: Layout, preferred: str | None = None) -> str | None:
        """Name of an entry with this layout, `preferred` if it has it; None without one."""
        names = [name for name, rules in self.entries.items() if self._layout_on_one_gpu(rules, wanted) == wanted]
        return preferred if preferred in names else min(names, default=None)

    def max_instances(self, profile: str) -> int | None:
        """The largest number of instances in an entry with only this profile; None without one."""
        layouts = [self._layout_on_one_gpu(rules, [profile]) for rules in self.entries.values()]
        return max((layout[profile] for layout in layouts if layout), default=None)

    def _layout_on_one_gpu(self, rules: list[LayoutRule], profiles: Collection[str]) -> Layout | None:
        """The entry's layout of exactly these profiles on one GPU and no other; None if it has none.

        No label shows which filter matches the GPU, so it is the layout with the most memory that fits the GPU.
        """
        layouts = [rule.layout for rule in rules if set(rule.layout) == set(profiles)]
        room_gib = float("inf") if self.memory_mib is None else self.memory_mib / 1024 * (1 + MEMORY_TOLERANCE)
        layout = max((each for each in layouts if _memory_gib(each) <= room_gib), key=_memory_gib, default=None)
        if layout and self.gpus > 1:
            return layout if rules == rules_for_layout(layout, self.gpus) else None
        is_whole = all(rule.devices in ("all", [0]) and rule.is_enabled == bool(rule.layout) for rule in rules)
        return layout if is_whole else None

    def no_entry_message(self, layout: Layout) -> str:
        """The message for a layout without an entry, with the entry to add."""
        what = ", ".join(f"{count} of {profile}" for profile, count in layout.items()) or "none"
        rules = [
            {"devices": rule.devices, "mig-enabled": rule.is_enabled}
            | ({"mig-devices": dict(rule.layout)} if rule.layout else {})
            for rule in rules_for_layout(layout, self.gpus)
        ]
        entry = yaml.safe_dump(rules, default_flow_style=True, sort_keys=False, width=1000).strip()
        return (
            f"the MIG manager's map has no entry for these instances of one GPU: {what}; "
            f"add to {self.location}: my-layout: {entry}"
        )


def parse_entries(text: str, where: str) -> dict[str, list[LayoutRule]]:
    """The entries of a map. Raises NodeError if the text is not one."""
    try:
        entries = yaml.safe_load(text)["mig-configs"]
        return {name: [_parse_rule(rule) for rule in rules] for name, rules in entries.items()}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise NodeError(f"the MIG manager's map is of no use: {where} is not a file of nvidia-mig-parted") from None


def _parse_rule(spec: Json) -> LayoutRule:
    return LayoutRule(spec.get("devices", ""), bool(spec.get("mig-enabled")), dict(spec.get("mig-devices") or {}))


def rules_for_layout(layout: Layout, gpus: int = 1) -> list[LayoutRule]:
    """The entry for a layout. Of several GPUs, only the first is partitioned."""
    if not layout or gpus == 1:
        return [LayoutRule("all", bool(layout), layout)]
    return [LayoutRule([0], True, layout), LayoutRule(list(range(1, gpus)), False, {})]


def _size(profile: str) -> tuple[int, int]:
    slices, memory = re.findall(r"\d+", profile)[:2]
    return int(slices), int(memory)


def _memory_gib(layout: Layout) -> int:
    return sum(_size(profile)[1] * count for profile, count in layout.items())


def full_profile_name(
    wanted: str, known: Sequence[str], shown: Iterable[str], product: str, memory_mib: int | None
) -> str | None:
    """Full name of a profile that may be given only by its slices; None if that is ambiguous.

    `known` are the names in the manager's map, which may be for several kinds of GPU, `shown` those of the node's
    instances, and `memory_mib` is the memory of the whole GPU.
    """
    if "." in wanted:
        return wanted
    fitting = [name for name in known if profile_matches(name, wanted)]
    existing = [name for name in shown if profile_matches(name, wanted)]
    for names in (existing, fitting):
        if len(names) == 1:
            return names[0]
    if not memory_mib or not fitting:
        return None
    likely = {_profile_by_memory(fitting, known, shares, memory_mib / 1024) for shares in memory_shares(product)}
    return next(iter(likely - {None})) if len(likely - {None}) == 1 else None


def _profile_by_memory(
    names: Sequence[str], known: Sequence[str], shares: Mapping[int, float], memory_gib: float
) -> str | None:
    """The name with this number of slices that fits the memory of a GPU with these shares."""
    share = shares.get(slice_count(names[0]))
    if share is None:
        return None
    # The names of a GPU are rounded from that of the profile with all of it, where the map has one.
    whole = _nearest([name for name in known if slice_count(name) == max(shares)], memory_gib)
    return _nearest(names, share * (memory_gib if whole is None else _size(whole)[1]))


def _nearest(names: Iterable[str], memory_gib: float) -> str | None:
    """The name nearest to this memory, within the tolerance."""
    nearest = min(names, key=lambda name: abs(_size(name)[1] - memory_gib), default=None)
    return nearest if nearest and abs(_size(nearest)[1] / memory_gib - 1) <= MEMORY_TOLERANCE else None
