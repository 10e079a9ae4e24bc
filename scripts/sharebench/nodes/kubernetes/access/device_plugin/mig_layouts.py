"""The map of MIG layouts that NVIDIA's mig-manager knows: its entries, the profiles' names, and our own lines in it.

The map is the file of nvidia-mig-parted (`mig-configs`), one text in a ConfigMap. Our entry is one line, put in
and taken out as text, so that comments and order of all other entries stay.
"""

import re
from collections.abc import Iterable, Mapping

import yaml

from sharebench.core.strategies import profile_matches, slices_of
from sharebench.nodes.kubernetes.access.device_plugin.keys import PREFIX
from sharebench.nodes.kubernetes.cluster.api import Json

Layout = Mapping[str, int]
"""How many instances there are of each profile, in full (`1g.5gb`); empty for a GPU without MIG."""
Known = Mapping[str, list[Layout | None]]
"""The entries of a map, as `parse` returns them."""

MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
CAPABLE_LABEL = "nvidia.com/mig.capable"
OUR_ENTRY = re.compile(rf"^[ \t]+{PREFIX}[^\n]*\n", re.MULTILINE)
MAP_HEAD = re.compile(r"^mig-configs:[ \t]*(#.*)?\n", re.MULTILINE)
FIRST_ENTRY = re.compile(r"(?:[ \t]*(?:#.*)?\n)*([ \t]+)[^\s#]")
MOST_SLICES = 7
# Of the GPU's eight memory slices, by the compute slices of a profile (NVIDIA, Multi-Instance GPU User Guide).
MEMORY_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
# Names round the memory, of which the driver keeps a part.
MEMORY_TOLERANCE = 0.1


class NotAMap(ValueError):
    """The text has no entries, or has them in a way that no line can be added to."""


def parse(text: str) -> dict[str, list[Layout | None]]:
    """The map's entries: the layout for each kind of GPU that an entry distinguishes, None for one not of all GPUs.

    Raises NotAMap.
    """
    try:
        found = yaml.safe_load(text)
        return {name: [_layout(each) for each in kinds] for name, kinds in found["mig-configs"].items()}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise NotAMap("it is not a file of nvidia-mig-parted") from None


def _layout(spec: Json) -> Layout | None:
    if spec.get("devices") != "all":
        return None
    if not spec.get("mig-enabled"):
        return {}
    return dict(spec.get("mig-devices") or {}) or None


def named(known: Known, wanted: Layout, first: str | None = None) -> str | None:
    """Name of the entry that is this layout on every kind of GPU, `first` if it is one; None without one."""
    found = [name for name, kinds in known.items() if kinds and all(each == wanted for each in kinds)]
    return first if first in found else min(found, default=None)


def capacity(known: Known, profile: str) -> int:
    """How many instances of the profile the GPU has room for: as the map says, or by the slices if it does not."""
    uniform = [
        kinds[0][profile]
        for name, kinds in known.items()
        if kinds and kinds[0] and list(kinds[0]) == [profile] and not name.startswith(PREFIX)
        # else it depends on a kind of GPU that only the manager knows
        if all(each == kinds[0] for each in kinds)
    ]
    return max(uniform, default=MOST_SLICES // slices_of(profile))


def profiles(known: Known) -> list[str]:
    """All profiles that the map names, the smallest first."""
    found = {profile for kinds in known.values() for kind in kinds if kind for profile in kind}
    return sorted((each for each in found if re.match(r"\dg\.\d+gb", each)), key=lambda each: (_size(each), each))


def _size(profile: str) -> tuple[int, int]:
    slices, memory = re.findall(r"\d+", profile)[:2]
    return int(slices), int(memory)


def full_name(wanted: str, known: Iterable[str], shown: Iterable[str], memory_mib: int | None) -> str | None:
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
    return _by_memory(slices_of(wanted), fitting, memory_mib / 1024) if memory_mib and fitting else None


def _by_memory(slices: int, names: list[str], memory_gib: float) -> str | None:
    # Most GPUs have eight memory slices; some small ones (A30) have four of each kind.
    for share in (MEMORY_EIGHTHS.get(slices, 8) / 8, slices / 4):
        nearest = min(names, key=lambda name: abs(_size(name)[1] - share * memory_gib))
        if abs(_size(nearest)[1] / (share * memory_gib) - 1) <= MEMORY_TOLERANCE:
            return nearest
    return None


def entry_name(layout: Layout, gpus: int = 1) -> str:
    """Our name for a layout, which the first GPU of several gets; a label takes no `+`."""
    parts = [f"{count}x{profile}" for profile, count in sorted(layout.items(), key=lambda each: _size(each[0]))]
    of_several = f"-of-{gpus}" if layout and gpus > 1 else ""
    return PREFIX + ("-".join(reversed(parts)).replace("+", ".") or "off") + of_several


def with_entries(text: str, entries: Iterable[Layout], gpus: int = 1) -> str:
    """The map with our entry for each of the layouts. Raises NotAMap where no line can be added."""
    head = MAP_HEAD.search(text)
    first = FIRST_ENTRY.match(text, head.end()) if head else None
    if head is None or first is None:
        raise NotAMap("its mig-configs cannot be added to line by line")
    lines = {f"{first.group(1)}{entry_name(layout, gpus)}: {_flow(layout, gpus)}\n" for layout in entries}
    there = set(OUR_ENTRY.findall(text))
    added = "".join(sorted(lines - there))
    result = text[: head.end()] + added + text[head.end() :]
    if {**parse(text), **parse(result)} != parse(result):
        raise NotAMap("our entry would change others")
    return result


def _flow(layout: Layout, gpus: int) -> str:
    devices = ", ".join(f'"{profile}": {count}' for profile, count in sorted(layout.items()))
    mig = f"mig-enabled: true, mig-devices: {{{devices}}}" if layout else "mig-enabled: false"
    if not layout or gpus == 1:
        return f"[{{devices: all, {mig}}}]"
    return f"[{{devices: [0], {mig}}}, {{devices: {list(range(1, gpus))}, mig-enabled: false}}]"


def without_entries(text: str) -> str:
    return OUR_ENTRY.sub("", text)
