"""A study: its cells, and the spec and code that each cell depends on."""

import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sharebench.core.files import REPOSITORY
from sharebench.model import faults
from sharebench.model.config.files import is_file
from sharebench.model.config_nodes import NodeOptions
from sharebench.model.gpu_python import has_own_python
from sharebench.model.prometheus_options import has_pod_monitor, has_prometheus, watch_spec
from sharebench.model.spec import FaultSpec, NodeSpec, SetupSpec, Spec, WarmupSpec
from sharebench.model.traffic import Load
from sharebench.model.workload import Mix, Workload
from sharebench.study import fingerprint
from sharebench.study.cells import Cell
from sharebench.study.matrix import Matrix

# A longer run would not improve capacity and output.
CALIBRATION_SECONDS = 10
ENVS = REPOSITORY / "envs"


@lru_cache(maxsize=3)
def tenant_environment(lock: str) -> str:
    """The packages that a tenant may import: the pins of a lock in envs/, without hashes and comments."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+==[^\s;\\]+)", (ENVS / lock).read_text(), flags=re.MULTILINE)
    return " ".join(sorted(pins))


def client_environment() -> str:
    """The pin of the HTTP library of the client, which runs in the driver's environment."""
    return next(pin for pin in tenant_environment("sharebench.txt").split() if pin.startswith("aiohttp=="))


