"""Coverage of the confidence intervals: `python benchmarks/truth.py`, some minutes.

Thousands of small studies are drawn from the simulated node's models, each with its own parameters and noise: spread
between cells and iterations, autocorrelation, drift, stragglers. They go through the same reduction and tables as
measured records, without Snakemake, under several conditions. The result is how often an interval covers the planted
value.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from scipy import stats

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Grant, Settings
from sharebench.measure.nodes.simulated.load import iteration_seconds
from sharebench.measure.nodes.simulated.tenants import SimulatedTenants
from sharebench.model.config_nodes import Noise, SimulatedOptions
from sharebench.model.records.types import Record
from sharebench.model.spec import NodeSpec, Spec
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Model, Workload
from sharebench.read.cells.multiprogram import group_metrics
from sharebench.read.cells.rows import MeasuredCell, reduce_record
from sharebench.read.cells.slowdown import Baseline, group_ratio, group_slowdown
from sharebench.read.statistics.intervals import Place
from sharebench.read.tables.devices import pair_by_device
from sharebench.read.tables.summary import summary_table
from sharebench.study.cells import Cell
from tenant.contract import TenantReport

STUDIES = 2000
REPEATS = 5
ITERATIONS = 40
"""Iterations of a tenant in the slowest cell; the fastest has about four times as many."""
REPLICAS = {"exclusive": (1,), "exclusive-again": (1,), "time-slicing": (2, 4), "mps": (2, 4), "mig": (1, 4)}
POINTS = tuple((strategy, count) for strategy, counts in REPLICAS.items() for count in counts)
MECHANISMS = {"exclusive-again": "exclusive"}
SILENT: Noise = {
    "cell_cv": 0.0,
    "iteration_cv": 0.0,
    "autocorrelation": 0.0,
    "drift": 0.0,
    "straggler_ratio": 0.0,
    "straggler_factor": 5.0,
}


@dataclass(frozen=True)
class Condition:
    """Scatter of a study's cells in addition to the simulated node's noise; factors are lognormal."""

    repeats: int = REPEATS
    two_states: float = 1.0
    """The latency of the baseline and its A/A control is × this factor in a random half of their cells."""
    block_cv: float = 0.0
    """Scatter between blocks, whose cells share a factor."""
    baseline_cv: float = 0.0
    """Additional scatter of the baseline and its A/A control."""
    devices: tuple[int, ...] = (REPEATS,)
    """Number of repeats on each device."""
    device_cv: float = 0.0
    """Scatter between devices, whose cells share a factor, and again between strategies on a device."""
    hosts: tuple[int, ...] = ()
    """Number of devices on each host."""
    host_cv: float = 0.0
    """Scatter between hosts, whose cells share a factor."""
    recorded: Literal["machine", "device", "nothing"] = "machine"
    """What of a cell's place the records have: device and machine, the device as in old records, or neither."""

    def device(self, repeat: int) -> int:
        """Number of the device of a repeat, from 0."""
        return next(number for number in range(len(self.devices)) if repeat <= sum(self.devices[: number + 1]))

    def host(self, repeat: int) -> int:
        """Number of the host of a repeat, from 0."""
        device = self.device(repeat)
        return next((number for number in range(len(self.hosts)) if device < sum(self.hosts[: number + 1])), 0)

    def place(self, repeat: int) -> Place:
        """What the records have of a repeat's place."""
        device = "device" if self.recorded == "nothing" else f"device {self.device(repeat)}"
        return Place(device, f"host {self.host(repeat)}" if self.recorded == "machine" else None)

    def factor(self, seed: int, strategy: str, replicas: int, repeat: int) -> float:
        """Factor by which the cell's iterations are longer than planted."""
        block = random.Random(f"{seed}/{repeat}").gauss(0, self.block_cv)
        block += random.Random(f"{seed}/host {self.host(repeat)}").gauss(0, self.host_cv)
        if self.device_cv:
            device, name = self.device(repeat), strategy.removesuffix("-again")
            block += random.Random(f"{seed}/device {device}").gauss(0, self.device_cv)
            block += random.Random(f"{seed}/device {device}/{name}").gauss(0, self.device_cv)
        if not strategy.startswith("exclusive"):
            return math.exp(block)
        own = random.Random(f"{seed}/{strategy}/{replicas}/{repeat}")
        state = self.two_states if own.random() < 0.5 else 1.0
        return state * math.exp(block + own.gauss(0, self.baseline_cv))

    def mean(self, strategy: str) -> float:
        """Geometric mean of a strategy's factors."""
        return math.sqrt(self.two_states) if strategy.startswith("exclusive") else 1.0


