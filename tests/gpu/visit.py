"""Measure the next blocks of edition two on this host, and pack them; merge such a visit into the published data.

    visit.py --minutes 25          on a host with GPUs: what no visit before has, in the order of worth
    visit.py --minutes 25 --only S,L    the same of these modules
    visit.py --merge VISIT.zip     anywhere: put a visit into published/, and show which blocks come next
    visit.py --freeze              write the fingerprints of the measuring code that all visits must have

A block is a repeat of a workload, or of workloads that must be on one device. It counts when all its cells have
records, valid or not (published/edition-two/DESIGN.md).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import yaml
from snakemake.utils import update_config

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests")]

from gpu import probes  # noqa: E402
from gpu.part import Part, is_whole  # noqa: E402

from sharebench.core.files import Refusal, read_json  # noqa: E402
from sharebench.core.run_names import STOP_SIGNALS  # noqa: E402
from sharebench.datasets import archive  # noqa: E402
from sharebench.datasets.join import join  # noqa: E402
from sharebench.measure.nodes.contract import NodeError  # noqa: E402
from sharebench.measure.run import placement  # noqa: E402
from sharebench.model.config.load import ConfigError  # noqa: E402
from sharebench.model.gpu_python import gpu_python  # noqa: E402
from sharebench.study import fingerprint  # noqa: E402
from sharebench.study.cells import Cell  # noqa: E402

EDITION = REPOSITORY / "published" / "edition-two"
FROZEN = "frozen.yaml"
PACKAGES = REPOSITORY / "envs" / "tenant-gpu.txt"
EXAMPLES = REPOSITORY / "examples"
PUBLICATIONS = {"h200": "h200-two"}
"""Folders of published/ for products of which there is an edition already; others have the product's short name."""
RESERVE_SECONDS = 60
"""Time at the end of a visit for cells that are running then, and for the archive."""