@cache
def _digest(path: Path, _changed_ns: int) -> str:
    """Digest of the file with that modification time, cached because every cell of a study asks for it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _digests(paths: Iterable[str]) -> dict[str, str]:
    """The digests of those of the files that exist."""
    files = {path: Path(path) for path in paths if is_file(path)}
    return {path: _digest(file.resolve(), file.stat().st_mtime_ns) for path, file in files.items()}


class Study(Matrix):
    """The matrix of one normalised config, with the spec and the code of each cell as text."""

    def calibrated_workloads(self, cell: Cell | None = None) -> list[str]:
        """The workloads of all tenants, or of one cell's, that have a calibration.

        A program that runs to its end has none, since neither its output nor a capacity is known.
        """
        names = self.tenant_workloads() if cell is None else self.components(cell)
        return [name for name in names if not self._entry(name).runs_until_exit]

    def node_options(self) -> NodeOptions:
        """The config section of the node; in a cluster with the facts of the study in ClusterOptions."""
        if self.node_kind != "kubernetes":
            return self.config[self.node_kind]
        tenants: dict[str, set[int]] = {}
        strategies = [(self.strategies[cell.strategy], cell.replicas) for cell in self.cells]
        for strategy, replicas in strategies:
            if strategy.access == "device-plugin":
                tenants.setdefault(strategy.mechanism[-1], set()).add(replicas)
        used = [self.strategies["exclusive"], *(strategy for strategy, _ in strategies)]
        return {
            **self.config["kubernetes"],
            "accesses": sorted({str(strategy.access) for strategy in used}),
            "tenants": {mechanism: sorted(sizes) for mechanism, sizes in tenants.items()},
            "has_pod_monitor": has_pod_monitor(self.config["prometheus"]),
        }

    def node_spec(self) -> NodeSpec:
        """The kind of node, and the options that its facts and all cells depend on."""
        options: dict[str, Any] = {k: v for k, v in self.config[self.node_kind].items() if k != "devices"}
        if self.node_kind == "simulated":
            options = {**options, "seed": self.config["seed"]}
        if self.node_kind == "nvidia":
            # Paths and indices differ between hosts; the record shows the GPU and the interpreter.
            options = {"may_change": options["may_change"]}
        if self.node_kind == "kubernetes":
            # Names of cluster and node, and the way to reach them, differ too.
            optional = [key for key in ("client_image", "pod") if options[key]]
            optional += ["client"] if options["client"] == "service" else []
            options = {key: options[key] for key in ("device", "image", "python", "resources", *optional)}
        return NodeSpec(kind=self.node_kind, options=options)

    def _entry(self, name: str) -> Workload:
        kind = faults.fault_kind(name)
        return self.config["workload_catalogue"][name] if kind is None else faults.aggressor(kind)

    def _workload(self, name: str) -> Workload:
        return self._entry(name).measured(is_simulated=self.node_kind == "simulated")

    def _workload_of(self, cell: Cell) -> Workload | Mix:
        if not self.is_mix(cell.workload):
            return self._workload(cell.workload)
        tenants = [self._workload(name) for name in self.workloads_of(cell)]
        if cell.workload in self.interference:
            # Pairs are measured over one window, in which a job that ends would leave its neighbour alone.
            tenants = [tenant.repeated() for tenant in tenants]
        return Mix(name=cell.workload, tenants=tuple(tenants))

    def _window_seconds(self, workload: str) -> float:
        """Length of the window, or the longest deadline of jobs."""
        if not self.is_job(workload):
            return self.config["window_seconds"]
        jobs = (self._entry(name).job for name in self._workload_cycle(workload))
        return max(job.max_seconds for job in jobs if job is not None)

    def _environment(self) -> str:
        """The tenants' packages, as far as a cell depends on them; those of the user's own interpreter are unknown."""
        if self.node_kind == "nvidia" and has_own_python(self.config["nvidia"]["python"]):
            return "own interpreter"
        if self.node_kind == "kubernetes":
            return f"image {self.config['kubernetes']['image']}"
        return tenant_environment("tenant-gpu.txt" if self.node_kind == "nvidia" else "tenant-cpu.txt")

    def spec(self, cell: Cell) -> Spec:
        """The spec of the cell, whose change makes the cell stale."""
        fault = None
        if (kind := faults.fault_kind(cell.workload)) is not None:
            fault = FaultSpec(kind=kind, at_fraction=faults.AT_FRACTION, aggressor=cell.replicas - 1)
        spec = Spec(
            strategy=self.strategies[cell.strategy].for_tenants(cell.replicas),
            workload=self._workload_of(cell),
            replicas=cell.replicas,
            repeat=cell.repeat,
            window_seconds=self._window_seconds(cell.workload),
            node=self.node_spec(),
            fault=fault,
        )
        parts: dict[str, object] = {"prometheus": watch_spec(self.config["prometheus"], spec)}
        if self.node_kind != "simulated":
            # A data set's config may name any file of this machine.
            if not self.config["from"]:
                parts["files"] = _digests(path for each in spec.workloads for path in each.files())
            if not all(tenant.runs_until_exit for tenant in spec.workloads):
                parts["warmup"] = WarmupSpec(**self.config["warmup"])
            serves = any(tenant.kind == "http" for tenant in spec.workloads)
            parts["environment"] = self._environment() + (f" client {client_environment()}" if serves else "")
        return spec.changed(**parts)

    def start_spec(self, cell: Cell) -> Spec:
        """What all cells with the start of this one depend on.

        A load of a sweep differs from it in its name, which has the value that differs.
        """
        spec, entry = self.spec(cell), self.config["workload_catalogue"].get(cell.workload)
        if entry and (sweep := entry.sweep):
            own = self._workload(cell.workload)
            return spec.changed(workload=own.changed(name=sweep.of, load=own.load.changed(**{sweep.by: None})))
        return spec

    def code(self, workload: str) -> str:
        """Labelled fingerprint of the code that measures this workload or mix on this kind of node."""
        entries = [self._entry(name) for name in self._workload_cycle(workload)]
        if self.node_kind == "simulated":
            return f"measuring code {fingerprint.cell_fingerprint(self.node_kind)}"
        modules = [module for entry in entries if (module := entry.code) is not None]
        needs = {
            "has_programs": any(entry.is_program for entry in entries),
            "is_watched": has_prometheus(self.config["prometheus"]),
        }
        return f"measuring code {fingerprint.cell_fingerprint(self.node_kind, *modules, **needs)}"

    def node_code(self) -> str:
        """Labelled fingerprint of the code that sets up this kind of node."""
        return f"node code {fingerprint.node_fingerprint(self.node_kind)}"

    def calibration_cell(self, workload: str) -> Cell:
        """The exclusive cell that calibration runs, as repeat 0."""
        return Cell("exclusive", workload, 1, 0)

    def calibration_spec(self, workload: str) -> Spec:
        """The spec of the workload's calibration, with closed load on the exclusive device."""
        alone = self._workload(workload).repeated()
        closed = Load().changed(concurrency=alone.load.in_flight, trace=alone.load.trace)
        # Jobs do not use the study's window.
        entry = self.config["workload_catalogue"][workload]
        seconds = max(entry.min_window_seconds, 1) if entry.kind == "job" else self.config["window_seconds"]
        return self.spec(self.calibration_cell(workload)).changed(
            workload=alone.changed(load=closed), window_seconds=min(seconds, CALIBRATION_SECONDS)
        )

    def strategy_spec(self, strategy: str) -> SetupSpec:
        """What the strategy's set-up depends on, for any number of replicas."""
        unused = {"name": "", "description": "", "replicas": None}
        kept = self.config["strategy_catalogue"][strategy].changed(**unused)
        return SetupSpec(strategy=kept, node=self.node_spec())