AS_PLANTED = Condition()
CONDITIONS = {
    "as planted, 5 repeats": AS_PLANTED,
    "3 repeats": Condition(repeats=3),
    "blocks differ by 10 %, 3 repeats": Condition(repeats=3, block_cv=0.1),
    "baseline scatters by 5 % more, 3 repeats": Condition(repeats=3, baseline_cv=0.05),
    "baseline of two states, x 1.5, 3 repeats": Condition(repeats=3, two_states=1.5),
    "baseline of two states, x 1.5, 5 repeats": Condition(two_states=1.5),
}
DEVICE_CV = 0.03
"""Scatter between devices, as large as between cells of the noisiest studies."""
ON_DEVICES = {
    "5 devices": Condition(devices=(1, 1, 1, 1, 1), device_cv=DEVICE_CV),
    "2, 2, 1": Condition(devices=(2, 2, 1), device_cv=DEVICE_CV),
    "3, 1, 1": Condition(devices=(3, 1, 1), device_cv=DEVICE_CV),
    "3, 2": Condition(devices=(3, 2), device_cv=DEVICE_CV),
    "2, 2, 1 that are alike": Condition(devices=(2, 2, 1)),
    "2, 2, 1 taken for one": Condition(devices=(2, 2, 1), device_cv=DEVICE_CV, recorded="nothing"),
}
TWO_ON_EACH = Condition(repeats=6, devices=(1,) * 6, device_cv=0.02, hosts=(2, 2, 2), host_cv=0.1)
ON_HOSTS = {
    "2, 2, 2 devices on hosts that differ by 10 %": TWO_ON_EACH,
    "on hosts that are alike": replace(TWO_ON_EACH, host_cv=0.0),
    "by 10 %, hosts not recorded": replace(TWO_ON_EACH, recorded="device"),
}


@dataclass(frozen=True)
class Planted:
    """Planted parameters of a study: the device with its noise, the work of an iteration, and the condition."""

    seed: int
    node: SimulatedOptions
    work: Model
    condition: Condition = AS_PLANTED

    def mean_seconds(self, strategy: str, replicas: int) -> float:
        """Expected mean latency of a cell.

        Under a closed load with a drift d over the window W, n = ∫ dt / (m (1 + d (t/W - 1/2))) iterations finish, so
        that their mean is W / n = m d / ln((1 + d/2) / (1 - d/2)).
        """
        active = 1 if strategy == "mig" else replicas
        return (
            iteration_seconds(_strategy(strategy), active, self.node, self.work)
            * self.mean_factor
            * self.condition.mean(strategy)
        )

    @property
    def mean_factor(self) -> float:
        """Factor by which drift and stragglers lengthen every mean."""
        noise, drift = self.node["noise"], self.node["noise"]["drift"]
        drift_factor = drift / math.log((1 + drift / 2) / (1 - drift / 2)) if drift else 1.0
        return float(drift_factor * (1 + noise["straggler_ratio"] * (noise["straggler_factor"] - 1)))


def device(time_slicing_overhead: float, noise: Noise) -> SimulatedOptions:
    """An A100."""
    return {
        "devices": 1,
        "product": "A100",
        "sms": 108,
        "memory_gib": 80,
        "mig_slices": 7,
        "mig_slice_sms": 14,
        "time_slicing_overhead": time_slicing_overhead,
        "noise": noise,
    }


def planted(seed: int) -> Planted:
    """A study of an A100 with all kinds of noise and a workload, drawn from the seed."""
    draw = random.Random(seed)
    noise: Noise = {
        **SILENT,
        "cell_cv": draw.uniform(0.005, 0.03),
        "iteration_cv": draw.uniform(0.02, 0.3),
        "autocorrelation": draw.uniform(0, 0.8),
        "drift": draw.uniform(-0.1, 0.1),
        "straggler_ratio": draw.uniform(0, 0.01),
    }
    a100 = device(draw.uniform(0.02, 0.2), noise)
    work = Model(serial_seconds=draw.uniform(0.01, 0.06), parallel_sm_seconds=draw.uniform(2.0, 6.0))
    return Planted(seed, a100, work)


def planted_difference(seed: int, difference: float, paired_cv: float) -> Planted:
    """A study in which time-slicing takes longer than MPS by `difference`, and pairs scatter by `paired_cv`."""
    noise: Noise = {**SILENT, "cell_cv": paired_cv / math.sqrt(2), "iteration_cv": 0.001}
    # Without a serial part, MPS divides the device as time-slicing does, but without its overhead.
    return Planted(seed, device(difference, noise), Model(parallel_sm_seconds=4.0))


