"""Checks across the keys of a strategy: each problem with the key that has it, and the rest of the error line."""

import re
from collections.abc import Iterator
from string import Template

from sharebench.model.pod_template import PLACEHOLDERS, PodTemplate, placeholder_names
from sharebench.model.strategy import GREEN_CONTEXTS, LIMIT_KEYS, MECHANISMS, SHARE_KEYS, Strategy
from sharebench.model.words import quoted, unknown_value

# The possible layers, outer first: only MIG partitions a device into parts that can be shared again.
KNOWN_LAYERS = (("mig", "time-slicing"), ("mig", "mps"))
# Names that are taken by files next to nodes/{strategy}.json.
RESERVED_NAMES = {
    "device": "nodes/device.json exists already",
    "timeslice": "nodes/timeslice.json is the probe's own file",
}
# Mechanisms whose tenants may have a claim each: for a GPU each, or all for one.
WITH_OWN_CLAIMS = (("exclusive",), ("time-slicing",))
# Snakemake would take such text for one of its wildcards.
BRACES = re.compile(r"\{\w+\}")


def problems(strategy: Strategy) -> Iterator[tuple[str, str]]:
    """Problems of the strategy on any kind of node, each with the key that has it."""
    if strategy.name in RESERVED_NAMES:
        yield "", f"the name {strategy.name!r} is reserved ({RESERVED_NAMES[strategy.name]}); choose another"
    if len(strategy.mechanism) == 2 and strategy.mechanism not in KNOWN_LAYERS:
        known = " or ".join(quoted(layers) for layers in sorted(KNOWN_LAYERS, reverse=True))
        yield "mechanism", f"{quoted(strategy.mechanism)} are not layers, outer first; use {known}"
    if "exclusive" in strategy.mechanism and strategy.own_replicas != (1,) and strategy.claim_per != "tenant":
        yield "replicas", f"{quoted(strategy.replicas)} is not possible, exclusive means one tenant; set [1]"
    yield from _useless_options(strategy)
    for name, number in strategy.lengths().items():
        if (own := strategy.own_replicas) != (number,):
            limits = f"{quoted(getattr(strategy, name))} is for {number} tenants, replicas are {quoted(own)}"
            yield name, f"{limits}; give each tenant one, as in all lists of the entry"
    if strategy.memory_limit is not None and strategy.memory_percent is not None:
        yield "memory_limit", f"{quoted(strategy.memory_limit)} has no effect next to memory_percent; remove one"
    if strategy.pod is not None:
        yield from _pod_limits(strategy, strategy.pod)
    for option in ("interval", "gpus"):
        if (own := getattr(strategy, option)) is not None and "mig" in strategy.mechanism:
            yield option, f"{own!r} has no effect on MIG instances; remove it"
    if strategy.profiles is not None:
        for option in ("profile", "instances"):
            if (own := getattr(strategy, option)) is not None:
                yield option, f"{own!r} has no effect next to profiles, which has both; remove it"
        return
    if "mig" in strategy.mechanism and strategy.profile is None:
        yield "profile", "null is not enough for mig; give a profile such as 1g, or several as profiles"
    if len(strategy.mechanism) == 2 and strategy.instances is None:
        yield "instances", "null is not enough for layers; set the number that the tenants share, such as 2"


def _useless_options(strategy: Strategy) -> Iterator[tuple[str, str]]:
    if strategy.claim_per == "tenant" and strategy.mechanism not in WITH_OWN_CLAIMS:
        yield "claim_per", f"'tenant' is not possible with {quoted(strategy.mechanism)}; use exclusive or time-slicing"
    needs: dict[str, str] = {}
    for name, traits in MECHANISMS.items():
        needs = {key: name for key in traits.keys if key not in needs} | needs
    effective = {key for name in strategy.mechanism for key in MECHANISMS[name].keys}
    if strategy.claim_per == "tenant":
        effective.add("claim_per")
    if strategy.pod is not None:
        effective.update(LIMIT_KEYS)
    for option, mechanism in needs.items():
        if (own := getattr(strategy, option)) is not None and option not in effective:
            yield option, f"{quoted(own)} has no effect without {mechanism}; remove it"
    if GREEN_CONTEXTS in strategy.mechanism and strategy.thread_percent is None:
        yield "thread_percent", f"null is not enough for {GREEN_CONTEXTS}; give a share of the SMs, such as 100/N"


def _pod_limits(strategy: Strategy, pod: PodTemplate) -> Iterator[tuple[str, str]]:
    """Placeholders in the template without a limit, and limits without a placeholder."""
    for where, name, limit in pod.limits():
        if getattr(strategy, limit) is None:
            yield f"pod.{where}", f"${name} has nothing to stand for; give {limit}, such as 100/N"
    used = {limit for _, _, limit in pod.limits()}
    for limit in SHARE_KEYS:
        if (share := getattr(strategy, limit)) is not None and limit not in used:
            yield limit, f"{share!r} reaches no pod; use ${limit} in pod.resources, or remove it"


def pod_problems(pod: PodTemplate) -> Iterator[tuple[str, str]]:
    """Placeholders that cannot be filled in, and pods without a GPU."""
    for where, text in pod.texts():
        for name in placeholder_names(text):
            if name not in PLACEHOLDERS:
                yield where, unknown_value(name, PLACEHOLDERS, "is not a placeholder")
        if BRACES.search(text) or not Template(text).is_valid():
            yield where, f"{text!r} holds a brace or a $ without a placeholder; write one as $thread_percent"
    if not pod.resources and not pod.annotations:
        yield "resources", "{} brings no GPU; name a resource, such as nvidia.com/gpu: 1"
