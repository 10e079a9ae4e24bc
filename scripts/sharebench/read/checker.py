"""Which records of a study may be in one table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from sharebench.core.files import DamagedFile, Refusal, read_json, replace_atomically
from sharebench.datasets.dataset import EARLIER_CODES
from sharebench.model import run_record
from sharebench.model.records.record import RecordError, RecordMismatch, check_current
from sharebench.model.records.references import device_identity, part_for_device, read_device
from sharebench.model.records.types import NodeFacts, Provenance, Record, Switch
from sharebench.model.spec import workload_reference
from sharebench.read.cells.gpu_columns import device_units
from sharebench.read.gates.gates import read_judged
from sharebench.read.tables.checks import provenance
from sharebench.study.cells import Cell
from sharebench.study.public import accepted_spec
from sharebench.study.study import Study

# The most files that a refusal names; the list that its command reads has all of them.
MAX_LISTED = 5
REFERENCE_KEYS = ("output_digest", "capacity_hz", "roofs", "idle_power_watts")
Identity = dict[str, str | None]
"""What all sources of a table must have in common: the product, its driver, and the packages."""
WorkloadBlock = tuple[int, str]
"""Number of a block, and a workload in it."""


class RecordsRefused(Refusal):
    """The records must not be in one table; the message lists them with the reasons and the command that helps."""


class WithProvenance(TypedDict):
    code: str
    node: NodeFacts
    provenance: Provenance


class Calibration(WithProvenance):
    """calibration/{workload}.json."""

    output_digest: list[float] | None
    capacity_hz: float | None
    roofs: dict[str, float] | None
    idle_power_watts: float | None
    strategy: NotRequired[str]
    switch: NotRequired[Switch | None]


def _identities(file: Mapping[str, Any]) -> frozenset[str | None]:
    """All identities of the devices in a record, a calibration or nodes/device.json: hashes and machines."""
    node: NodeFacts = file["node"]
    return frozenset({node["device"], node["details"].get("machine"), *file.get("others", ())})


@dataclass
class _Origin:
    """Device and software that a file comes from, and the blocks that it belongs to (none for a calibration)."""

    started_epoch_seconds: float
    identity: Identity
    device: str
    machine: str | None
    """A cluster's node; a file that was written before any tenant ran may not know the device."""
    device_identities: frozenset[str | None]
    """All identities of the file's device or devices."""
    blocks: list[WorkloadBlock]

    @classmethod
    def from_record(cls, record: WithProvenance | Record, blocks: list[WorkloadBlock]) -> _Origin:
        provenance, node = record["provenance"], record["node"]
        packages = {f"package {name}": text for name, text in provenance["packages"].items()}
        identity = {"product": node["product"], "driver": node["details"].get("driver"), **packages}
        machine = node["details"].get("machine")
        return cls(provenance["started_epoch_seconds"], identity, node["device"], machine, _identities(record), blocks)


