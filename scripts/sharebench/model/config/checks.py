"""Checks across the keys of a config, which yield each problem as one line.

A line names the key, the value and the remedy; `sharebench.model.config.load` turns it into a ConfigError.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from zipfile import is_zipfile

from sharebench.core.files import REPOSITORY, Refusal, read_json
from sharebench.model import faults, workload_modules
from sharebench.model.capabilities import resolve_node_kind, supporting_kinds, unsupported_reason
from sharebench.model.config import nodes, programs, prometheus, secrets, sweeps
from sharebench.model.config.files import is_file, is_folder
from sharebench.model.run_record import STATE_FOLDER
from sharebench.model.strategies import CONTROL_SUFFIX, all_strategies
from sharebench.model.study_config import StudyConfig, has_jobs
from sharebench.model.traffic import Load
from sharebench.model.words import quoted, unknown_value
from tenant.contract.trace import TraceRow, read_trace

NOT_IN_CATALOGUE = "is not in the catalogue"
IS_A_MIX = "is a mix itself; name workloads that are none"
ENDS = "runs once, until it exits"
SOURCE_FOLDERS = (
    "benchmarks",
    "config",
    "docs",
    "envs",
    "examples",
    "profiles",
    "published",
    "rules",
    "scripts",
    "tests",
    ".git",
    ".snakemake",
    ".venv",
    ".venv-gpu",
)
"""Folders of a checkout that hold no results."""
MARKS = {"README.md", ".gitignore", ".gitkeep", ".DS_Store", ".snakemake_timestamp", "lost+found"}
NOT_FOREIGN = MARKS | {"compare", "from", "paper", "survey"}
"""What a folder may hold before the first run there, besides results of other studies."""
PARTS_OF_RESULTS = {"calibration", "cells", "figures", "logs", "nodes", "partial", "tables", STATE_FOLDER}
"""A test holds them to results/README.md, and that to the rules."""
MAX_NAME_BYTES = 200
"""File systems have 255, and what is built for a results folder adds to its name."""


def cross_key_problems(config: StudyConfig, is_whole: bool) -> Iterator[str]:
    """All problems across the keys of a normalised, schema-valid config.

    One that is not whole lacks what is faulty by itself. Where something is faulty, a check ends at what it cannot look
    up, since the rest of it would only follow from that.
    """
    checks: list[Callable[[StudyConfig], Iterator[str]]]
    checks = [_mixes, _names, _limits, _controls, _paths, _times, _pairs, _mixed, _queues, _contrasts, _victims]
    if is_measured := config.get("from") == []:
        checks.append(secrets.problems)
    if "node" in config:
        on_a_node = [_faults, prometheus.problems]
        if is_measured:
            on_a_node += [nodes.problems, _used_strategies, _used_workloads]
        checks += [partial(check, kind=resolve_node_kind(config["node"])) for check in on_a_node]
    for check in checks:
        try:
            for line in check(config):
                is_whole = False
                yield line
        except KeyError:
            if is_whole:
                raise


def _limits(config: StudyConfig) -> Iterator[str]:
    catalogue, useless = config["workload_catalogue"], []
    for name, limits in config["slo"]["workloads"].items():
        if name not in catalogue:
            yield f"slo.workloads: {unknown_value(name, catalogue, NOT_IN_CATALOGUE)}"
        elif (entry := catalogue[name]).tenants:
            yield f"slo.workloads.{name}: is a mix; name the workloads of its tenants"
        elif not entry.stream:
            parts = [key for key, ms in limits.items() if ms is not None and key != "latency_ms"]
            useless += [(entry.sweep.of if entry.sweep else name, key, entry.kind) for key in parts]
    for name, key, kind in dict.fromkeys(useless):
        remedy = f", or set workload_catalogue.{name}.stream: true" * (kind == "http")
        yield f"slo.workloads.{name}.{key}: {name!r} does not stream, so it has none; give latency_ms{remedy}"


def _times(config: StudyConfig) -> Iterator[str]:
    warm_up, start = config["warmup"]["max_seconds"], config["timeouts"]["start_seconds"]
    if warm_up >= start:
        yield f"timeouts.start_seconds: {start} leaves no time for warmup.max_seconds, {warm_up}; set more than that"


def _paths(config: StudyConfig) -> Iterator[str]:
    """Paths that do not exist, or that hold something else."""
    folders = [("results", config["results"]), *(("from", each) for each in config["from"])]
    if long := dict.fromkeys(key for key, folder in folders if _has_long_name(Path(folder))):
        yield from (f"{key}: a name in it is longer than {MAX_NAME_BYTES} bytes; give a shorter one" for key in long)
        return
    results = Path(os.path.realpath(config["results"]))
    is_source = any(results.is_relative_to(REPOSITORY / name) for name in SOURCE_FOLDERS)
    is_shared = is_source or results in (here := Path.cwd(), *here.parents)
    # A data set that is only read names the folder of whoever made it.
    if not config["from"] and is_shared:
        yield f"results: {config['results']!r} holds more than results; name a folder of its own, such as results/mine"
    if any(map(is_file, (results, *results.parents))):
        yield f"results: {config['results']!r} is a file, or in one; name a folder, such as results/mine"
    elif not config["from"] and not is_shared and (problem := _foreign(results)):
        yield f"results: {config['results']!r} {problem}; name a new folder, such as results/mine"
    for data in config["from"]:
        if Path(data).is_file() and not is_zipfile(data):
            yield f"from: {data!r} is not a zip, or a damaged one that lacks its end; get the archive again"
        elif not Path(data).exists():
            yield f"from: {data!r} is not an existing folder or zip; give the results of a finished study"


def _foreign(results: Path) -> str | None:
    """Why a run would overwrite files of someone in this folder, or mix its own with them; None if it would not."""
    for part, inner in pairwise((results, *results.parents)):
        if part.name in PARTS_OF_RESULTS and is_folder(inner / STATE_FOLDER):
            return f"is a part of {inner}"
    if _is_of_a_study(results) or results == REPOSITORY / "results":
        return None
    with contextlib.suppress(OSError):
        for entry in sorted(results.iterdir()):
            # A study may be next to its results.
            is_config = entry.suffix == ".yaml"
            if not is_config and entry.name not in NOT_FOREIGN and not _is_of_a_study(entry):
                return f"holds {entry.name}, which is not of a study"
    return None


def _is_of_a_study(folder: Path) -> bool:
    """Whether a run, `join`, or whoever unpacked a data set there has made the folder."""
    if is_folder(folder / STATE_FOLDER) or is_folder(folder / "cells"):
        return True
    with contextlib.suppress(OSError, Refusal):
        read_json(folder / "manifest.json", "config", "node_kind")
        return True
    return False


def _has_long_name(path: Path) -> bool:
    return max((len(os.fsencode(part)) for part in path.parts), default=0) > MAX_NAME_BYTES


def _mixes(config: StudyConfig) -> Iterator[str]:
    """Mixes of workloads that cannot be mixed."""
    catalogue = config["workload_catalogue"]
    tenants = [(name, entry, tenant) for name, entry in catalogue.items() for tenant in entry.tenants or ()]
    for name, entry, tenant in tenants:
        key = f"{sweeps.entry_key(name, entry)}.tenants"
        if line := sweeps.sweep_hint(catalogue, tenant):
            yield f"{key}: {line}"
        elif tenant not in catalogue:
            plain = [name for name, other in catalogue.items() if other.tenants is None]
            yield f"{key}: {unknown_value(tenant, plain, NOT_IN_CATALOGUE)}"
        elif catalogue[tenant].tenants is not None:
            yield f"{key}: {tenant!r} {IS_A_MIX}"
        elif catalogue[tenant].runs_until_exit:
            lasting = [name for name in entry.tenants or () if name in catalogue and catalogue[name].job is None]
            if lasting:
                remedy = "mix it with jobs only, or give its metrics in place of until: exit"
                yield f"{key}: {tenant!r} {ENDS}, and {lasting[0]!r} goes on; {remedy}"


def _names(config: StudyConfig) -> Iterator[str]:
    """Names of the study that are not in the catalogues, and too few names."""
    strategies, workloads = config["strategy_catalogue"], config["workload_catalogue"]
    for key, names, known in (
        ("strategies", config.get("strategies", ()), strategies),
        ("workloads", config.get("workloads", ()), workloads),
        ("interference", config.get("interference", ()), workloads),
        ("fault_victims", config.get("fault_victims", ()), workloads),
    ):
        for name in names:
            if name not in known:
                yield f"{key}: {sweeps.sweep_hint(workloads, name) or unknown_value(name, known, NOT_IN_CATALOGUE)}"
    if not (config["workloads"] or config["interference"] or (config["faults"] and config["fault_victims"])):
        yield "workloads: [] is empty; name at least one, or workloads to pair in interference"
    alone = strategies.get("exclusive")
    if alone is None or (alone.mechanism, alone.own_replicas) != (("exclusive",), (1,)):
        yield "strategy_catalogue.exclusive: is not there or not exclusive; restore it, calibration needs it"


def _controls(config: StudyConfig) -> Iterator[str]:
    """A/A controls that differ from their strategy."""
    catalogue = config["strategy_catalogue"]
    for name, control in catalogue.items():
        base = name.removesuffix(CONTROL_SUFFIX)
        if base != name:
            strategy, same = catalogue.get(base), {"name": base, "description": ""}
            if strategy is None or strategy.changed(**same) != control.changed(**same):
                problem = f"is not the same as {base!r}, which its name says; make them equal, or choose another name"
                yield f"strategy_catalogue.{name}: {problem}"


def _needs_two(key: str, names: list[str], config: StudyConfig) -> Iterator[str]:
    """Workloads or faults that need two tenants, in a study whose strategies never have two."""
    strategies = config["strategies"]
    entries = [config["strategy_catalogue"][name] for name in strategies]
    if names and not any(2 in (entry.own_replicas or [2]) for entry in entries):
        yield f"{key}: {quoted(names)} needs a strategy with two tenants, {quoted(strategies)} has none; add one"


def _pairs(config: StudyConfig) -> Iterator[str]:
    """Pairs that are impossible, or for which no strategy of the study has enough tenants."""
    workloads = config["workload_catalogue"]
    for name in config["interference"]:
        if workloads[name].tenants is not None:
            yield f"interference: {name!r} {IS_A_MIX}"
        if workloads[name].runs_until_exit:
            yield f"interference: {name!r} {ENDS}, and pairs have a window; leave it out, or mix it with jobs (tenants)"
    if len(config["interference"]) == 1:
        yield f"interference: {quoted(config['interference'])} is one workload; name at least two, or leave it empty"
    yield from _needs_two("interference", config["interference"], config)


def _mixed(config: StudyConfig) -> Iterator[str]:
    """Mixes for which no strategy of the study has enough tenants; what was measured so stays readable."""
    workloads = config["workload_catalogue"]
    entries = [config["strategy_catalogue"][name] for name in config["strategies"]]
    most = max(max(entry.own_replicas or config["replicas"]) for entry in entries)
    for name in config["workloads"]:
        if workloads[name].tenants is not None and most < 2:
            yield f"replicas: one tenant alone is not a mix, and {name!r} is one; use 2 or more"
        elif most < (all_of_it := len(workloads[name].tenants or ())) and not config["from"]:
            yield f"replicas: {name!r} has {all_of_it} tenants, and at most {most} would run; use {all_of_it} or more"


def _queues(config: StudyConfig) -> Iterator[str]:
    """A strategy that needs jobs, in a study that has none."""
    catalogue = config["strategy_catalogue"]
    queues = [name for name in config["strategies"] if catalogue[name].is_queue]
    if queues and not has_jobs(config):
        yield (
            f"strategies: {queues[0]!r} runs jobs one after another, and no workload of the study is a job "
            "(kind: job); add one, such as batch-matmul, or leave it out"
        )


def _contrasts(config: StudyConfig) -> Iterator[str]:
    """Contrasts of unknown strategies, or of two that never have the same number of tenants.

    A strategy that is in the catalogue only is allowed, because a part of a study keeps the contrasts of the whole.
    """
    catalogue = config["strategy_catalogue"]
    for contrast in config["contrasts"]:
        key, pair = f"contrasts: {quoted(contrast)}", contrast.split("/")
        for name in pair:
            if name not in catalogue:
                yield f"{key}: {unknown_value(name, catalogue, NOT_IN_CATALOGUE)}"
                return
            if catalogue[name].is_queue:
                yield f"{key}: {name!r} is a queue, which tables/jobs.csv compares; leave it out"
        if pair[0] == pair[1]:
            yield f"{key} compares a strategy with itself; name two"
        one, other = (set(catalogue[name].own_replicas or config["replicas"]) for name in pair)
        if not one & other:
            yield f"{key}: they never have the same number of tenants; set replicas of both"


def _victims(config: StudyConfig) -> Iterator[str]:
    """Workloads that are named like faults, or that no fault can be next to."""
    catalogue = config["workload_catalogue"]
    for name, entry in catalogue.items():
        if faults.fault_kind(name) is not None:
            yield f"workload_catalogue.{name}: {name!r} is the name of a fault; choose another"
        if entry.module == faults.MODULE:
            yield f"workload_catalogue.{name}.module: {faults.MODULE!r} is not a workload; list the fault in faults"
    for name in config["fault_victims"]:
        if catalogue[name].tenants is not None:
            yield f"fault_victims: {name!r} {IS_A_MIX}"
        elif catalogue[name].kind != "loop":
            yield f"fault_victims: {name!r} is of the kind {catalogue[name].kind}; name workloads of the kind loop"


def _faults(config: StudyConfig, kind: str) -> Iterator[str]:
    """Faults that are impossible on this kind of node, or that have no victim."""
    if not config["faults"]:
        return
    named = quoted(list(config["faults"]))
    if not faults.victim_workloads(config):
        yield f"fault_victims: [] is empty, and there is no other plain workload for {named}; name at least one"
    yield from _needs_two("faults", list(config["faults"]), config)
    if config["from"]:
        return
    if kind == "simulated":
        yield f"faults: {named} is impossible on the node 'simulated', which has no model of them; set node: cpu"
    elif kind != "cpu" and not config["allow_faults"]:
        yield (
            f"faults: {named} on the node {kind!r} can harm other users' programs and its driver; "
            "set allow_faults: true if no one else needs the device"
        )


def _used_strategies(config: StudyConfig, kind: str) -> Iterator[str]:
    """Strategies of the study that are impossible on this kind of node."""
    strategies, access = all_strategies(config), config["kubernetes"]["access"]
    for name in dict.fromkeys([*config["strategies"], "exclusive"]):
        if name in strategies and (reason := unsupported_reason(kind, strategies[name], access)) is not None:
            able = ", ".join(supporting_kinds(strategies[name], access)) or "none"
            yield (
                f"strategies: {name!r} is impossible on the node {kind!r}: {reason}; "
                f"leave it out, or set node to one that can: {able}"
            )


def _used_workloads(config: StudyConfig, kind: str) -> Iterator[str]:
    """Workloads of the study that this kind of node cannot run, or for which the window is too short."""
    used = list(_tenant_workloads(config))
    entries = [config["workload_catalogue"][name] for _, name in used]
    longest = max(entries, key=lambda each: each.min_window_seconds, default=None)
    if longest and config["window_seconds"] < longest.min_window_seconds:
        yield (
            f"window_seconds: {config['window_seconds']} is too short for the workload {longest.name!r}; "
            f"use {longest.min_window_seconds} or more"
        )
    for asked, name in used:
        entry = config["workload_catalogue"][name]
        key = sweeps.entry_key(name, entry)
        if kind in ("cpu", "nvidia", "kubernetes") and entry.is_program:
            yield from programs.placement_problems(asked, name, entry, in_pods=kind == "kubernetes")
        if kind == "simulated" and entry.runs_until_exit:
            yield f"{asked}: {name!r} {ENDS}, which 'simulated' cannot model; leave it out, or use a kind: job"
        if kind == "simulated" and entry.simulated is None:
            yield f"{asked}: {name!r} has no model for the node 'simulated'; add {key}.simulated"
        if kind == "simulated" and (entry.load.in_flight or 1) > 1:
            yield f"{asked}: {name!r} has several requests in flight, which 'simulated' cannot model; leave it out"
        if kind == "simulated" and asked != "workloads" and entry.load.arrival != "closed":
            yield f"{asked}: {name!r} is an open load, which 'simulated' cannot model next to others; leave it out"
        if kind != "simulated" and not entry.is_program:
            yield from _module(config, kind, asked, name)
        if kind != "simulated" and not config["measured_elsewhere"]:
            yield from programs.file_problems(key, entry, tenants := _most_tenants_with(name, config))
            yield from _late_trace(f"{key}.load.trace", entry.load, tenants, config["window_seconds"])


def _late_trace(key: str, load: Load, tenants: int, window: float) -> Iterator[str]:
    """A trace of which a tenant has no request in the window, such as one with the times of a calendar."""
    rows: list[TraceRow] = []
    # What is wrong with the file itself is reported elsewhere.
    with contextlib.suppress(OSError, ValueError):
        rows = read_trace(load.trace) if load.trace is not None else []
    tenants = tenants if load.rate_for == "all" else 1
    first = rows[tenants - 1].seconds if tenants <= len(rows) else 0
    if first >= window:
        whose = f" of its tenant {tenants - 1}" if tenants > 1 else ""
        problem = f"the first request{whose} comes at {first:g} s, after the window of {window:g} s"
        yield f"{key}: {load.trace}: {problem}; count seconds from 0, or set a longer window_seconds"


def _most_tenants_with(workload: str, config: StudyConfig) -> int:
    strategies, catalogue = config["strategy_catalogue"], config["workload_catalogue"]
    fixed = (n for each in config["strategies"] if each in strategies for n in strategies[each].own_replicas or ())
    most = max((*config["replicas"], *fixed))
    cycles = [catalogue[each].tenants or (each,) for each in config["workloads"] if each in catalogue]
    return max(1, 2 * (workload in config["interference"]), *((each * most)[:most].count(workload) for each in cycles))


def _module(config: StudyConfig, kind: str, asked: str, name: str) -> Iterator[str]:
    """A workload without a module, or whose module cannot run here."""
    modules, entry = workload_modules.module_names(), config["workload_catalogue"][name]
    key = f"workload_catalogue.{name}.module"
    if entry.module is None:
        yield f"{asked}: {name!r} has no code for the node {kind!r}; add {key}"
    elif entry.module not in modules:
        yield f"{key}: {unknown_value(entry.module, modules, 'has no file in scripts/tenant/workloads')}"
    elif kind == "cpu" and (reason := workload_modules.cpu_obstacle(entry)):
        able = (
            other
            for other, each in config["workload_catalogue"].items()
            if each.module in modules and not workload_modules.cpu_obstacle(each)
        )
        yield (
            f"{asked}: {name!r} is impossible on the node 'cpu': {reason}; "
            f"use one that is possible ({', '.join(able)}), or set node: nvidia"
        )


def _tenant_workloads(config: StudyConfig) -> Iterator[tuple[str, str]]:
    """The workloads of the study's tenants, each with the config key that names it."""
    catalogue = dict(config["workload_catalogue"])
    for name in config["workloads"]:
        if name in catalogue and catalogue[name].tenants is None:
            yield "workloads", name
        elif name in catalogue:
            tenants = catalogue[name].tenants or ()
            yield from ((f"workload_catalogue.{name}.tenants", tenant) for tenant in tenants if tenant in catalogue)
    plain = (name for name in config["interference"] if name in catalogue and catalogue[name].tenants is None)
    yield from (("interference", name) for name in plain)
    if config["faults"]:
        yield from (("fault_victims", name) for name in config["fault_victims"] if name in catalogue)
