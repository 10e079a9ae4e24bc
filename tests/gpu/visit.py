"""Measure studies over several visits to a GPU: what no visit before has, and one archive of it. Then join the visits.

The studies are the files of a folder, in their order (published/edition-two/DESIGN.md). What is measured as a whole, on
one device, is a unit: a repeat of a workload, or of those that must be where it is.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from snakemake.utils import update_config

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests")]

from gpu import probes  # noqa: E402

from sharebench.core.files import Refusal, read_json  # noqa: E402
from sharebench.datasets import archive  # noqa: E402
from sharebench.measure.nodes.contract import NodeError  # noqa: E402
from sharebench.measure.nodes.kinds import named_devices, open_node  # noqa: E402
from sharebench.measure.run import placement  # noqa: E402
from sharebench.measure.run.plan import seconds_per_cell  # noqa: E402
from sharebench.model.config.load import ConfigError  # noqa: E402
from sharebench.model.gpu_python import gpu_python  # noqa: E402
from sharebench.model.records.record import RecordMismatch, check_current  # noqa: E402
from sharebench.model.records.references import device_identity  # noqa: E402
from sharebench.model.run_record import read_run  # noqa: E402
from sharebench.model.study_config import uses_several_devices  # noqa: E402
from sharebench.study.cells import Cell  # noqa: E402
from sharebench.study.open_study import open_study  # noqa: E402
from sharebench.study.study import Study  # noqa: E402

DEFAULTS = [REPOSITORY / "config" / f"{name}.yaml" for name in ("strategies", "workloads", "config")]
EDITION = REPOSITORY / "published" / "edition-two"
FIRST_REPEATS = 3
"""Repeats of all studies that come before any later repeat: the fewest that give a useful interval."""

CALIBRATION_SECONDS = 20
"""Duration of a workload's calibration with its start; a failed gate repeats it."""