class Checker:
    """Reads all calibrations first, then records one by one, and collects the reasons why files are refused."""

    def __init__(self, study: Study, data: Path) -> None:
        self.study = study
        self.data = data
        self.sound_count = 0
        self.units: int | None = None
        """The device's SMs or cores, as far as the sound records know."""
        self.refused: dict[Path, str] = {}
        self.provenance: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Name (run, Python, a package …) → each value with its number of sound records."""
        self._origins: dict[Path, _Origin] = {}
        self._is_joined: bool = study.config["measured_elsewhere"]
        """Whether several hosts or visits have measured the study, each with its calibrations and its software."""
        self._first_references: dict[tuple[object, ...], Mapping[str, object]] = {}
        """The references of the first cell by workload and device, for devices without a calibration of their own.

        In a joined study, also by block.
        """
        path = data / EARLIER_CODES
        self._earlier_codes: Mapping[str, Sequence[str]] = read_json(path) if path.is_file() else {}
        self._earlier_count = 0
        self.calibrations = {workload: self._calibration(workload) for workload in study.calibrated_workloads()}

    def _calibration(self, workload: str) -> Calibration | None:
        path = self.data / "calibration" / f"{workload}.json"
        try:
            calibration: Calibration = read_json(path)
            if not self.study.config["from"]:
                spec = accepted_spec(self.study.calibration_spec(workload), calibration)
                check_current(calibration, spec, self._accepted_code(workload, calibration["code"]))
            self._origins[path] = _Origin.from_record(calibration, [])
            if missing := [key for key in REFERENCE_KEYS if key not in calibration]:
                raise KeyError(missing[0])
            return calibration
        except RecordMismatch as mismatch:
            self.refused[path] = str(mismatch)
        except DamagedFile as damage:
            self.refused[path] = str(damage).removeprefix(f"{path}: ")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            self.refused[path] = f"not a calibration, missing or damaged ({problem})"
        return None

    def _accepted_code(self, workload: str, code: str) -> str:
        """The code itself if it is earlier code that counts, else today's."""
        return code if code in self._earlier_codes.get(workload, ()) else self.study.code(workload)

    def _is_outdated(self, record: Record, workload: str) -> bool:
        """Whether a record used another reference of the workload than its calibration has now.

        On another device than the calibration's, the first cell there is the reference, and so it is in a block of a
        joined study. False without a calibration.
        """
        calibration, device = record["calibration"], record["node"]["device"]
        used: dict[str, object] = {**(calibration or {}), **workload_reference(calibration, workload)}
        # Those of the other tenants of a mix differ from mix to mix.
        used.pop("workloads", None)
        current = self.calibrations.get(workload)
        if current is None:
            return False
        now: Mapping[str, object] = part_for_device(current, device_identity(record["node"]))
        if self._is_joined:
            now = self._first_references.setdefault((workload, device, record["cell"]["block"]), used)
        elif cast(Calibration, now)["node"]["device"] != device:
            now = self._first_references.setdefault((workload, device), used)
        return any(now[key] != value for key, value in used.items() if key in now and value is not None)

    def records(self, cells: Iterable[Cell]) -> Iterator[Record]:
        """The sound records of these cells; reasons against the others go into `refused`."""
        for cell in cells:
            path = self.data / cell.raw
            components = self.study.components(cell)
            try:
                record = read_judged(path)
                if not self.study.config["from"]:
                    code = self._accepted_code(cell.workload, record["code"])
                    check_current(record, accepted_spec(self.study.spec(cell), record), code)
            except (RecordError, RecordMismatch) as error:
                self.refused[path] = str(error).removeprefix(f"{path}: ")
                continue
            blocks = [(record["cell"]["block"], name) for name in components]
            self._origins[path] = _Origin.from_record(record, blocks)
            if record["window"] is None and self._origins[path].machine is not None:
                # No tenant has shown which of the machine's devices it is.
                self._origins[path].blocks = []
            if any(self._is_outdated(record, name) for name in components):
                self.refused[path] = (
                    "measured with another calibration than calibration/ holds now, or than its device's"
                )
                continue
            self.sound_count += 1
            self._earlier_count += record["code"] in self._earlier_codes.get(cell.workload, ())
            self.units = max(self.units or 0, device_units(record) or 0) or None
            for name, value in provenance(record).items():
                self.provenance[name][value] += 1
            yield record

    def mismatched(self) -> dict[Path, str]:
        """Reasons why files cannot be in one table with the newest ones.

        Product, driver and packages must be those of the newest file that has any; in a joined study driver and
        packages those of the newest in the block. The cells of one workload in one block must be on one device, since
        ratios are taken within blocks; different blocks and workloads may be on different devices of one product.
        """
        newest: Identity = {}
        in_block: defaultdict[WorkloadBlock, Identity] = defaultdict(dict)
        devices: dict[WorkloadBlock, str] = {}
        for origin in sorted(self._origins.values(), key=lambda origin: origin.started_epoch_seconds):
            newest |= origin.identity
            devices |= dict.fromkeys(origin.blocks, origin.device)
            for block in origin.blocks:
                in_block[block] |= origin.identity
        of_cells = set(devices.values()) or {origin.device for origin in self._origins.values()}
        machines = {origin.machine for origin in self._origins.values() if origin.blocks} - {None}
        refused = {}
        for path, origin in self._origins.items():
            expected = newest
            if self._is_joined:
                own = (in_block[block] for block in origin.blocks)
                expected = {key: value for each in (origin.identity, *own) for key, value in each.items()}
                expected["product"] = newest["product"]
            differences = [
                f"{key} {old} → {expected[key]}" for key, old in origin.identity.items() if old != expected[key]
            ]
            others = [devices[block] for block in origin.blocks if devices[block] != origin.device]
            if others or origin.device_identities.isdisjoint(of_cells | machines):
                differences.insert(0, f"device {origin.device} → {(others or sorted(of_cells))[0]}")
            if differences:
                refused[path] = f"not the newest cell's: {', '.join(differences)}"
        device = self.data / "nodes" / "device.json"
        if newest and _identities(read_device(device)).isdisjoint(of_cells | machines):
            refused[device] = "not the newest cell's device"
        return refused

    def software_remark(self) -> str:
        """The remark of a joined study's tables on code, drivers and packages that differ; empty where none do."""
        versions: defaultdict[str, set[str]] = defaultdict(set)
        for origin in self._origins.values():
            for key, version in origin.identity.items():
                versions[key] |= {version} if version else set()
        several = [f"{key} {' or '.join(sorted(own))}" for key, own in versions.items() if len(own) > 1]
        remark = f"Software differs between blocks, and never within one: {', '.join(several)}." if several else ""
        earlier = f"{self._earlier_count} cells were measured by earlier code, which measures the same."
        return f"{remark} {earlier}".strip() if self._earlier_count else remark


def refusal_message(refused: Mapping[Path, str], results: Path, measured_here: bool = True) -> str:
    """The refused records and the reason, with the command that re-measures them if they were measured here."""
    reasons = Counter(refused.values())
    lines = [f"refused: {len(refused)} record(s) cannot be in these tables:"]
    for reason, count in reasons.most_common(MAX_LISTED):
        first = next(path for path, why in refused.items() if why == reason)
        lines.append(f"  {first}{f' and {count - 1} more' if count > 1 else ''}: {reason}")
    if len(reasons) > MAX_LISTED:
        lines.append(f"  and {len(reasons) - MAX_LISTED} other reason(s)")
    if not measured_here:
        return "\n".join([*lines, "re-measure them where this data set was made"])
    listed = run_record.state_folder(results).resolve() / "refused.txt"
    replace_atomically(listed, "".join(f"{path}\n" for path in refused))
    targets = " ".join(map(str, refused)) if len(refused) <= MAX_LISTED else f"$(cat {listed})"
    lines.append(f"re-measure them: snakemake --forcerun {targets} (with the options of this run)")
    return "\n".join(lines)
