"""Config to cells: which cells there are, in which order they run, and what each of them depends on."""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement, product
from typing import cast

from sharebench.core import faults, fingerprint, programs, prometheus_options
from sharebench.core.capabilities import KINDS, has_own_python, resolve_node
from sharebench.core.files import SCRIPTS
from sharebench.core.spec import (
    LoadSpec,
    MixSpec,
    NodeSpec,
    Spec,
    StrategySpec,
    WorkloadSpec,
    parse,
    runs_to_its_end,
    tenant_workloads,
)
from sharebench.core.strategies import Strategy, again, on_node
from sharebench.core.study_config import NodeOptions, StudyConfig, WorkloadEntry, is_job
from sharebench.study.cells import Cell, Plot, canonical, pair_name, without_excluded

# Capacity and output need no longer a run than this.
CALIBRATION_SECONDS = 10
ENVS = SCRIPTS.parent / "envs"


@lru_cache(maxsize=3)
def tenant_environment(lock: str) -> str:
    """What a tenant may import: the pins of its lock in envs/, without hashes and comments."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+==[^\s;\\]+)", (ENVS / lock).read_text(), flags=re.MULTILINE)
    return " ".join(sorted(pins))


def client_environment() -> str:
    """The pin of what the client of servers asks with; it runs in the driver's environment."""
    return next(pin for pin in tenant_environment("sharebench.txt").split() if pin.startswith("aiohttp=="))


def _as_loop(workload: WorkloadSpec) -> WorkloadSpec:
    """The spec of a workload, of a job that of its iterations alone."""
    if workload["kind"] != "job":
        return workload
    loop: WorkloadSpec = {**workload, "kind": "loop"}
    loop.pop("job", None)
    return loop


