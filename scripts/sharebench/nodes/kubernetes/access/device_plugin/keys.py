"""Our keys in the device plugin's ConfigMap: their names and their texts."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.cluster.api import Json

PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
# The plugin takes no fewer: `replicas: 1` is a parse error.
FEWEST_REPLICAS = 2


def key_of(strategy: Strategy, replicas: int, most: int) -> tuple[str, int]:
    """Key of the config under which `replicas` tenants run, and how many replicas of each GPU it makes.

    `most` is the study's largest number of tenants under the strategy: time-slicing configured for it serves every
    smaller number too, which saves switches; MPS caps each client at an even share, and so needs a config per number.
    """
    mechanism = strategy.mechanisms[-1]
    if strategy.mechanisms[0] == "mig":
        raise ValueError("its key depends on the instances: mig_key")
    if mechanism == "exclusive":
        return f"{PREFIX}exclusive", 1
    count = max(FEWEST_REPLICAS, replicas, most if mechanism == "time-slicing" else 0)
    return f"{PREFIX}{'ts' if mechanism == 'time-slicing' else 'mps'}-{count}", count


def mig_key(is_single: bool, replicas: int, profiles: Iterable[str]) -> str:
    """Key of the config that offers MIG instances: as GPUs if `is_single`, else by profile.

    Each of those of `profiles` is offered to `replicas` tenants.
    """
    key = f"{PREFIX}mig-{'single' if is_single else 'mixed'}"
    if replicas == 1:
        return key
    names = () if is_single else (name.replace("+", ".") for name in dict.fromkeys(profiles))
    return "-".join((key, "ts", str(replicas), *names))


def mechanism_of(key: str) -> str:
    """What the plugin and its labels call the sharing under one of our keys: none, time-slicing or mps."""
    words = key.removeprefix(PREFIX).split("-")
    if words[0] == "mig":
        return "time-slicing" if "ts" in words else "none"
    return {"exclusive": "none", "ts": "time-slicing", "mps": "mps"}[words[0]]


def render(key: str, base: str, packed: bool = False) -> str:
    """Text of the config under one of our keys, with the version and the flags of the active config (`base`).

    `packed` puts the replicas that are asked for on one GPU of several (plugin 0.20 and later).
    """
    found: Json = yaml.safe_load(base) or {}
    config: Json = {"version": found.get("version", "v1")}
    if "flags" in found:
        config["flags"] = found["flags"]
    if packed:
        flags = dict(config.get("flags") or {})
        plugin = dict(flags.get("plugin") or {}) | {"sharedDevicesAllocationPolicy": "packed"}
        config["flags"] = flags | {"plugin": plugin}
    mechanism, words = mechanism_of(key), key.removeprefix(PREFIX).split("-")
    if words[0] == "mig":
        config["flags"] = dict(config.get("flags") or {}) | {"migStrategy": words[1]}
    elif mechanism == "mps" and (config.get("flags") or {}).get("migStrategy") == "mixed":
        # The plugin refuses the two together, also where no GPU is partitioned.
        config["flags"] = config["flags"] | {"migStrategy": "none"}
    if mechanism != "none":
        at = words.index("ts") if "ts" in words else 0
        names = [f"{MIG_RESOURCE_PREFIX}{each}" for each in words[at + 2 :]] or [RESOURCE]
        resources = [{"name": name, "replicas": int(words[at + 1])} for name in names]
        section: Json = {"renameByDefault": False, "resources": resources}
        config["sharing"] = {"timeSlicing" if mechanism == "time-slicing" else "mps": section}
    return yaml.safe_dump(config, sort_keys=False)
