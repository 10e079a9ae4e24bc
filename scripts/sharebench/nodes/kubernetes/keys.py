"""Our keys in the device plugin's ConfigMap: their names and their texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from sharebench.strategies import Strategy

PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
# The plugin takes no fewer: `replicas: 1` is a parse error.
FEWEST_REPLICAS = 2


def key_of(strategy: Strategy, replicas: int, most: int) -> tuple[str, int]:
    """Key of the config under which `replicas` tenants run, and how many replicas of each GPU it makes.

    `most` is the study's largest number of tenants under the strategy: time-slicing configured for it serves every
    smaller number too, which saves switches; MPS caps each client at an even share, and so needs a config per number.
    """
    mechanism = strategy.mechanisms[-1]
    if mechanism == "exclusive":
        return f"{PREFIX}exclusive", 1
    count = max(FEWEST_REPLICAS, replicas, most if mechanism == "time-slicing" else 0)
    return f"{PREFIX}{'ts' if mechanism == 'time-slicing' else 'mps'}-{count}", count


def mechanism_of(key: str) -> str:
    """What the plugin and its labels call the sharing under one of our keys: none, time-slicing or mps."""
    kind = key.removeprefix(PREFIX).split("-")[0]
    return {"exclusive": "none", "ts": "time-slicing", "mps": "mps"}[kind]


def render(key: str, base: str, packed: bool = False) -> str:
    """Text of the config under one of our keys, with the version and the flags of the config in force (`base`).

    `packed` puts the replicas that are asked for on one GPU of several (plugin 0.20 and later).
    """
    found: Mapping[str, Any] = yaml.safe_load(base) or {}
    config: dict[str, Any] = {"version": found.get("version", "v1")}
    if "flags" in found:
        config["flags"] = found["flags"]
    if packed:
        flags = dict(config.get("flags") or {})
        plugin = dict(flags.get("plugin") or {}) | {"sharedDevicesAllocationPolicy": "packed"}
        config["flags"] = flags | {"plugin": plugin}
    mechanism = mechanism_of(key)
    if mechanism != "none":
        shared = {"name": RESOURCE, "replicas": int(key.rsplit("-", 1)[1])}
        section: dict[str, Any] = {"renameByDefault": False, "resources": [shared]}
        config["sharing"] = {"timeSlicing" if mechanism == "time-slicing" else "mps": section}
    return yaml.safe_dump(config, sort_keys=False)


def stale(key: str, text: str, data: Mapping[str, str]) -> bool:
    """Whether the ConfigMap lacks the key, or has another text under it."""
    return data.get(key) != text