@dataclass(frozen=True)
class Edition:
    """The studies of a folder, what visits before have measured of them, and this visit."""

    folder: Path
    changes: Mapping[str, Any]
    publication: str = ""
    """Folder below published/, of one product."""
    device_count: int = 1

    @property
    def now(self) -> Path:
        """The results of this visit; this folder stays on the machine."""
        return REPOSITORY / "results" / self.folder.name / "now"

    @cached_property
    def parts(self) -> list[Part]:
        text = (self.folder / "modules.yaml").read_text(encoding="utf-8")
        common = {"folder": self.folder, "changes": self.changes, "before": self.was_frozen.get("before", {})}
        return [Part(**common, study_name=line.pop("study"), **line) for line in yaml.safe_load(text)]

    @cached_property
    def was_frozen(self) -> dict[str, Any]:
        """What frozen.yaml has: `packages`, `specs`, `roots`, and `before` by root; nothing without the file."""
        path = self.folder / FROZEN
        return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def freeze(self) -> None:
        """Write frozen.yaml; the codes `before` of those that were frozen stay."""
        kept = {key: self.was_frozen[key] for key in ("before",) if key in self.was_frozen}
        (self.folder / FROZEN).write_text(yaml.safe_dump(self.frozen() | kept, sort_keys=False), encoding="utf-8")

    @property
    def visits_folder(self) -> Path:
        return REPOSITORY / "published" / self.publication / "visits"

    @cached_property
    def visits(self) -> dict[Path, Path]:
        """The archives of earlier visits, each with its unpacked folder."""
        return {path: archive.unpack(path) for path in sorted(self.visits_folder.glob("*.zip"))}

    def here(self) -> "Edition":
        """The edition for this host and its product. Raises NodeError, and Refusal where a cell is infeasible."""
        first = self.parts[0].study
        devices = placement.study_devices(first, {})
        (node, *_) = placement.open_nodes(first, self.now, devices)
        # A cluster is asked by the run.
        parts = [part for part in self.parts if part.study.node_kind == first.node_kind and part.is_possible]
        plots = {(part.module, cell.strategy, cell.replicas): part for part in parts for cell in part.study.cells}
        lines = [
            f"{part.study_name}, {strategy} × {replicas}: {reason}"
            for (_, strategy, replicas), part in plots.items()
            if (reason := node.infeasible(part.study.strategies[strategy], replicas)) is not None
        ]
        if lines:
            raise Refusal("\n".join(["this host cannot measure the design:", *lines]))
        return replace(self, publication=publication_of(node.facts()["product"]), device_count=len(devices))

    def frozen(self) -> dict[str, Any]:
        """The fingerprints of all code that measures the edition, by root, and digests of what its cells are.

        They are the packages' lock, and the specs of all cells with the programs that these start.
        """
        roots: dict[str, str] = {}
        specs = hashlib.sha256()
        for part in self.parts:
            roots |= roots_of(part)
            for cell in sorted([] if part.is_probe else part.study.cells):
                specs.update(part.study.spec(cell).text.encode())
        for path in sorted(EXAMPLES.glob("*.py")):
            specs.update(path.read_bytes())
        digests = {"packages": hashlib.sha256(PACKAGES.read_bytes()).hexdigest(), "specs": specs.hexdigest()}
        return {**digests, "roots": dict(sorted(roots.items()))}

    def check_frozen(self, folder: Path) -> None:
        """Raise Refusal where the code is not that of the folder's frozen.yaml; without the file all code is right."""
        if not (folder / FROZEN).is_file():
            return
        was, now = yaml.safe_load((folder / FROZEN).read_text(encoding="utf-8")), self.frozen()
        before, after = ({key: each[key] for key in ("packages", "specs")} | each["roots"] for each in (was, now))
        if changed := sorted(root for root in before | after if before.get(root) != after.get(root)):
            raise Refusal(
                f"{folder / FROZEN}: the measuring code is another for {', '.join(changed)}; take the commit that the "
                "records name, or note a deviation and freeze again: --freeze"
            )

    def carried(self, part: Part) -> set[Cell]:
        """The cells of a study that earlier visits have measured, in whole blocks."""
        return {cell for path, visit in self.visits.items() for cell in part.checked(visit / part.study_name, path)}

    def next_blocks(self, part: Part, seconds: float = float("inf")) -> list[list[Cell]]:
        """The missing cells of the blocks that this visit measures next, as many as fit.

        A device measures one block of each workload in a visit: more repeats on it would not be more devices. The
        workloads with the fewest blocks come first.
        """
        done, there = part.checked(self.now / part.study_name, self.now), self.carried(part)
        chosen: list[list[Cell]] = []
        devices = self.device_count if part.uses_all_devices else 1
        for blocks in sorted(part.blocks.values(), key=lambda own: sum(there >= {*block} for block in own)):
            begun = [block for block in blocks if not done.isdisjoint(block) and not done >= {*block}]
            fresh = [block for block in blocks if done.isdisjoint(block) and not there >= {*block}]
            whole = sum(done >= {*block} for block in blocks)
            todo = [[cell for cell in block if cell not in done] for block in (begun + fresh)[: devices - whole]]
            if todo and part.seconds([*chosen, *todo], devices) <= seconds:
                chosen += todo
        return chosen

    def measure(self, until: float, only: Sequence[str]) -> None:
        """Measure what fits before `until` (in time.monotonic), of these modules or of all if there are none.

        Raises Refusal for unknown modules, and at the end if studies failed.
        """
        modules = [part.module for part in self.parts]
        if unknown := sorted({*only} - {*modules}):
            raise Refusal(f"--only: no module {', '.join(unknown)}; there are {', '.join(modules)}")
        failed = []
        for part in self.parts:
            if only and part.module not in only:
                continue
            if not part.is_possible:
                where = "without" if part.in_cluster else "next to"
                print(f"== {part.module} {part.study_name}: not measured {where} a cluster", flush=True)
                continue
            try:
                if not (self.probe(part, until) if part.is_probe else self.measure_part(part, until)):
                    break
            except subprocess.CalledProcessError:
                failed.append(part.study_name)
            # A machine may be lost in the next part.
            self.pack()
        if failed:
            raise Refusal(f"failed: {', '.join(failed)}; the causes are above")

    def measure_part(self, part: Part, until: float) -> bool:
        """Measure the next blocks of a study; returns whether there is time for more."""
        folder = self.now / part.study_name
        blocks = self.next_blocks(part, seconds_until(until))
        is_probed = part.target is None or (folder / "nodes" / f"{part.target.removeprefix('measure_')}.json").is_file()
        if not blocks and (is_probed or not folder.is_dir()):
            return True
        print(f"== {self.describe(part, blocks)}", flush=True)
        wanted = part.checked(folder, folder).union(*blocks)
        others = [cell.folder.removeprefix("cells/") for cell in part.study.cells if cell not in wanted]
        more: dict[str, Any] = {"exclude": [*part.study.config["exclude"], *others]}
        if part.study.node_kind == "nvidia" and not part.uses_all_devices:
            # Another GPU in each visit.
            more["nvidia"] = {**self.changes["nvidia"], "gpu": str(len(self.visits) % self.device_count)}
        # What reads records waits for the merge.
        targets = [["--omit-from", "aggregate", "export_histograms"]] if blocks else []
        targets += [] if is_probed else [[str(part.target)]]
        return all(part.snakemake(folder, *each, seconds=seconds_until(until), **more) for each in targets)

    def probe(self, part: Part, until: float) -> bool:
        """Probe the time slice with each number of tenants, unless a visit has; whether there is time for more."""
        is_probed = any(probes.missing(visit) == [] for visit in self.visits.values())
        if is_probed or seconds_until(until) < part.target_seconds:
            return True
        for tenants in probes.missing(self.now):
            print(f"== {part.module} {part.study_name}: {tenants} tenants", flush=True)
            folder, left = self.now / part.study_name, seconds_until(until)
            if not part.snakemake(folder, str(part.target), seconds=left, timeslice_tenants=tenants):
                return False
            probes.keep(self.now / part.study_name, self.now, tenants)
        return True

    def describe(self, part: Part, blocks: Sequence[Sequence[Cell]]) -> str:
        named = sorted({(cell.workload, cell.repeat) for block in blocks for cell in block})
        repeats = ", ".join(map(str, sorted({repeat for _, repeat in named})))
        minutes = part.seconds(blocks, self.device_count if part.uses_all_devices else 1) / 60
        workloads = ", ".join(dict.fromkeys(name for name, _ in named))
        count = sum(map(len, blocks))
        return (
            f"{part.module} {part.study_name}: {count} cells, block {repeats} of {workloads}, about {minutes:.1f} min"
        )

    def pack(self) -> Path | None:
        """Write one archive of this visit's results, named by its first run; None without results."""
        probed = dict(probes.files(self.now))
        files: dict[str, Path | bytes] = {**probed}
        runs = [read_json(path, "provenance") for name, path in probed.items() if name.endswith(".json")]
        for part in self.parts:
            folder = self.now / part.study_name
            whole = {cell for own in part.blocks.values() for block in own if is_whole(block, folder) for cell in block}
            for cell in part.study.cells:
                if not (folder / cell.raw).is_file():
                    continue
                runs.append(read_json(folder / cell.raw, "provenance"))
                place = part.study_name if cell in whole else f"{part.study_name}/unfinished"
                files |= {f"{place}/{cell.folder}/{file.name}": file for file in (folder / cell.folder).iterdir()}
            for kind in ("nodes", "calibration"):
                files |= {f"{part.study_name}/{kind}/{file.name}": file for file in (folder / kind).glob("*.json")}
        if not runs:
            return None
        if (self.folder / FROZEN).is_file():
            files[FROZEN] = self.folder / FROZEN
        provenance = min((run["provenance"] for run in runs), key=itemgetter("run_id"))
        files[archive.MANIFEST] = json.dumps({"git_commit": provenance["git_commit"]}).encode()
        target = self.now.parent / f"{provenance['run_id']}.zip"
        archive.write(target, files, time.time())
        return target

    def merge(self, path: Path) -> Iterator[str]:
        """Put a visit's archive into the published data; yields a line for each study. Raises Refusal."""
        visit = archive.unpack(path)
        if not (visit / FROZEN).is_file() or not (self.folder / FROZEN).is_file():
            raise Refusal(f"{path}: no {FROZEN} in it, or none in {self.folder}: a rehearsal, which is not published")
        was = yaml.safe_load((visit / FROZEN).read_text(encoding="utf-8"))
        # Roots that it does not measure may have been frozen again.
        there = [part for part in self.parts if any(visit.glob("probe-*" if part.is_probe else part.study_name))]
        measured = {root for part in there for root in roots_of(part)}
        now, before = self.was_frozen["roots"], self.was_frozen.get("before", {})
        is_known = all(was["roots"].get(root) in (now.get(root), *before.get(root, ())) for root in measured)
        if not is_known or was["packages"] != self.was_frozen["packages"]:
            raise Refusal(f"{path}: measured by other code than {self.folder / FROZEN} has")
        device = next(iter(sorted(visit.glob("*/nodes/device.json"))))
        edition = replace(self, publication=publication_of(read_json(device, "node")["node"]["product"]))
        target = edition.visits_folder / path.name
        for part in edition.parts:
            others = {
                cell
                for other, _ in edition.visits.items()
                if other != target
                for cell in part.checked(edition.visits[other] / part.study_name, other)
            }
            if both := sorted(part.checked(visit / part.study_name, path) & others):
                raise Refusal(
                    f"{path}: a visit before has {part.study_name}, {both[0]}; it was not there in this visit"
                )
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)
        studies = [part.study_name for part in edition.parts if (visit / part.study_name).is_dir()]
        yield from replace(edition).publish(studies)

    def publish(self, names: Sequence[str]) -> Iterator[str]:
        """Make the data sets of these studies from all visits; yields what is whole of each study, and what is next."""
        if not (probed := probes.table(self.visits.values())).empty:
            target = self.visits_folder / "probes.csv"
            target.write_text(probed.to_csv(index=False), encoding="utf-8")
        for part in self.parts:
            there = self.carried(part)
            whole = part.dataset_changes(there)
            if whole and part.study_name in names:
                sources = [visit / part.study_name for visit in self.visits.values()]
                joined = [os.path.relpath(source) for source in sources if (source / "cells").is_dir()]
                own = replace(part, changes={**self.changes, "measured_elsewhere": True, **whole})
                folder = self.now.parent / self.publication / part.study_name
                shutil.rmtree(folder, ignore_errors=True)
                join(own.study, [Path(source) for source in joined], folder, own.earlier_codes)
                # A data set is whole with its histograms, for which publishing does not wait.
                own.snakemake(folder, "--until", "export_histograms", "aggregate")
                own.snakemake(folder, f"published/{self.publication}/{part.study_name}")
            if part.is_probe:
                yield f"{part.module} {part.study_name}: {'probed' if not probed.empty else 'not probed yet'}"
            else:
                whole_of = part.whole_blocks(there).items()
                counts = (f"{count} of {len(part.blocks[group])} blocks of {group}" for group, count in whole_of)
                yield f"{part.module} {part.study_name}: {', '.join(counts)}"
        for part in self.parts:
            if blocks := self.next_blocks(part):
                yield f"next: {self.describe(part, blocks)}"


