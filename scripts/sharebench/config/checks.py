"""What can be wrong with a config, each problem as one line for the person who wrote it.

A line names the key, the value and the remedy; `sharebench.config.load` turns it into a ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharebench.config import faults, nodes, paths, prometheus, workloads
from sharebench.config import pod_template as config_pod_template
from sharebench.config import programs as config_programs
from sharebench.config.catalogue_models import Strategy, Workload
from sharebench.config.comparisons import again_entry, contrasts, datasets, parts
from sharebench.config.models import Config
from sharebench.config.words import shown as _shown
from sharebench.config.words import unknown as _unknown
from sharebench.core import programs
from sharebench.core.capabilities import BUILT_KINDS, KNOWN_LAYERS, can, kinds_that_can, resolve_node
from sharebench.core.spec import has_jobs

# nodes/device.json is the node's own file beside nodes/{strategy}.json; `baseline: none` means no baseline.
RESERVED_STRATEGIES = {
    "device": "nodes/device.json exists already",
    "none": "baseline: none means no baseline",
    "timeslice": "nodes/timeslice.json is the probe's own file",
}
OF_A_MIX = "has no effect on a mix; remove it, its tenants have their own"


def cross_key_problems(config: Config) -> Iterator[str]:
    """What is wrong across the keys of a normalised, schema-valid config.

    A check relies on those before it, so that only the first line is worth taking.
    """
    kind = resolve_node(config.plain())
    if kind not in BUILT_KINDS:
        yield f"node: {kind!r} is not built yet; use {' or '.join(BUILT_KINDS)}"
        return
    yield from paths.problems(config)
    for name, strategy in config.strategy_catalogue.items():
        yield from _strategy_entry(name, strategy)
    for name, workload in config.workload_catalogue.items():
        yield from _workload_entry(name, workload)
        yield from _mix_entry(name, config.workload_catalogue)
    warm_up, start = config.warmup.max_seconds, config.timeouts.start_seconds
    if warm_up >= start:
        yield f"timeouts.start_seconds: {start} leaves no time for warmup.max_seconds, {warm_up}; set more than that"
    yield from _names(config)
    for name in config.strategy_catalogue:
        yield from again_entry(name, config.strategy_catalogue)
    yield from _neighbours(config)
    yield from _queues(config)
    yield from contrasts(config)
    yield from faults.problems(config, kind)
    yield from prometheus.problems(config, kind)
    yield from parts(config.parts)
    if config.datasets:
        yield from datasets(config.datasets)
    elif config.from_ is None:
        yield from nodes.problems(config, kind)
        yield from _used_strategies(config, kind)
        yield from _used_workloads(config, kind)


def _strategy_entry(name: str, entry: Strategy) -> Iterator[str]:
    """Entries that no kind of node could make sense of."""
    key = f"strategy_catalogue.{name}"
    mechanisms = entry.mechanism
    if name in RESERVED_STRATEGIES:
        yield f"{key}: the name {name!r} is reserved ({RESERVED_STRATEGIES[name]}); choose another"
    if len(mechanisms) == 2 and tuple(mechanisms) not in KNOWN_LAYERS:
        known = " or ".join(f"[{', '.join(layers)}]" for layers in sorted(KNOWN_LAYERS, reverse=True))
        yield f"{key}.mechanism: [{', '.join(mechanisms)}] are no layers, outer first; use {known}"
    if "exclusive" in mechanisms and entry.replicas != [1]:
        own = _shown(entry.replicas)
        yield f"{key}.replicas: {own} is not possible, exclusive means one tenant; set [1]"
    needs = dict.fromkeys(("profile", "profiles", "instances", "claim_per"), "mig")
    needs |= dict.fromkeys(("thread_percent", "memory_percent"), "mps") | {"interval": "time-slicing"}
    for option, mechanism in needs.items():
        is_schedulers = entry.pod is not None and mechanism == "mps"
        if getattr(entry, option) is not None and mechanism not in mechanisms and not is_schedulers:
            yield f"{key}.{option}: {_shown(getattr(entry, option))} has no effect without {mechanism}; remove it"
    if entry.pod is not None:
        yield from config_pod_template.problems(key, entry.plain())
    if entry.interval is not None and "mig" in mechanisms:
        yield f"{key}.interval: {entry.interval!r} has no effect on MIG instances; remove it"
    if entry.profiles is not None:
        for option in ("profile", "instances"):
            if (own := getattr(entry, option)) is not None:
                yield f"{key}.{option}: {own!r} has no effect beside profiles, which has both; remove it"
        return
    if "mig" in mechanisms and entry.profile is None:
        yield f"{key}.profile: null is not enough for mig; give a profile such as 1g, or several as profiles"
    if len(mechanisms) == 2 and entry.instances is None:
        yield f"{key}.instances: null is not enough for layers; say how many the tenants share, such as 2"


def _workload_entry(name: str, entry: Workload) -> Iterator[str]:
    key = f"workload_catalogue.{name}"
    yield from config_programs.problems(key, entry.plain())
    arrival = entry.load.arrival
    rates = [option for option in ("rate_hz", "rate_of_capacity") if getattr(entry.load, option) is not None]
    if arrival == "closed" and rates:
        value = getattr(entry.load, rates[0])
        yield f"{key}.load.{rates[0]}: {value} has no effect on a closed load; remove it or set an arrival"
    if arrival != "closed" and len(rates) != 1:
        given = "both are" if rates else "none is"
        yield f"{key}.load: {arrival} needs rate_hz or rate_of_capacity, {given} given; give exactly one"
    if entry.kind == "job" and entry.job is None:
        yield f"{key}.job: null is not enough for a job; say how much work it is, such as {{iterations: 1000}}"
    if entry.kind != "job" and entry.job is not None:
        yield f"{key}.job: {_shown(entry.job.plain())} has no effect on a {entry.kind}; remove it or set kind: job"
    if entry.kind == "job" and arrival != "closed":
        yield f"{key}.load.arrival: {arrival!r} is not possible, a job's iterations follow each other; remove it"
    if entry.simulated is not None and not any(entry.simulated.plain().values()):
        yield f"{key}.simulated: 0 seconds of work; set serial_seconds, parallel_sm_seconds or both"


def _mix_entry(name: str, catalogue: dict[str, Workload]) -> Iterator[str]:
    """A mix without workloads to mix, or with something of its own that its tenants have."""
    entry = catalogue[name]
    if entry.tenants is None:
        return
    key = f"workload_catalogue.{name}"
    for option in ("module", "params", "job", "simulated"):
        if own := entry.plain()[option]:
            yield f"{key}.{option}: {_shown(own)} {OF_A_MIX}"
    if entry.load.arrival != "closed":
        yield f"{key}.load: {entry.load.arrival} {OF_A_MIX}"
    plain = [other for other in catalogue if catalogue[other].tenants is None]
    for tenant in entry.tenants:
        if tenant in catalogue and tenant not in plain:
            yield f"{key}.tenants: {tenant!r} is a mix itself; name workloads that are none"
        elif tenant not in plain:
            yield f"{key}.tenants: {_unknown(tenant, plain, 'is not in the catalogue')}"


def _names(config: Config) -> Iterator[str]:
    """Names of the study that no catalogue has, or too few of them."""
    for key, names, catalogue in (
        ("strategies", config.strategies, config.strategy_catalogue.keys()),
        ("workloads", config.workloads, config.workload_catalogue.keys()),
        ("interference", config.interference, config.workload_catalogue.keys()),
        ("fault_victims", config.fault_victims, config.workload_catalogue.keys()),
    ):
        for name in names:
            if name not in catalogue:
                yield f"{key}: {_unknown(name, catalogue, 'is not in the catalogue')}"
    if not (config.workloads or config.interference or (config.faults and config.fault_victims)):
        yield "workloads: [] is empty; name at least one, or workloads to pair in interference"
    for name in config.interference:
        if config.workload_catalogue[name].tenants is not None:
            yield f"interference: {name!r} is a mix itself; name workloads that are none"
    if len(config.interference) == 1:
        yield f"interference: {_shown(config.interference)} is one workload; name at least two, or leave it empty"
    known = config.strategy_catalogue
    if config.baseline not in (*known, "none"):
        yield f"baseline: {_unknown(config.baseline, (*known, 'none'), 'is not in the catalogue')}"
    if "exclusive" not in known or known["exclusive"].mechanism != ["exclusive"]:
        yield "strategy_catalogue.exclusive: is not there or not exclusive; restore it, calibration needs it"


def _neighbours(config: Config) -> Iterator[str]:
    """Mixes and pairs that no strategy of the study has enough tenants for."""
    entries = [config.strategy_catalogue[name] for name in config.strategies]
    if config.interference and not any(2 in (entry.replicas or [2]) for entry in entries):
        named, strategies = _shown(config.interference), _shown(config.strategies)
        yield f"interference: {named} needs a strategy with two tenants, {strategies} has none; add one"
    most = max(max(entry.replicas or config.replicas) for entry in entries)
    for name in config.workloads:
        if config.workload_catalogue[name].tenants is not None and most < 2:
            yield f"replicas: one tenant alone is no mix, and {name!r} is one; use 2 or more"


def _queues(config: Config) -> Iterator[str]:
    """A strategy that needs jobs, in a study that has none."""
    queues = [name for name in config.strategies if config.strategy_catalogue[name].mechanism == ["sequential"]]
    if queues and not has_jobs(config.plain()):
        yield (
            f"strategies: {queues[0]!r} runs jobs one after another, and no workload of the study is a job "
            "(kind: job); add one, such as batch-matmul, or leave it out"
        )


def _used_strategies(config: Config, kind: str) -> Iterator[str]:
    """Strategies of the study that this kind of node can never do."""
    baseline, access = config.baseline, config.kubernetes.access
    used = [("strategies", name) for name in config.strategies]
    if baseline != "none":
        used.append(("baseline", baseline))
    for key, name in used:
        entry = config.strategy_catalogue[name]
        reason = can(kind, entry.plain(), access)
        if reason is not None:
            able = ", ".join(kinds_that_can(entry.plain(), access)) or "none yet"
            yield (
                f"{key}: {name!r} is impossible on the node {kind!r}: {reason}; "
                f"leave it out, or set node to one that can: {able}"
            )
        if key == "baseline" and 1 not in (entry.replicas or [1]):
            own = _shown(entry.replicas)
            yield f"baseline: {name!r} has replicas {own} and never runs one tenant; choose another"


def _used_workloads(config: Config, kind: str) -> Iterator[str]:
    """Workloads of the study that this kind of node cannot run, or not in this window."""
    for asked, name in _tenants_workloads(config):
        entry = config.workload_catalogue[name]
        key = f"workload_catalogue.{name}"
        if kind == "kubernetes" and programs.is_program(entry.plain()):
            yield (
                f"{asked}: {name!r} is impossible on the node 'kubernetes': kind: {entry.kind} runs on a host only "
                "so far; leave it out, or set node to one that can: cpu, nvidia"
            )
            continue
        if kind == "simulated" and entry.simulated is None:
            yield f"{asked}: {name!r} has no model for the node 'simulated'; add {key}.simulated"
        if kind == "simulated" and asked != "workloads" and entry.load.arrival != "closed":
            yield f"{asked}: {name!r} is an open load, for which 'simulated' has no model beside others; leave it out"
        module = programs.module(entry.plain())
        needs_module = kind != "simulated" and entry.kind != "command"
        if needs_module and module is None:
            yield f"{asked}: {name!r} has no code for the node {kind!r}; add {key}.module"
        elif needs_module and module not in workloads.names():
            problem = "has no file in scripts/tenant/workloads"
            yield f"{key}.module: {_unknown(entry.module, workloads.names(), problem)}"
        elif needs_module and kind == "cpu" and (reason := workloads.impossible_on_cpu(entry.plain())):
            yield (
                f"{asked}: {name!r} is impossible on the node 'cpu': {reason}; "
                f"use one that is possible ({', '.join(_possible_on_cpu(config))}), or set node: nvidia"
            )
        if kind != "simulated":
            yield from config_programs.missing_files(key, entry.plain())
        if config.window_seconds < entry.min_window_seconds:
            yield (
                f"window_seconds: {config.window_seconds} is too short for the workload {name!r}; "
                f"use {entry.min_window_seconds} or more"
            )


def _tenants_workloads(config: Config) -> Iterator[tuple[str, str]]:
    """The workloads that the study's tenants run, each with the key that asks for it."""
    for name in config.workloads:
        tenants = config.workload_catalogue[name].tenants
        if tenants is None:
            yield "workloads", name
        else:
            yield from ((f"workload_catalogue.{name}.tenants", tenant) for tenant in tenants)
    yield from (("interference", name) for name in config.interference)
    if config.faults:
        yield from (("fault_victims", name) for name in config.fault_victims)


def _possible_on_cpu(config: Config) -> Iterator[str]:
    """The workloads of the catalogue that this interpreter can run without a GPU."""
    for name, entry in config.workload_catalogue.items():
        if entry.module in workloads.names() and not workloads.impossible_on_cpu(entry.plain()):
            yield name