def _strategy(name: str) -> Strategy:
    mechanism = MECHANISMS.get(name, name)
    return Strategy.model_validate(
        {"name": name, "mechanism": mechanism, "profile": "1g" if mechanism == "mig" else None}
    )


def simulate(study: Planted, points: Sequence[tuple[str, int]], repeats: int) -> list[MeasuredCell]:
    """Simulate the cells of a study at these points, and reduce them as measured records are."""
    window_ns = int(ITERATIONS * max(study.mean_seconds(*point) for point in points) * NS)
    cells = []
    for repeat in range(1, repeats + 1):
        for strategy, replicas in points:
            factor = study.condition.factor(study.seed, strategy, replicas, repeat)
            spec = Spec(
                strategy=_strategy(strategy),
                workload=Workload(
                    name="planted",
                    output_tolerance=0.0,
                    simulated=Model(
                        serial_seconds=factor * study.work.serial_seconds,
                        parallel_sm_seconds=factor * study.work.parallel_sm_seconds,
                    ),
                ),
                replicas=replicas,
                repeat=repeat,
                window_seconds=window_ns / NS,
                node=NodeSpec(kind="simulated", options={"seed": study.seed}),
            )
            settings: Settings = {
                "timeouts": {"start_seconds": 1.0, "record_seconds": 1.0},
                "cell_folder": "",
                "loads": [{"arrival": "closed", "seed": 0, "before": 0}] * replicas,
            }
            tenants = SimulatedTenants(spec, settings, study.node, lambda _: None)
            tenants.start([Grant(index, index if strategy == "mig" else 0) for index in range(replicas)])
            tenants.window = (0, window_ns)
            place = study.condition.place(repeat)
            cells.append(reduce_record(_record(spec, place, tenants.measured(), window_ns / NS)))
    return pair_by_device(cells, "exclusive")


def _record(spec: Spec, place: Place, tenants: Sequence[TenantReport], window_seconds: float) -> Record:
    """The parts of a record that the tables need."""
    cell = {"strategy": spec.strategy.name, "workload": "planted", "replicas": spec.replicas}
    partial_record = {
        "spec": spec.text,
        "cell": cell | {"repeat": spec.repeat, "block": spec.repeat},
        "status": "ok",
        "reason": None,
        "gates": [],
        "provenance": {"run_id": "truth"},
        "node": {"device": place.device, "is_gpu": False, "memory_bytes": None},
        "host": {"machine": place.machine, "boot": None, "cpu": None, "topology": None},
        "limits": {"memory_percent": None},
        "calibration": None,
        "telemetry": None,
        "window": {"start_monotonic_seconds": 0.0, "end_monotonic_seconds": window_seconds},
        "tenants": [{**tenant, "status": "ok"} for tenant in tenants],
    }
    return cast(Record, partial_record)


@dataclass(frozen=True)
class Interval:
    """An interval of a study and the planted value that it should cover."""

    quantity: str
    point: str
    """Strategy and number of tenants."""
    low: float
    high: float
    truth: float

    @property
    def covers(self) -> bool:
        return self.low <= self.truth <= self.high


def intervals(study: Planted, cells: Sequence[MeasuredCell]) -> Iterator[Interval]:
    """The intervals in the tables of the study, each with its planted value. Add new estimates here."""
    expected = [(Cell(cell.strategy, "planted", cell.replicas, cell.repeat), "planted") for cell in cells]
    table = summary_table(cells, expected, Baseline(cells, "exclusive")).set_index(["strategy", "replicas"])
    alone = study.mean_seconds("exclusive", 1)
    for strategy, replicas in POINTS:
        row: Any = table.loc[strategy, replicas]
        mean = study.mean_seconds(strategy, replicas)
        truths = {"latency_mean_seconds": mean}
        if strategy != "exclusive":
            truths |= {"slowdown": mean / alone}
        if replicas > 1:
            truths |= {"stp": replicas * alone / mean}
        if (strategy, replicas) == ("mig", 4):
            truths |= {"isolation_index": 1.0}
        for metric, truth in truths.items():
            yield Interval(metric, f"{strategy} × {replicas}", row[f"{metric}_low"], row[f"{metric}_high"], truth)
    over, under = (
        [cell for cell in cells if (cell.strategy, cell.replicas) == (s, 4)] for s in ("time-slicing", "mps")
    )
    ratio = group_ratio(over, under)
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    truth = study.mean_seconds("time-slicing", 4) / study.mean_seconds("mps", 4)
    yield Interval("time-slicing/mps", "× 4", ratio.low, ratio.high, truth)
    if len(study.condition.devices) == 1:
        yield from _unpaired(cells, study.mean_seconds("mps", 4) / alone)
    again: Any = table.loc["exclusive-again", 1]
    yield Interval("A/A", "× 1", again["slowdown_low"], again["slowdown_high"], 1.0)