def roots_of(part: Part) -> dict[str, str]:
    """The fingerprint of each root of a study."""
    study = part.study
    workloads = {name for cell in study.cells for name in (cell.workload, *study.components(cell))}
    roots = {f"node {study.node_kind}": study.node_code()}
    if not part.is_probe:
        roots |= {f"{part.study_name}/{name}": study.code(name) for name in workloads}
    if part.target is not None:
        stage = part.target.removeprefix("measure_")
        roots[stage] = fingerprint.stage_fingerprint(stage)
    return roots


def publication_of(product: str) -> str:
    """The folder of published/ for a product: h100 of `NVIDIA H100 80GB HBM3`."""
    found = re.search(r"\b[a-z]+\d+\b", product.lower())
    name = found[0] if found else re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")
    return PUBLICATIONS.get(name, name)


def seconds_until(until: float) -> float:
    """What is left of a visit that ends at `until` (in time.monotonic)."""
    return max(0.0, until - time.monotonic())


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=25, help="the machine goes then (default: %(default)s)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="modules, as S,L (default: all)")
    parser.add_argument("--merge", type=Path, metavar="ZIP", help="put a visit's archive into published/")
    parser.add_argument("--freeze", action="store_true", help=f"write {FROZEN}")
    parser.add_argument("--python", default=str(gpu_python("auto") or sys.executable), help="absolute, that has torch")
    parser.add_argument("--config", type=yaml.safe_load, default={}, help="YAML of changes to all studies, to rehearse")
    parser.add_argument("--edition", type=Path, default=EDITION, help="folder of studies (default: %(default)s)")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes - RESERVE_SECONDS
    os.chdir(REPOSITORY)
    changes: dict[str, Any] = {"nvidia": {"python": options.python}}
    update_config(changes, options.config)
    edition = Edition(options.edition.resolve(), changes)
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    try:
        if options.merge or options.freeze:
            anywhere = replace(edition, changes={**changes, "measured_elsewhere": True})
            if options.freeze:
                anywhere.freeze()
                return
            for line in anywhere.merge(options.merge):
                print(line, flush=True)
            return
        edition.check_frozen(edition.folder)
        edition = edition.here()
        try:
            edition.measure(until, options.only)
        finally:
            made = edition.pack()
            nothing = f"nothing that is missing fits into {options.minutes:g} min"
            print(nothing if made is None else f"this visit: {made}", flush=True)
    except KeyboardInterrupt:
        sys.exit("interrupted; what is whole is in the archive")
    except (Refusal, ConfigError, NodeError, archive.ArchiveError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
