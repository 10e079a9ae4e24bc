"""What can be wrong with the faults of a config, each problem as one line."""

from __future__ import annotations

from collections.abc import Iterator

from sharebench.config.models import Config
from sharebench.core import faults


def problems(config: Config, kind: str) -> Iterator[str]:
    """What is wrong on a node of this kind, once every name is known."""
    catalogue = config.workload_catalogue
    for name, entry in catalogue.items():
        if faults.kind_of(name) is not None:
            yield f"workload_catalogue.{name}: {name!r} is the name of a fault; choose another"
        if entry.module == faults.MODULE:
            yield f"workload_catalogue.{name}.module: {faults.MODULE!r} is no workload; list the fault in faults"
    for name in config.fault_victims:
        if catalogue[name].tenants is not None:
            yield f"fault_victims: {name!r} is a mix itself; name workloads that are none"
        elif not faults.can_be_victim(catalogue[name].plain()):
            yield f"fault_victims: {name!r} is of the kind {catalogue[name].kind}; name workloads of the kind loop"
    if not config.faults:
        return
    named = f"[{', '.join(config.faults)}]"
    if not faults.victims(config.plain()):
        yield f"fault_victims: [] is empty, and there is no other plain workload for {named}; name at least one"
    entries = [config.strategy_catalogue[name] for name in config.strategies]
    if not any(2 in (entry.replicas or [2]) for entry in entries):
        strategies = f"[{', '.join(config.strategies)}]"
        yield f"faults: {named} needs a strategy with two tenants, {strategies} has none; add one"
    if config.from_ is not None:
        return
    if kind == "simulated":
        yield f"faults: {named} is impossible on the node 'simulated', which has no model of them; set node: cpu"
    if kind == "kubernetes":
        yield f"faults: {named} is impossible on the node 'kubernetes' so far; set node: cpu or nvidia on a host"
    if kind != "cpu" and not config.allow_faults:
        yield (
            f"faults: {named} on the node {kind!r} can harm programs of others and its driver; "
            "set allow_faults: true if nobody else needs the device"
        )
