"""The map of MIG layouts that NVIDIA's mig-manager knows, of which we only choose entries, and the profiles' names.

The map is the file of nvidia-mig-parted (`mig-configs`), one text in a ConfigMap.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import yaml

from sharebench.core.strategies import profile_matches, slice_count
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Json

Layout = Mapping[str, int]
"""How many instances there are of each profile, in full (`1g.5gb`); empty for a GPU without MIG."""

MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
CAPABLE_LABEL = "nvidia.com/mig.capable"
MAX_SLICES = 7
# Of the GPU's eight memory slices, by the compute slices of a profile (NVIDIA, Multi-Instance GPU User Guide).
MEMORY_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
# Names round the memory, of which the driver keeps a part.
MEMORY_TOLERANCE = 0.1


class LayoutRule(NamedTuple):
    """A part of an entry: what it makes of these GPUs, of the kinds that its filter names."""

    devices: str | list[int]
    is_enabled: bool
    layout: Layout


class LayoutMap(NamedTuple):
    """The manager's map for a node with this number of GPUs, each of this memory (None where it is not known)."""

    location: str
    """Which ConfigMap and key it is."""
    entries: Mapping[str, list[LayoutRule]]
    gpus: int
    memory_mib: int | None

    def profiles(self) -> list[str]:
        """All that it names, the smallest first."""
        found = {profile for parts in self.entries.values() for part in parts for profile in part.layout}
        return sorted((each for each in found if re.match(r"\dg\.\d+gb", each)), key=lambda each: (_size(each), each))

    def entry_name(self, wanted: Layout, first: str | None = None) -> str | None:
        """Name of the entry that brings about this layout, `first` if it does; None without one."""
        found = [name for name, parts in self.entries.items() if self._layout_on_one_gpu(parts, wanted) == wanted]
        return first if first in found else min(found, default=None)

    def max_instances(self, profile: str) -> int | None:
        """The largest number of instances of the profile, and of no other, that an entry makes; None without one."""
        found = [self._layout_on_one_gpu(parts, [profile]) for parts in self.entries.values()]
        return max((each[profile] for each in found if each), default=None)

    def _layout_on_one_gpu(self, parts: list[LayoutRule], profiles: Collection[str]) -> Layout | None:
        """The layout of these profiles that an entry brings about on one GPU and no other; None if it has none.

        Which filter lets the GPU through is in no label: it is the part with the most memory that the GPU has room for.
        """
        alike = [part.layout for part in parts if set(part.layout) == set(profiles)]
        room_gib = float("inf") if self.memory_mib is None else self.memory_mib / 1024 * (1 + MEMORY_TOLERANCE)
        layout = max((each for each in alike if _memory_gib(each) <= room_gib), key=_memory_gib, default=None)
        if layout and self.gpus > 1:
            return layout if parts == rules_for_layout(layout, self.gpus) else None
        return layout if all([part] == rules_for_layout(part.layout) for part in parts) else None

    def no_entry_message(self, layout: Layout) -> str:
        """The line for a layout that no entry brings about, with the entry that does."""
        what = ", ".join(f"{count} of {profile}" for profile, count in layout.items()) or "none"
        return (
            f"the MIG manager's map has no entry for these instances of one GPU: {what}; "
            f"add to {self.location}: my-layout: {as_yaml(rules_for_layout(layout, self.gpus))}"
        )


def parse_entries(text: str, where: str) -> dict[str, list[LayoutRule]]:
    """The entries of a map that is there. Raises NodeError."""
    try:
        entries = yaml.safe_load(text)["mig-configs"]
        return {name: [_parse_rule(each) for each in parts] for name, parts in entries.items()}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise NodeError(f"the MIG manager's map is of no use: {where} is not a file of nvidia-mig-parted") from None


def _parse_rule(spec: Json) -> LayoutRule:
    return LayoutRule(spec.get("devices", ""), bool(spec.get("mig-enabled")), dict(spec.get("mig-devices") or {}))


def rules_for_layout(layout: Layout, gpus: int = 1) -> list[LayoutRule]:
    """The entry for a layout. Of several GPUs the first has it, and the others are whole."""
    if not layout or gpus == 1:
        return [LayoutRule("all", bool(layout), layout)]
    return [LayoutRule([0], True, layout), LayoutRule(list(range(1, gpus)), False, {})]


def as_yaml(parts: Iterable[LayoutRule]) -> str:
    shown = [
        {"devices": part.devices, "mig-enabled": part.is_enabled}
        | ({"mig-devices": dict(part.layout)} if part.layout else {})
        for part in parts
    ]
    return yaml.safe_dump(shown, default_flow_style=True, sort_keys=False, width=1000).strip()


def _size(profile: str) -> tuple[int, int]:
    slices, memory = re.findall(r"\d+", profile)[:2]
    return int(slices), int(memory)


def _memory_gib(layout: Layout) -> int:
    return sum(_size(profile)[1] * count for profile, count in layout.items())


def full_profile_name(wanted: str, known: Iterable[str], shown: Iterable[str], memory_mib: int | None) -> str | None:
    """Full name of a profile that may be given by its slices alone; None where several would do.

    `known` are the names of the manager's map, which may be of several GPUs, `shown` those of the node's instances, and
    `memory_mib` is the memory of the whole GPU.
    """
    if "." in wanted:
        return wanted
    fitting = [name for name in known if profile_matches(name, wanted)]
    here = [name for name in shown if profile_matches(name, wanted)]
    for names in (here, fitting):
        if len(names) == 1:
            return names[0]
    return _profile_by_memory(slice_count(wanted), fitting, memory_mib / 1024) if memory_mib and fitting else None


def _profile_by_memory(slices: int, names: list[str], memory_gib: float) -> str | None:
    # Most GPUs have eight memory slices; some small ones (A30) have four of each kind.
    for share in (MEMORY_EIGHTHS.get(slices, 8) / 8, slices / 4):
        nearest = min(names, key=lambda name: abs(_size(name)[1] - share * memory_gib))
        if abs(_size(nearest)[1] / (share * memory_gib) - 1) <= MEMORY_TOLERANCE:
            return nearest
    return None
