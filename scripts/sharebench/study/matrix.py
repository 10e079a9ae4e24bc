"""The cells of a config, and the order in which they run."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations_with_replacement, product
from pathlib import Path

from sharebench.model import faults
from sharebench.model.capabilities import NODE_KINDS, resolve_node_kind
from sharebench.model.strategies import control_name, node_strategies
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import from_json, is_job
from sharebench.study.cells import Cell, WholePlot, pair_name, without_excluded


class Matrix:
    """The cells of one normalised config (`sharebench.model.config.load.load`)."""

    def __init__(self, stored: Mapping[str, object]) -> None:
        self.config = config = from_json(stored)
        self.node_kind = resolve_node_kind(config["node"])
        self.strategies: dict[str, Strategy] = node_strategies(config, self.node_kind)
        self.baseline: str | None = None if config["baseline"] == "none" else config["baseline"]
        order = config["order"]
        self.order = (
            order if order != "auto" else ("strategy" if NODE_KINDS[self.node_kind].is_slow_to_switch else "blocks")
        )

    @cached_property
    def interference(self) -> dict[str, tuple[str, str]]:
        """The pairs of workloads in `interference` by name; its order does not matter."""
        workloads = sorted(self.config["interference"])
        return {pair_name(*pair): pair for pair in combinations_with_replacement(workloads, 2)}

    @cached_property
    def faults(self) -> dict[str, tuple[str, str]]:
        """The workloads of the victim and of the aggressor, the last tenant, by the workload name of `faults`."""
        pairs = product(sorted(self.config["faults"]), faults.victim_workloads(self.config))
        return {faults.workload_name(kind, victim): (victim, faults.PREFIX + kind) for kind, victim in pairs}

    @cached_property
    def _named_mixes(self) -> dict[str, tuple[str, str]]:
        return self.interference | self.faults

    def is_mix(self, workload: str) -> bool:
        """Whether the name stands for a workload of each tenant instead of one for all."""
        return workload in self._named_mixes or self.config["workload_catalogue"][workload].tenants is not None

    def sweep_name(self, workload: str) -> str:
        """The name of the sweep that the workload is a load of, or else its own."""
        entry = self.config["workload_catalogue"].get(workload)
        return entry.sweep.of if entry and entry.sweep else workload

    def start_of(self, cell: Cell) -> Cell:
        """The cell with the name of its sweep, if any: the same for all cells with one start of the tenants."""
        return replace(cell, workload=self.sweep_name(cell.workload))

    def _loads_of_start(self, start: Cell) -> list[Cell]:
        """A cell for each load of the sweep, in the random order in which they run; else the cell itself."""
        names = sorted(name for name in self.config["workload_catalogue"] if self.sweep_name(name) == start.workload)
        random.Random(f"{self.config['seed']}/{start.folder}").shuffle(names)
        return [replace(start, workload=name) for name in names] or [start]

    def in_order(self, cells: Iterable[Cell]) -> list[Cell]:
        """These cells with one start in the order in which they run."""
        chosen = set(cells)
        return [cell for cell in self._loads_of_start(self.start_of(next(iter(chosen)))) if cell in chosen]

    def cells_of_start(self, cell: Cell, results: Path) -> list[Cell]:
        """The cells that one job measures together, in order: all loads of a sweep that the study or `results` has.

        Thus a run for some of the loads does not re-measure those that were measured with others.
        """
        loads = self._loads_of_start(self.start_of(cell))
        return [each for each in loads if each in self._ranks or (results / each.raw).exists()]

    def sweep_jobs(self, results: Path) -> dict[tuple[str, ...], list[Cell]]:
        """The starts (`start_of`) of sweeps, by their sorted loads."""
        jobs: dict[tuple[str, ...], list[Cell]] = {}
        for start in dict.fromkeys(map(self.start_of, self.cells)):
            if start not in self._ranks:
                loads = tuple(sorted(cell.workload for cell in self.cells_of_start(start, results)))
                jobs.setdefault(loads, []).append(start)
        return jobs

    def _workload_cycle(self, workload: str) -> Sequence[str]:
        """The workloads of the tenants from the first on, which repeat for more tenants."""
        return self._named_mixes.get(workload) or self.config["workload_catalogue"][workload].tenants or [workload]

    def workloads_of(self, cell: Cell) -> list[str]:
        """The workload of each tenant of the cell, in order."""
        cycle = self._workload_cycle(cell.workload)
        return [cycle[index % len(cycle)] for index in range(cell.replicas)]

    def components(self, cell: Cell) -> list[str]:
        """The workloads of the cell's tenants without the aggressor of a fault, each once."""
        cycle = self._workload_cycle(cell.workload)[: cell.replicas]
        return list(dict.fromkeys(cycle[:1] if cell.workload in self.faults else cycle))

    def is_job(self, workload: str) -> bool:
        """Whether all tenants run jobs, so that the cells of the workload end with the last job."""
        return workload not in self._named_mixes and is_job(self.config, workload)

    def is_compared(self, cell: Cell) -> bool:
        """Whether the cell is in the summary, which excludes cells with a fault and queues.

        Iterations in a queue run as if alone, so that a queue would win every comparison.
        """
        return cell.workload not in self.faults and not self.strategies[cell.strategy].is_queue

    def _tenant_counts(self, strategy: str, workload: str, replicas: Sequence[int]) -> list[int]:
        """Possible numbers of tenants: a pair has two, a mix at least two, and only jobs can run in a queue."""
        fixed = self.strategies[strategy].own_replicas
        if self.strategies[strategy].is_queue and not self.is_job(workload):
            return []
        if workload in self._named_mixes:
            return [2] if fixed is None or 2 in fixed else []
        return [n for n in fixed or replicas if n > 1 or not self.is_mix(workload)]

    def _expand(self, strategies: Iterable[str], workloads: Sequence[str], replicas: Sequence[int]) -> list[Cell]:
        return [
            Cell(strategy, workload, n, repeat)
            for strategy, workload in product(strategies, workloads)
            for n, repeat in product(self._tenant_counts(strategy, workload, replicas), self._repeats(workload))
        ]

    def _repeats(self, workload: str) -> range:
        return range(1, self.config["fault_repeats" if workload in self.faults else "repeats"] + 1)

    @cached_property
    def requested(self) -> list[Cell]:
        """The cells that the config names and does not exclude."""
        workloads = [*self.config["workloads"], *self.interference, *self.faults]
        cells = self._expand(self.config["strategies"], workloads, self.config["replicas"])
        return without_excluded(cells, self.config["exclude"])

    def _baseline_cells(self) -> list[Cell]:
        """The baseline cells of each workload, with the A/A control where the config and the catalogue have it.

        Workloads only of faults or queues are in no comparison, and have no A/A control.
        """
        if self.baseline is None:
            return []
        compared_cells = {self.baseline: self.requested}
        if self.config["null_cells"] and control_name(self.baseline) in self.strategies:
            compared_cells[control_name(self.baseline)] = [cell for cell in self.requested if self.is_compared(cell)]
        return [
            baseline
            for strategy, cells in compared_cells.items()
            for baseline in self._expand([strategy], sorted({name for c in cells for name in self.components(c)}), [1])
            if baseline.replicas == 1
        ]

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells including the baseline's, in the order in which they run."""
        cells = {*self.requested, *without_excluded(self._baseline_cells(), self.config["exclude"])}
        plots: dict[WholePlot, dict[Cell, None]] = {}
        for cell in sorted(cells):
            plots.setdefault(self.plot(cell), {})[self.start_of(cell)] = None
        ordered = []
        for block in sorted({plot.block for plot in plots}):
            generator = random.Random(f"{self.config['seed']}/{block}")
            block_plots = [plot for plot in plots if plot.block == block]
            generator.shuffle(block_plots)
            if self.order == "strategy":
                if block == min(plot.block for plot in plots):
                    # Calibration has just measured the exclusive device, so starting there saves a switch.
                    block_plots.sort(key=lambda plot: plot.strategy != self.baseline)
                # The job that configures a strategy runs at the rank of its first cell and sets the state of its first
                # feasible cell. A cell of another strategy between these two would cost another switch.
                strategies = list(dict.fromkeys(plot.strategy for plot in block_plots))
                block_plots.sort(key=lambda plot: strategies.index(plot.strategy))
            for plot in block_plots:
                starts = list(plots[plot])
                generator.shuffle(starts)
                ordered += [cell for start in starts for cell in self._loads_of_start(start) if cell in cells]
        return ordered

    def table_cells(self) -> list[Cell]:
        """All cells in the order of the tables: by workload, strategy and replicas."""
        config, strategies = self.config, list(self.strategies)
        configured = [*config["workloads"], *config["interference"]]
        workloads = [*configured, *self.tenant_workloads(), *self.interference, *self.faults]
        return sorted(
            self.cells, key=lambda c: (workloads.index(c.workload), strategies.index(c.strategy), c.replicas, c.repeat)
        )

    @cached_property
    def _ranks(self) -> dict[Cell, int]:
        return {cell: len(self.cells) - position for position, cell in enumerate(self.cells)}

    def rank(self, cell: Cell) -> int:
        """Unique priority of the cell, from `len(cells)` for the first down to 1; 0 for a cell of another study."""
        return self._ranks.get(cell, 0)

    def strategy_rank(self, strategy: str) -> int:
        """Priority of the strategy's first cell."""
        return max((rank for cell, rank in self._ranks.items() if cell.strategy == strategy), default=0)

    def block(self, cell: Cell) -> int:
        """Block of the cell: its repeat under `order: blocks`, 0 under `order: strategy`."""
        return cell.repeat if self.order == "blocks" else 0

    def plot(self, cell: Cell) -> WholePlot:
        """The node state that the cell needs, and the block in which it is set up."""
        depends_on_replicas = self.strategies[cell.strategy].depends_on_replicas
        return WholePlot(cell.strategy, cell.replicas if depends_on_replicas else None, self.block(cell))

    def strategy_workload_pairs(self) -> list[tuple[str, str]]:
        """Sorted (strategy, workload) pairs that have cells."""
        return sorted({(cell.strategy, cell.workload) for cell in self.cells})

    def workloads(self) -> list[str]:
        """Sorted workloads and mixes that have cells."""
        return sorted({cell.workload for cell in self.cells})

    def tenant_workloads(self) -> list[str]:
        """Sorted workloads that tenants run."""
        return sorted({name for cell in self.cells for name in self.components(cell)})
