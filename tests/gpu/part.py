"""A study of an edition, with its blocks: what is measured as a whole, on one device."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from snakemake.utils import update_config

from sharebench.core.files import REPOSITORY, Refusal, read_json
from sharebench.measure.run import placement
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.records.record import RecordMismatch, check_current
from sharebench.model.records.references import device_identity
from sharebench.model.study_config import uses_several_devices
from sharebench.study.cells import Cell
from sharebench.study.open_study import open_study
from sharebench.study.study import Study

DEFAULTS = [REPOSITORY / "config" / f"{name}.yaml" for name in ("strategies", "workloads", "config")]
RUN_SECONDS = 25
"""Expected time of a run besides its cells: its start, the facts of the devices, the restore."""
CALIBRATION_SECONDS = 10


@dataclass(frozen=True)
class Part:
    """A study of the edition: a line of modules.yaml, with changes to the config in its file."""

    folder: Path
    changes: Mapping[str, Any]
    module: str
    study_name: str
    overhead_seconds: float
    """Expected time for each start of tenants besides the windows."""
    before: Mapping[str, Sequence[str]]
    """By root, fingerprints of earlier code that measured the same, by a deviation of the design."""
    first_seconds: float = 0
    """Expected additional time of the first start on a machine."""
    target: str | None = None
    target_seconds: float = 0
    in_cluster: bool = False
    """Whether it is measured where KUBECONFIG names a cluster on this machine, where no other part is."""

    @property
    def file(self) -> Path:
        return self.folder / f"{self.study_name}.yaml"

    @cached_property
    def study(self) -> Study:
        config: dict[str, Any] = {}
        for path in (*DEFAULTS, self.file):
            update_config(config, yaml.safe_load(path.read_text(encoding="utf-8")))
        update_config(config, dict(self.changes))
        return open_study(config)

    @property
    def earlier_codes(self) -> dict[str, Sequence[str]]:
        """What `before` has, by workload of this study."""
        place = f"{self.study_name}/"
        return {root.removeprefix(place): codes for root, codes in self.before.items() if root.startswith(place)}

    @property
    def is_possible(self) -> bool:
        """Whether it is measured here: next to a cluster, which KUBECONFIG names, only what needs one."""
        return self.in_cluster == bool(os.environ.get("KUBECONFIG"))

    @property
    def is_probe(self) -> bool:
        """Whether it probes the time slice, and measures no cells."""
        return self.target == "measure_timeslice"

    @cached_property
    def blocks(self) -> dict[str, list[list[Cell]]]:
        """The blocks of each workload, or of workloads that share a device or a start, in the order of repeats."""
        group_of = placement.workload_groups(self.study)
        found: dict[str, dict[int, list[Cell]]] = {}
        for cell in sorted(() if self.is_probe else self.study.cells):
            sweep = self.study.sweep_name(cell.workload)
            group = group_of[cell.workload] if sweep == cell.workload else sweep
            found.setdefault(group, {}).setdefault(self.study.block(cell), []).append(cell)
        return {group: [own for _, own in sorted(blocks.items())] for group, blocks in found.items()}

    def whole_blocks(self, there: Set[Cell]) -> dict[str, int]:
        """The number of whole blocks by key of `blocks`."""
        return {group: sum(there >= {*block} for block in own) for group, own in self.blocks.items()}

    def dataset_changes(self, there: Set[Cell]) -> dict[str, Any]:
        """What the config of a data set of all whole blocks changes; nothing where none is whole.

        Workloads may have different numbers of blocks, so the blocks that are not whole are excluded.
        """
        blocks = [block for own in self.blocks.values() for block in own]
        repeats = {(cell.workload, cell.repeat) for block in blocks if there >= {*block} for cell in block}
        if not repeats:
            return {}
        named, last = {workload for workload, _ in repeats}, max(repeat for _, repeat in repeats)
        planned = {(cell.workload, cell.repeat) for cell in self.study.cells if cell.repeat <= last}
        missing = sorted(each for each in planned - repeats if each[0] in named)
        exclude = [f"*/{workload}/n*/r{repeat}" for workload, repeat in missing]
        config = self.study.config
        workloads = [name for name in config["workloads"] if name in named]
        return {"workloads": workloads, "repeats": last, "exclude": [*config["exclude"], *exclude]}

    @property
    def uses_all_devices(self) -> bool:
        return uses_several_devices(self.study.config, self.study.node_kind)

    def seconds(self, blocks: Sequence[Sequence[Cell]], devices: int = 1) -> float:
        """Expected duration of blocks that several devices measure at the same time, each block on one of them."""
        window = 0.0 if NODE_KINDS[self.study.node_kind].is_virtual else float(self.study.config["window_seconds"])
        busy = [0.0] * devices
        for block in blocks:
            starts = {*map(self.study.start_of, block)}
            busy[busy.index(min(busy))] += len(block) * window + len(starts) * self.overhead_seconds
        calibrated = {name for block in blocks for cell in block for name in self.study.calibrated_workloads(cell)}
        calibrating = len(calibrated) * (min(window, CALIBRATION_SECONDS) + self.overhead_seconds)
        return max(busy) + calibrating + self.first_seconds + self.target_seconds + RUN_SECONDS

    def checked(self, folder: Path, where: Path) -> set[Cell]:
        """The cells that are measured in a folder, which may be unpacked from the archive `where`.

        Cells of earlier code count where `before` has it. Raises Refusal for a record of another config.
        """
        found = {cell for cell in self.study.cells if is_measured(cell, folder)}
        for cell in sorted(found):
            record = read_json(folder / cell.raw, "spec", "code", "provenance")
            now = self.study.code(cell.workload)
            if record["code"] not in (now, *self.earlier_codes.get(cell.workload, ())):
                found.remove(cell)
                continue
            try:
                check_current(record, self.study.spec(cell).text, record["code"])
            except RecordMismatch as mismatch:
                commit = record["provenance"]["git_commit"] or "not known"
                raise Refusal(
                    f"{where}: {self.study_name}, {cell}: {mismatch}; measure with its commit: {commit}"
                ) from None
        return found

    def snakemake(self, folder: Path, *arguments: str, seconds: float | None = None, **more: Any) -> bool:
        """Run the study in a results folder with more changes; returns whether it ended within the time.

        At the time-out, and on Ctrl-C, the running cells are finished. Raises CalledProcessError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "visit.yaml"
        config.write_text(yaml.safe_dump({**self.changes, **more, "results": os.path.relpath(folder)}))
        command = [sys.executable, "-m", "snakemake", *arguments, "--snakefile", str(REPOSITORY / "Snakefile")]
        command += ["--cores", "1", "--configfile", str(self.file), str(config)]
        # In a process group of its own, Ctrl-C reaches it once: from here.
        with subprocess.Popen(command, process_group=0) as run:
            try:
                code = run.wait(seconds)
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
                run.send_signal(signal.SIGTERM)
                run.wait()
                if isinstance(stop, KeyboardInterrupt):
                    raise
                return False
        if code:
            raise subprocess.CalledProcessError(code, command)
        return True


def is_measured(cell: Cell, folder: Path) -> bool:
    """Whether the cell has a record of tenants that started, whatever became of them."""
    if not (folder / cell.raw).is_file():
        return False
    record = read_json(folder / cell.raw, "status", "window")
    return record["status"] != "infeasible" and (record["status"], record["window"]) != ("hung", None)


def is_whole(block: Sequence[Cell], folder: Path) -> bool:
    """Whether all cells of a block are measured, and on one device."""
    if not all(is_measured(cell, folder) for cell in block):
        return False
    return len({device_identity(read_json(folder / cell.raw, "node")["node"]) for cell in block}) == 1
