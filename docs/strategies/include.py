"""Put what each strategy makes in a cluster into its page: `make docs`, or with PYTHONPATH=tests:scripts this file.

Of a cell's pods the first is shown, without what the pods of all strategies have.
"""

from __future__ import annotations

import re
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml
from unit.kubernetes.manifests import made

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"(<!-- manifests: ([a-z0-9-]+) -->\n).*?(<!-- end of manifests -->)", re.DOTALL)
LABEL = "nvidia.com/device-plugin.config"
# What makes an object ours, which says nothing about the strategy.
OURS = ("ownerReferences", "labels", "annotations")
CELL = re.compile(r"sharebench-[0-9a-f]{12}")

Json = Any


def _by_name(items: list[Json]) -> dict[str, Json] | None:
    has_names = items and all(isinstance(item, dict) and "name" in item for item in items)
    return {item["name"]: item for item in items} if has_names else None


def common(one: Json, other: Json) -> Json:
    """What both have; of lists of named things, by their names. None where nothing is."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = {key: common(one[key], other[key]) for key in one if key in other}
        return {key: value for key, value in shared.items() if value is not None}
    if isinstance(one, list) and isinstance(other, list):
        ones, others = _by_name(one), _by_name(other)
        if ones is not None and others is not None:
            return [common(ones[name], others[name]) for name in ones if name in others]
    return one if one == other else None


def beyond(whole: Json, known: Json) -> Json:
    """What is in `whole` and not in `known`, with the names of what it belongs to; None where nothing is."""
    if isinstance(whole, dict) and isinstance(known, dict):
        left = {key: beyond(value, known.get(key)) for key, value in whole.items()}
        return {key: value for key, value in left.items() if value is not None} or None
    if isinstance(whole, list) and isinstance(known, list):
        wholes, knowns = _by_name(whole), _by_name(known)
        if wholes is not None and knowns is not None:
            left = {name: beyond(item, knowns.get(name)) for name, item in wholes.items()}
            return [{"name": name} | item for name, item in left.items() if item is not None] or None
    return None if whole == known else whole


def _first_pod(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in documents if each["kind"] == "Pod")


@cache
def everywhere() -> dict[str, Any]:
    """What the pods of all strategies have."""
    return reduce(common, map(_first_pod, made().values()))


def shown(name: str) -> str:
    """The YAML of a strategy as its page has it."""
    found = made()[name]
    key = next((each["metadata"]["labels"].get(LABEL) for each in found if each["kind"] == "Node"), None)
    parts = []
    for each in found:
        if "binaryData" in each or (each["kind"] == "Pod" and each is not _first_pod(found)):
            continue
        head = {"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": dict(each["metadata"])}
        rest = {part: value for part, value in each.items() if part not in head}
        if each["kind"] == "Pod":
            own = beyond(each, everywhere()) or {}
            head["metadata"] = {"name": each["metadata"]["name"]} | {
                part: own["metadata"][part] for part in ("labels", "annotations") if part in own.get("metadata", {})
            }
            rest = {"spec": own["spec"]} if "spec" in own else {}
        elif each["kind"] == "ConfigMap" and key in each.get("data", {}):
            rest = {"data": {key: each["data"][key]}}
        elif each["kind"] != "Node":
            head["metadata"] = {part: value for part, value in head["metadata"].items() if part not in OURS}
        parts.append(head | rest)
    text = yaml.dump_all(parts, Dumper=_Dumper, sort_keys=False, width=110)
    return CELL.sub("sharebench-cell", text)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None),
)


def included(page: str) -> str:
    """The page with the manifests as they are now."""
    return BLOCK.sub(lambda found: f"{found[1]}```yaml\n{shown(found[2])}```\n{found[3]}", page)


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.md")):
        before = path.read_text()
        if (after := included(before)) != before:
            path.write_text(after)