@dataclass(frozen=True)
class Part:
    """A study of an edition, in the numbered file of that name, with changes to its config."""

    file: Path
    changes: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.file.stem.partition("-")[2]

    @cached_property
    def study(self) -> Study:
        config: dict[str, Any] = {}
        for path in (*DEFAULTS, self.file):
            update_config(config, yaml.safe_load(path.read_text(encoding="utf-8")))
        update_config(config, dict(self.changes))
        return open_study(config)

    @cached_property
    def units(self) -> list[list[Cell]]:
        """The groups of cells that stay on one device, in the order of repeats."""
        group_of = placement.workload_groups(self.study)
        key = lambda cell: (self.study.block(cell), group_of[cell.workload])  # noqa: E731
        return [list(own) for _, own in groupby(sorted(self.study.cells, key=key), key)]

    @cached_property
    def devices(self) -> list[str]:
        """Identities of this machine's measuring devices. Raises NodeError."""
        study = self.study
        if uses_several_devices(study.config, study.node_kind):
            return [entry["device"] for entry in placement.study_devices(study, {})]
        options, _ = named_devices(study.node_kind, study.node_options())[0]
        return [open_node(study.node_kind, options, Path()).identity]

    def measured_here(self, folder: Path) -> Iterator[tuple[str, str]]:
        """Group and device of each unit with records in a folder that were measured on a device of this machine."""
        for unit in self.units:
            records = (folder / cell.raw for cell in unit if (folder / cell.raw).is_file())
            for device in {device_identity(read_json(path, "node")["node"]) for path in records} & set(self.devices):
                yield self.group(unit), device

    def group(self, unit: Sequence[Cell]) -> str:
        """The workloads of the unit, which is one repeat of them."""
        return ", ".join(sorted({name for cell in unit for name in self.study.components(cell)}))

    def checked(self, folder: Path, where: Path) -> set[Cell]:
        """The cells of the study with records in a folder, which may be unpacked from the archive `where`.

        Raises Refusal for a record of another code or config.
        """
        found = {cell for cell in self.study.cells if (folder / cell.raw).is_file()}
        for cell in sorted(found):
            record = read_json(folder / cell.raw, "spec", "code", "provenance")
            try:
                check_current(record, self.study.spec(cell), self.study.code(cell.workload))
            except RecordMismatch as mismatch:
                commit = record["provenance"]["git_commit"] or "not known"
                raise Refusal(f"{where}: {self.name}, {cell}: {mismatch}; measure with its commit: {commit}") from None
        return found

    def snakemake(self, folder: Path, *arguments: str, seconds: float | None = None, **more: Any) -> bool:
        """Run the study in a results folder with more changes; returns whether it ended within the time.

        At the time-out the running cells are finished. Raises CalledProcessError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "visit.yaml"
        config.write_text(yaml.safe_dump({**self.changes, **more, "results": os.path.relpath(folder)}))
        command = [sys.executable, "-m", "snakemake", *arguments, "--snakefile", str(REPOSITORY / "Snakefile")]
        command += ["--cores", "1", "--configfile", str(self.file), str(config)]
        with subprocess.Popen(command) as run:
            try:
                code = run.wait(seconds)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGTERM)
                run.wait()
                return False
        if code:
            raise subprocess.CalledProcessError(code, command)
        return True


@dataclass(frozen=True)
class Batch:
    """Cells of a study that are measured at the same time: the missing cells of one unit for each device."""

    part: Part
    units: list[list[Cell]]

    def __str__(self) -> str:
        units = "; ".join(f"repeat {unit[0].repeat} of {self.part.group(unit)}" for unit in self.units)
        return f"{self.part.name}: {sum(map(len, self.units))} cells, {units}"


@dataclass(frozen=True)
class Edition:
    """The studies in the files of a folder, and the folders of their visits' results."""

    folder: Path
    changes: Mapping[str, Any]
    without: Collection[str] = ()
    """Studies that are left out, by name."""
    product: str = ""
    """The devices' product as a folder name: visits to another product make another data set."""

    @property
    def results(self) -> Path:
        return REPOSITORY / "results" / self.folder.name

    @property
    def now(self) -> Path:
        """The results of this visit; this folder stays on the machine."""
        return self.results / "now"

    @cached_property
    def parts(self) -> list[Part]:
        """The studies to measure. Raises Refusal for a folder without studies, and for an unknown name in `without`."""
        parts = [Part(path, self.changes) for path in sorted(self.folder.glob("[0-9]*.yaml"))]
        names = [part.name for part in parts]
        if not parts:
            raise Refusal(f"--edition: {self.folder} has no studies, such as 01-tenants.yaml; name a folder that has")
        if unknown := [name for name in self.without if name not in names]:
            raise Refusal(f"--without: '{unknown[0]}' is not a study; known: {', '.join(names)}")
        return [part for part in parts if part.name not in self.without]

    @property
    def archives(self) -> Path:
        return REPOSITORY / "published" / "carried" / self.folder.name / self.product

    @cached_property
    def visits(self) -> dict[Path, Path]:
        """The archives of earlier visits, each with its unpacked folder."""
        return {path: archive.unpack(path) for path in sorted(self.archives.glob("*.zip"))}

    def here(self) -> "Edition":
        """The edition for this machine's product. Raises NodeError."""
        study = self.parts[0].study
        options, _ = named_devices(study.node_kind, study.node_options())[0]
        product = open_node(study.node_kind, options, Path()).facts()["product"]
        return replace(self, product=re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-"))

    def carried(self, part: Part) -> set[Cell]:
        """The cells of a study that earlier visits have measured, in complete units."""
        return {cell for path, visit in self.visits.items() for cell in part.checked(visit / part.name, path)}

    def batches(self) -> Iterator[Batch]:
        """The batches that no visit has measured, in the order of measuring.

        A unit whose other repeats have been measured on every device here comes last: repeats should be on several
        devices, and another visit may have other ones.
        """
        ranked: dict[tuple[bool, bool, int], list[list[Cell]]] = {}
        for number, part in enumerate(self.parts):
            folders = [self.now / part.name, *(visit / part.name for visit in self.visits.values())]
            had = Counter(group for group, _ in {each for folder in folders for each in part.measured_here(folder)})
            done, there = part.checked(folders[0], folders[0]), self.carried(part)
            for unit in part.units:
                if done | there >= set(unit):
                    continue
                group, is_begun = part.group(unit), not done.isdisjoint(unit)
                was_here = not is_begun and had[group] >= len(part.devices)
                had[group] += not is_begun
                rank = (was_here, unit[0].repeat > FIRST_REPEATS, number)
                ranked.setdefault(rank, []).append([cell for cell in unit if cell not in done])
        for rank, todo in sorted(ranked.items()):
            part = self.parts[rank[-1]]
            for begin in range(0, len(todo), len(part.devices)):
                yield Batch(part, todo[begin : begin + len(part.devices)])

    def seconds(self, batch: Batch) -> float:
        """Expected duration of a batch, from the cells of this visit."""
        study, run = batch.part.study, read_run(self.now / batch.part.name)
        workloads = {name for unit in batch.units for cell in unit for name in study.components(cell)}
        return seconds_per_cell(study, run) * max(map(len, batch.units)) + CALIBRATION_SECONDS * len(workloads)

    def plan(self, minutes: float, left: float, at: float = 0) -> Iterator[str]:
        """A line for each batch that this call begins, the first after `at` seconds, and a line for those too long."""
        too_long = set()
        for batch in self.batches():
            seconds = self.seconds(batch)
            if at >= 60 * minutes:
                break
            if at + seconds > 60 * left:
                too_long.add(batch.part.name)
                continue
            yield f"plan: after {at:.0f} s: {batch}, about {seconds:.0f} s"
            at += seconds
        if too_long:
            yield f"plan: too long for what is left then: some or all of {', '.join(sorted(too_long))}"

    def measure(self, until: float, gone: float, failed: Collection[str] = ()) -> bool:
        """Measure the missing batches; returns whether all are complete.

        It ends at `until`, and begins no batch that would end after `gone` (both in time.monotonic). Raises Refusal at
        the end if studies failed, now or before (`failed`); the rest of these is left to another visit.
        """
        is_all, failed = True, {*failed}
        for batch in self.batches():
            part, folder = batch.part, self.now / batch.part.name
            if part.name in failed:
                continue
            seconds = self.seconds(batch)
            print(f"== {batch}, about {seconds / 60:.0f} min", flush=True)
            if time.monotonic() + seconds > gone:
                print("does not fit into what is left", flush=True)
                is_all = False
                continue
            wanted = part.checked(folder, folder).union(*batch.units)
            left = [cell.folder.removeprefix("cells/") for cell in part.study.cells if cell not in wanted]
            exclude = [*part.study.config["exclude"], *left]
            try:
                time_left = max(until - time.monotonic(), 0)
                is_done = part.snakemake(folder, "--until", "run_cell", seconds=time_left, exclude=exclude)
            except subprocess.CalledProcessError:
                failed.add(part.name)
                continue
            if not is_done:
                is_all = False
                break
        if failed:
            raise Refusal(f"failed: {', '.join(sorted(failed))}; the causes are above")
        return is_all

    def probe(self) -> bool:
        """Probe the time slice for each number of tenants that is missing; returns whether that succeeded.

        It runs in the first study's folder, whose device is characterised anyway.
        """
        part = self.parts[0]
        try:
            for tenants in probes.missing(self.now):
                part.snakemake(self.now / part.name, "measure_timeslice", timeslice_tenants=tenants)
                probes.keep(self.now / part.name, self.now, tenants)
        except subprocess.CalledProcessError:
            return False
        return True

    def pack(self) -> Path | None:
        """Write one archive of this visit's results, named by its first run; None without results."""
        files: dict[str, Path] = {}
        runs = []
        for part in self.parts:
            if not (folder := self.now / part.name).is_dir():
                continue
            whole = {cell for unit in part.units if _is_whole(unit, folder) for cell in unit}
            for cell in part.study.cells:
                if not (folder / cell.raw).is_file():
                    continue
                runs.append(read_json(folder / cell.raw, "provenance")["provenance"]["run_id"])
                place = part.name if cell in whole else f"{part.name}/unfinished"
                files |= {f"{place}/{cell.folder}/{file.name}": file for file in (folder / cell.folder).iterdir()}
            for kind in ("nodes", "calibration"):
                files |= {f"{part.name}/{kind}/{file.name}": file for file in (folder / kind).glob("*.json")}
        for name, path in probes.files(self.now):
            files[name] = path
            if path.suffix == ".json":
                runs.append(read_json(path, "provenance")["provenance"]["run_id"])
        if not runs:
            return None
        target = self.results / self.product / f"{min(runs)}.zip"
        target.parent.mkdir(exist_ok=True)
        archive.write(target, files, time.time())
        return target

    def join(self) -> Iterator[str]:
        """Join the visits: their probes, and each study that is complete; yields a line for each."""
        if not (probed := probes.table(self.visits.values())).empty:
            target = self.results / self.product / "probes.csv"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(probed.to_csv(index=False), encoding="utf-8")
            yield f"probes: {len(probed)} rows of {probed['device'].nunique()} devices in {os.path.relpath(target)}"
        for listed in self.parts:
            sources = [os.path.relpath(visit / listed.name) for visit in self.visits.values()]
            sources = [source for source in sources if (Path(source) / "cells").is_dir()]
            if not sources:
                yield f"{listed.name}: not measured yet"
                continue
            part = replace(listed, changes={**self.changes, "parts": sources})
            line = f"{part.name}: {len(there := self.carried(part))} of {len(part.study.cells)} cells"
            if len(there) < len(part.study.cells):
                yield f"{line}, not joined"
                continue
            folder = self.results / self.product / part.name
            shutil.rmtree(folder, ignore_errors=True)
            part.snakemake(folder, "join")
            part.snakemake(folder)
            yield f"{line}, joined in {os.path.relpath(folder)}"


def _is_whole(unit: Iterable[Cell], folder: Path) -> bool:
    """Whether all cells of a unit have records from one device."""
    paths = [folder / cell.raw for cell in unit]
    devices = {device_identity(read_json(path, "node")["node"]) for path in paths if path.is_file()}
    return all(path.is_file() for path in paths) and len(devices) == 1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1e6, help="this call ends then, with the cell that is running")
    parser.add_argument("--left", type=float, help="the machine goes then: begin nothing longer (default: --minutes)")
    parser.add_argument("--out", type=Path, help="folder that gets a copy of the archive")
    parser.add_argument("--probe", action="store_true", help="first, probe the time slice: two minutes")
    parser.add_argument("--join", action="store_true", help="put all visits together; needs no GPU")
    parser.add_argument("--python", default=str(gpu_python("auto") or sys.executable), help="that has torch")
    parser.add_argument("--config", type=yaml.safe_load, default={}, help="YAML, as {repeats: 3}: of all studies")
    parser.add_argument("--edition", type=Path, default=EDITION, help="folder of studies (default: %(default)s)")
    parser.add_argument("--without", default="", help="studies to leave out, as many,yolov8")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    os.chdir(REPOSITORY)
    changes: dict[str, Any] = {"nvidia": {"python": options.python}}
    update_config(changes, options.config)
    edition = Edition(options.edition.resolve(), changes, [*filter(None, options.without.split(","))])
    try:
        # Mistyped names are refused before a GPU is looked for.
        print(f"studies: {', '.join(part.name for part in edition.parts)}", flush=True)
        if options.join:
            folders = sorted(edition.archives.glob("*/"))
            if not folders:
                raise Refusal(f"no visit to join: {edition.archives.relative_to(REPOSITORY)} has no folder in it")
            for folder in folders:
                for line in replace(edition, product=folder.name).join():
                    print(f"{folder.name}: {line}", flush=True)
            return
        edition = edition.here()
        left = options.minutes if options.left is None else options.left
        for line in edition.plan(options.minutes, left, probes.SECONDS if options.probe else 0):
            print(line, flush=True)
        is_all = False
        try:
            failed = ["probes"] if options.probe and not edition.probe() else []
            is_all = edition.measure(began + 60 * options.minutes, began + 60 * left, failed)
        finally:
            if (made := edition.pack()) is not None:
                if options.out is not None:
                    shutil.copy(made, options.out)
                print(f"this visit: {made}; copy it to {edition.archives.relative_to(REPOSITORY)}/", flush=True)
        print("all cells are there" if is_all else "not all cells are there yet")
    except (Refusal, ConfigError, NodeError, archive.ArchiveError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