def _unpaired(cells: Sequence[MeasuredCell], slowdown: float) -> Iterator[Interval]:
    """Intervals of four tenants under MPS, as if another run had measured the baseline: Welch's, and STP's."""
    runs = [replace(cell, pairing_scope=cell.strategy) for cell in cells]
    baseline = Baseline(runs, "exclusive")
    shared = [cell for cell in runs if (cell.strategy, cell.replicas) == ("mps", 4)]
    truths = {"slowdown": slowdown, "stp": 4 / slowdown}
    estimates = group_metrics(shared, baseline) | {"slowdown": group_slowdown(shared, baseline)[0]}
    for metric, truth in truths.items():
        estimate = estimates[metric]
        assert estimate is not None and estimate.low is not None and estimate.high is not None
        yield Interval(f"{metric}, unpaired", "mps × 4", estimate.low, estimate.high, truth)


def count_covered(seed: int, condition: Condition = AS_PLANTED) -> Counter[tuple[str, str, bool]]:
    """Count the study's intervals by quantity, point, and whether they cover the planted value."""
    study = replace(planted(seed), condition=condition)
    cells = simulate(study, POINTS, condition.repeats)
    return Counter((interval.quantity, interval.point, interval.covers) for interval in intervals(study, cells))


def is_difference_found(seed: int) -> bool:
    """Whether a difference of 3 % is found (p < 0.05) if pairs scatter by 1.5 %."""
    points = (("time-slicing", 2), ("mps", 2))
    cells = simulate(planted_difference(seed, 0.03, 0.015), points, REPEATS)
    over, under = ([cell for cell in cells if cell.strategy == name] for name, _ in points)
    ratio = group_ratio(over, under)
    assert ratio is not None and ratio.probability is not None
    return ratio.probability < 0.05 and ratio.value > 1


def power(difference: float, paired_cv: float, repeats: int) -> float:
    """Theoretical power of Student's paired test, from the noncentral t distribution."""
    shift = math.log1p(difference) / paired_cv * math.sqrt(repeats)
    critical = stats.t.ppf(0.975, repeats - 1)
    return float(stats.nct.sf(critical, repeats - 1, shift))


def main() -> None:
    """Draw the studies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=STUDIES, help=f"how many (default {STUDIES})")
    studies = parser.parse_args().studies
    began = time.monotonic()
    shares: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor() as pool:
        for name, condition in (CONDITIONS | ON_DEVICES | ON_HOSTS).items():
            draws = pool.map(partial(count_covered, condition=condition), range(studies), chunksize=10)
            shares[name] = by_quantity(sum(draws, Counter[tuple[str, str, bool]]()))
        power_found = sum(pool.map(is_difference_found, range(studies), chunksize=10))
    # Only the time depends on the machine.
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"{studies} studies of each condition on {machine}, {time.monotonic() - began:.0f} s\n")
    for conditions in (CONDITIONS, ON_DEVICES, ON_HOSTS):
        print("| 95 % intervals that cover |", " | ".join(conditions), "|")
        print("|---|" + "---|" * len(conditions))
        columns = [shares[name] for name in conditions]
        for quantity in columns[0]:
            cells = (f"{100 * column[quantity]:.1f} %" if quantity in column else "" for column in columns)
            print(f"| `{quantity}` |", " | ".join(cells), "|")
        print()
    theory = power(0.03, 0.015, REPEATS)
    print(f"3 % found, paired noise 1.5 %: {100 * power_found / studies:.1f} %, theory {100 * theory:.1f} %")


def by_quantity(counts: Counter[tuple[str, str, bool]]) -> dict[str, float]:
    """Share of intervals that cover the planted value, over all points."""
    hits, totals = Counter[str](), Counter[str]()
    for (quantity, _, is_hit), count in sorted(counts.items()):
        hits[quantity] += count * is_hit
        totals[quantity] += count
    return {quantity: hits[quantity] / total for quantity, total in totals.items()}


if __name__ == "__main__":
    main()