class Study:
    """The matrix of one normalised config (`sharebench.config.load.load`)."""

    def __init__(self, config: StudyConfig) -> None:
        self.config = config
        self.node_kind = resolve_node(config)
        self.strategies: dict[str, Strategy] = on_node(config, self.node_kind)
        self.baseline: str | None = None if config["baseline"] == "none" else config["baseline"]
        order = config["order"]
        self.order = order if order != "auto" else ("strategy" if KINDS[self.node_kind].is_slow_to_switch else "blocks")

    @cached_property
    def interference(self) -> dict[str, tuple[str, str]]:
        """The pairs of workloads that `interference` asks for, by name, whatever the order in which it lists them."""
        named = sorted(self.config["interference"])
        return {pair_name(*pair): pair for pair in combinations_with_replacement(named, 2)}

    @cached_property
    def faults(self) -> dict[str, tuple[str, str]]:
        """Of each cell name of `faults` what the victim runs and what the aggressor, the last tenant, does."""
        asked = product(sorted(self.config["faults"]), faults.victims(self.config))
        return {faults.cell_name(kind, victim): (victim, faults.PREFIX + kind) for kind, victim in asked}

    @cached_property
    def _pairs(self) -> dict[str, tuple[str, str]]:
        return self.interference | self.faults

    def is_mix(self, workload: str) -> bool:
        """Whether it names what each tenant runs, instead of one workload for all."""
        return workload in self._pairs or self.config["workload_catalogue"][workload]["tenants"] is not None

    def _cycle(self, workload: str) -> Sequence[str]:
        """What the tenants run, from the first on, repeated to their number."""
        return self._pairs.get(workload) or self.config["workload_catalogue"][workload]["tenants"] or [workload]

    def tenants_of(self, cell: Cell) -> list[str]:
        """The workload of each tenant of the cell, in order."""
        cycle = self._cycle(cell.workload)
        return [cycle[index % len(cycle)] for index in range(cell.replicas)]

    def components(self, cell: Cell) -> list[str]:
        """The workloads of the cell's tenants, each once; an aggressor that goes wrong runs none."""
        cycle = self._cycle(cell.workload)[: cell.replicas]
        return list(dict.fromkeys(cycle[:1] if cell.workload in self.faults else cycle))

    def is_job(self, workload: str) -> bool:
        """Whether all its tenants run jobs, so that its cells end with the last of them."""
        return workload not in self._pairs and is_job(self.config, workload)

    def is_compared(self, cell: Cell) -> bool:
        """Whether it is in the summary: a window with a fault in it is in no mean, and a queue shares nothing.

        Iterations in a queue run as alone, whatever their number, so that it would win every comparison.
        """
        return cell.workload not in self.faults and not self.strategies[cell.strategy].is_queue

    def _sizes(self, strategy: str, workload: str, replicas: Sequence[int]) -> list[int]:
        """Numbers of tenants: a pair has two, a mix at least two, and only jobs can stand in a queue."""
        own = self.strategies[strategy].replicas
        if self.strategies[strategy].is_queue and not self.is_job(workload):
            return []
        if workload in self._pairs:
            return [2] if own is None or 2 in own else []
        return [n for n in own or replicas if n > 1 or not self.is_mix(workload)]

    def _expand(self, strategies: Iterable[str], workloads: Sequence[str], replicas: Sequence[int]) -> list[Cell]:
        return [
            Cell(strategy, workload, n, repeat)
            for strategy, workload in product(strategies, workloads)
            for n, repeat in product(self._sizes(strategy, workload, replicas), self._repeats(workload))
        ]

    def _repeats(self, workload: str) -> range:
        return range(1, self.config["fault_repeats" if workload in self.faults else "repeats"] + 1)

    @cached_property
    def requested(self) -> list[Cell]:
        """The cells that the config names, and does not exclude."""
        workloads = [*self.config["workloads"], *self.interference, *self.faults]
        named = self._expand(self.config["strategies"], workloads, self.config["replicas"])
        return without_excluded(named, self.config["exclude"])

    def _alone(self) -> list[Cell]:
        """The baseline of each workload, and the same again where the config asks for it and the catalogue has it.

        What is there for a fault or a queue only is in no comparison, and needs nothing again.
        """
        if self.baseline is None:
            return []
        of = {self.baseline: self.requested}
        if self.config["null_cells"] and again(self.baseline) in self.strategies:
            of[again(self.baseline)] = [cell for cell in self.requested if self.is_compared(cell)]
        return [
            alone
            for strategy, cells in of.items()
            for alone in self._expand([strategy], sorted({name for c in cells for name in self.components(c)}), [1])
            if alone.replicas == 1
        ]

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, the baseline's among them, in the order in which they run."""
        cells = {*self.requested, *without_excluded(self._alone(), self.config["exclude"])}
        plots: dict[Plot, list[Cell]] = {}
        for cell in sorted(cells):
            plots.setdefault(self.plot(cell), []).append(cell)
        ordered = []
        for block in sorted({plot.block for plot in plots}):
            draw = random.Random(f"{self.config['seed']}/{block}")
            in_block = [plot for plot in plots if plot.block == block]
            draw.shuffle(in_block)
            if block == min(plot.block for plot in plots):
                # Calibration has just measured the exclusive device: beginning there saves a switch.
                in_block.sort(key=lambda plot: plot.strategy != self.baseline)
            if self.order == "strategy":
                # The gate sets the state of a strategy's first feasible cell, at the rank of its first cell. What comes
                # between these two would have the state set up twice.
                met = list(dict.fromkeys(plot.strategy for plot in in_block))
                in_block.sort(key=lambda plot: met.index(plot.strategy))
            for plot in in_block:
                inside = plots[plot]
                draw.shuffle(inside)
                ordered += inside
        return ordered

    def tabled(self) -> list[Cell]:
        """All cells in the order in which people read them: by workload, strategy and replicas."""
        config, strategies = self.config, list(self.strategies)
        named = [*config["workloads"], *config["interference"]]
        workloads = [*named, *self._run(), *self.interference, *self.faults]
        return sorted(
            self.cells,
            key=lambda c: (workloads.index(c.workload), strategies.index(c.strategy), c.replicas, c.repeat),
        )

    @cached_property
    def _ranks(self) -> dict[Cell, int]:
        return {cell: len(self.cells) - position for position, cell in enumerate(self.cells)}

    def rank(self, cell: Cell) -> int:
        """Priority of the cell, unique in the study, from `len(cells)` for the first down to 1."""
        return self._ranks.get(cell, 0)

    def strategy_rank(self, strategy: str) -> int:
        """Priority of the strategy's first cell."""
        return max((rank for cell, rank in self._ranks.items() if cell.strategy == strategy), default=0)

    def block(self, cell: Cell) -> int:
        """Block of the cell: its repeat under `order: blocks`, 0 under `order: strategy`."""
        return cell.repeat if self.order == "blocks" else 0

    def plot(self, cell: Cell) -> Plot:
        """The node state that the cell needs and the block in which it is set up."""
        depends = self.strategies[cell.strategy].depends_on_replicas
        return Plot(cell.strategy, cell.replicas if depends else None, self.block(cell))

    def pairs(self) -> list[tuple[str, str]]:
        """The (strategy, workload) pairs that have cells, sorted."""
        return sorted({(cell.strategy, cell.workload) for cell in self.cells})

    def workloads(self) -> list[str]:
        """The workloads and mixes that have cells, sorted."""
        return sorted({cell.workload for cell in self.cells})

    def _run(self) -> list[str]:
        """The workloads that tenants run, sorted."""
        return sorted({name for cell in self.cells for name in self.components(cell)})

    def calibrated(self, cell: Cell | None = None) -> list[str]:
        """Those of them, or of a cell's, that need a calibration: a program that runs to its end has nothing to take.

        Neither its output nor a capacity is known.
        """
        names = self._run() if cell is None else self.components(cell)
        return [name for name in names if not runs_to_its_end(self._entry(name))]

    def node_options(self) -> NodeOptions:
        """The config section of the node; in a cluster also the study's accesses, and numbers of tenants by mechanism.

        The numbers are of the device plugin, whose settings depend on them.
        """
        if self.node_kind != "kubernetes":
            return self.config[self.node_kind]
        tenants: dict[str, set[int]] = {}
        strategies = [(self.strategies[cell.strategy], cell.replicas) for cell in self.cells]
        for strategy, replicas in strategies:
            if strategy.access == "device-plugin":
                tenants.setdefault(strategy.mechanisms[-1], set()).add(replicas)
        used = [self.strategies["exclusive"], *(strategy for strategy, _ in strategies)]
        return {
            **self.config["kubernetes"],
            "accesses": sorted({str(strategy.access) for strategy in used}),
            "tenants": {mechanism: sorted(sizes) for mechanism, sizes in tenants.items()},
            "has_pod_monitor": prometheus_options.has_pod_monitor(self.config),
        }

    def _node(self) -> NodeSpec:
        options: Mapping[str, object] = {k: v for k, v in self.config[self.node_kind].items() if k != "devices"}
        if self.node_kind == "simulated":
            options = {**options, "seed": self.config["seed"]}
        if self.node_kind == "nvidia":
            # Paths and indices differ between hosts; the record shows which GPU and interpreter they were.
            options = {"may_change": options["may_change"]}
        if self.node_kind == "kubernetes":
            # As do cluster and node, and the way to reach them.
            later = [key for key in ("client_image", "pod") if options[key]]
            options = {key: options[key] for key in ("device", "image", "python", "resources", *later)}
        return {"kind": self.node_kind, "options": options}

    def _strategy(self, name: str, replicas: int) -> StrategySpec:
        strategy = self.strategies[name]
        spec: StrategySpec = {
            "name": name,
            "mechanisms": list(strategy.mechanisms),
            "profile": strategy.profile,
            "instances": strategy.instances,
            "limits": strategy.limits(replicas),
        }
        # Left out where they are not set, so that specs from before these keys stay as they are.
        later = {key: getattr(strategy, key) for key in ("profiles", "access", "pod", "interval", "claim_per", "gpus")}
        return cast(StrategySpec, {**spec, **{key: value for key, value in later.items() if value is not None}})

    def _entry(self, name: str) -> WorkloadEntry:
        catalogue = self.config["workload_catalogue"]
        kind = faults.kind_of(name)
        return catalogue[name] if kind is None else faults.aggressor_entry(kind, next(iter(catalogue.values())))

    def _workload(self, name: str) -> WorkloadSpec:
        entry = self._entry(name)
        spec: WorkloadSpec = {
            "name": name,
            "kind": entry["kind"],
            "params": entry["params"],
            # No other cell is stale for it.
            "load": cast(LoadSpec, {k: v for k, v in entry["load"].items() if k != "concurrency" or v is not None}),
            "output_tolerance": entry["output_tolerance"],
        }
        if self.node_kind != "simulated" and programs.is_program(entry):
            return cast(WorkloadSpec, {**spec, **programs.spec_of(entry)})
        if entry["job"]:
            spec["job"] = entry["job"]
        if self.node_kind == "simulated":
            assert entry["simulated"] is not None
            spec["simulated"] = entry["simulated"]
        else:
            assert entry["module"] is not None
            spec["module"] = entry["module"]
        return spec

    def _workload_of(self, cell: Cell) -> WorkloadSpec | MixSpec:
        if not self.is_mix(cell.workload):
            return self._workload(cell.workload)
        tenants = [self._workload(name) for name in self.tenants_of(cell)]
        if cell.workload in self.interference:
            # Pairs are measured over one window: a job that ends would leave its neighbour alone.
            tenants = [_as_loop(tenant) for tenant in tenants]
        return {"name": cell.workload, "tenants": tenants}

    def _window_seconds(self, workload: str) -> float:
        """Length of the window; of jobs, their deadline."""
        if not self.is_job(workload):
            return self.config["window_seconds"]
        jobs = (self._entry(name)["job"] for name in self._cycle(workload))
        return max(job["max_seconds"] for job in jobs if job is not None)

    def _environment(self) -> str:
        """What tenants may import, as far as a cell depends on it; an interpreter of the user's own has what it has."""
        if self.node_kind == "nvidia" and has_own_python(self.config["nvidia"]["python"]):
            return "own interpreter"
        if self.node_kind == "kubernetes":
            return f"image {self.config['kubernetes']['image']}"
        return tenant_environment("tenant-gpu.txt" if self.node_kind == "nvidia" else "tenant-cpu.txt")

    def spec_of(self, cell: Cell) -> Spec:
        """Exactly what the cell's measurement depends on."""
        spec: Spec = {
            "strategy": self._strategy(cell.strategy, cell.replicas),
            "workload": self._workload_of(cell),
            "replicas": cell.replicas,
            "repeat": cell.repeat,
            "window_seconds": self._window_seconds(cell.workload),
            "node": self._node(),
        }
        if (kind := faults.kind_of(cell.workload)) is not None:
            spec["fault"] = {"kind": kind, "at_fraction": faults.AT_FRACTION, "aggressor": cell.replicas - 1}
        if self.node_kind != "simulated":
            tenants = tenant_workloads(spec)
            if not all(map(runs_to_its_end, tenants)):
                spec["warmup"] = self.config["warmup"]
            spec["environment"] = self._environment()
            if any(tenant["kind"] == "http" for tenant in tenants):
                spec["environment"] += f" client {client_environment()}"
        if (watch := prometheus_options.in_spec(self.config, spec)) is not None:
            spec["prometheus"] = watch
        return spec

    def spec(self, cell: Cell) -> str:
        """Canonical text of `spec_of(cell)`: a cell is stale when it changes."""
        return canonical(self.spec_of(cell))

    def code(self, workload: str) -> str:
        """Labelled fingerprint of the code that measures this workload, or all of a mix, on this kind of node."""
        entries = [self._entry(name) for name in self._cycle(workload)]
        if self.node_kind == "simulated":
            return f"measuring code {fingerprint.of_cell(self.node_kind)}"
        modules = [module for entry in entries if (module := programs.module(entry)) is not None]
        has_programs, is_watched = any(map(programs.is_program, entries)), prometheus_options.is_on(self.config)
        code = fingerprint.of_cell(self.node_kind, *modules, has_programs=has_programs, is_watched=is_watched)
        return f"measuring code {code}"

    def node_code(self) -> str:
        """Labelled fingerprint of the code that sets up this kind of node."""
        return f"node code {fingerprint.of_node(self.node_kind)}"

    def calibration_cell(self, workload: str) -> Cell:
        """The exclusive cell that calibration runs in place of a repeat (its number is 0)."""
        return Cell("exclusive", workload, 1, 0)

    def under(self, spec: str, strategy: str) -> str:
        """A spec of one tenant, under another strategy of the study."""
        return canonical({**parse(spec), "strategy": self._strategy(strategy, 1)})

    def calibration_spec(self, workload: str) -> str:
        """Canonical text of what the workload's calibration depends on: closed load, exclusive device."""
        spec = self.spec_of(self.calibration_cell(workload))
        alone = self._workload(workload)
        load: LoadSpec = {"arrival": "closed"}
        if "concurrency" in alone["load"]:
            load["concurrency"] = alone["load"]["concurrency"]
        spec["workload"] = {**_as_loop(alone), "load": load}
        # The study's window has no effect on jobs.
        entry = self.config["workload_catalogue"][workload]
        seconds = max(entry["min_window_seconds"], 1) if entry["kind"] == "job" else self.config["window_seconds"]
        spec["window_seconds"] = min(seconds, CALIBRATION_SECONDS)
        return canonical(spec)

    def node_spec(self) -> str:
        """Canonical text of what the node's facts depend on."""
        return canonical(self._node())

    def strategy_spec(self, strategy: str) -> str:
        """Canonical text of what setting up the strategy depends on, for any number of replicas."""
        entry = self.config["strategy_catalogue"][strategy]
        kept = {key: value for key, value in entry.items() if key not in ("description", "replicas")}
        return canonical({"strategy": kept, "node": self._node()})
