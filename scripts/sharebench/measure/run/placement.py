"""Placement of cells on several devices. A block of a workload, with its baseline, stays on one device.

Blocks are distributed one after another, so that no strategy is on one device only and a workload's repeats are spread
over all devices. A block with records stays on the device that measured them, as long as that device is there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sharebench.core.files import DamagedFile, read_json
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kinds import named_devices, open_node
from sharebench.measure.nodes.node import Node
from sharebench.model import run_record
from sharebench.model.records.references import device_identity
from sharebench.model.run_record import DeviceEntry, RunRecord
from sharebench.model.study_config import uses_several_devices
from sharebench.study.cells import Cell
from sharebench.study.study import Study


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and the number of the device for each block of a workload (`placement_key`)."""

    study: Study
    devices: list[DeviceEntry]
    numbers: Mapping[str, int]

    def number(self, cell: Cell) -> int:
        return self.numbers[placement_key(self.study, cell)]

    def shares(self, cells: Iterable[Cell]) -> str:
        """The number of cells on each device: `0: 6 cells, 1: 6 cells`."""
        by_device = cells_by_device(cells, self)
        entries = enumerate(self.devices)
        return ", ".join(f"{entry['number']}: {len(by_device.get(number, []))} cells" for number, entry in entries)


def cells_by_device(cells: Iterable[Cell], places: Placement | None) -> dict[int, list[Cell]]:
    """The cells of each device, in their order; all of them under 0 without a placement."""
    by_device: dict[int, list[Cell]] = {}
    for cell in cells:
        by_device.setdefault(places.number(cell) if places else 0, []).append(cell)
    return by_device


def down_device_lines(run: RunRecord) -> list[str]:
    """A line for each device of that run that is down."""
    down = [entry for entry in run.get("devices", []) if entry["down"]]
    return [f"device {entry['number']} is down, the next run leaves it out: {entry['down']}" for entry in down]


def setup_device_number(study: Study, strategy: str, devices: Sequence[DeviceEntry]) -> int:
    """The number of the device on which the strategy is set up once before its cells.

    It is the first device where a state stays for all cells of a strategy: the cells there find it set up.
    """
    return 0 if study.order == "strategy" else list(study.strategies).index(strategy) % len(devices)


def placement_key(study: Study, cell: Cell) -> str:
    """The run record's key of a block that stays on one device; a sweep counts as one workload."""
    return f"{study.block(cell)}/{study.sweep_name(cell.workload)}"


def open_nodes(study: Study, results: Path, devices: Sequence[DeviceEntry] = ()) -> list[Node]:
    """The study's node, or one node for each of several devices, each with a state folder named by its identity."""
    kind = study.node_kind
    if not devices:
        return [open_node(kind, study.node_options(), node_folder(results))]
    return [open_node(kind, each["options"], node_folder(results, each), each["number"]) for each in devices]


def node_folder(results: Path, device: DeviceEntry | None = None) -> Path:
    """The folder of the study's node, or of one of several devices."""
    folder = run_record.state_folder(results) / "node"
    return folder if device is None else folder / device["device"]


def study_devices(study: Study, last: RunRecord) -> list[DeviceEntry]:
    """The devices of a study on several, without those that were down at the end of the `last` run.

    If all of them were down, all are returned. Raises NodeError.
    """
    entries: list[DeviceEntry] = []
    for number, (options, cores) in enumerate(named_devices(study.node_kind, study.node_options())):
        device = open_node(study.node_kind, options, Path(), number).identity
        if (same := next((entry["number"] for entry in entries if entry["device"] == device), None)) is not None:
            raise NodeError(
                f"devices {same} and {number} of the study have one identity; name each once, and give nodes of a "
                "cluster machine ids of their own (/etc/machine-id)"
            )
        entries.append(
            {"number": number, "options": options, "device": device, "cores": cores, "failure": None, "down": None}
        )
    down = {entry["device"] for entry in last.get("devices", []) if entry["down"]}
    return [entry for entry in entries if entry["device"] not in down] or entries


def study_placement(study: Study, results: Path) -> Placement | None:
    """The placement of a study on several devices; None on one device, and where no device is found."""
    if not uses_several_devices(study.config, study.node_kind):
        return None
    try:
        devices = study_devices(study, run_record.last_run(results))
    except NodeError:
        # Tables and figures can be built from copied results without a device; a run that measures reports the error.
        return None
    return Placement(study, devices, assign_devices(study, devices, results))


def run_placement(study: Study, results: Path, places: Placement | None, is_restore: bool = False) -> Placement | None:
    """The placement of a run that needs the node; None on one device. `places` comes from `study_placement`.

    A restore includes devices that were down: the last run may have left them changed. Raises NodeError.
    """
    if not uses_several_devices(study.config, study.node_kind) or (places is not None and not is_restore):
        return places
    devices = study_devices(study, {})
    return Placement(study, devices, assign_devices(study, devices, results))


def assign_devices(study: Study, devices: Sequence[DeviceEntry], results: Path) -> dict[str, int]:
    """The number of a device by `placement_key`."""
    group_of = workload_groups(study)
    units: dict[tuple[int, str], list[Cell]] = {}
    for cell in sorted(study.cells, key=lambda cell: (study.block(cell), cell)):
        units.setdefault((study.block(cell), group_of[cell.workload]), []).append(cell)
    numbers = {entry["device"]: number for number, entry in enumerate(devices)}
    chosen = {unit: numbers.get(_device_of_newest_record(cells, results)) for unit, cells in units.items()}
    load: Counter[int] = Counter()
    repeats: Counter[tuple[str, int]] = Counter()
    # Blocks with records come first; the others are distributed around them.
    for unit in sorted(units, key=lambda unit: (chosen[unit] is None, unit)):
        number = chosen[unit]
        if number is None:
            number = min(numbers.values(), key=lambda each: (load[each], repeats[unit[1], each], each))
        chosen[unit] = number
        load[number] += len(units[unit])
        repeats[unit[1], number] += 1
    return {placement_key(study, cell): chosen[unit] or 0 for unit, cells in units.items() for cell in cells}


def workload_groups(study: Study) -> dict[str, str]:
    """The group of each workload that must share a device: a sweep, or a mix with the baselines of its components."""
    names = {name for cell in study.cells for name in (cell.workload, *study.components(cell))}
    group_of = {name: study.sweep_name(name) for name in names}
    for cell in study.cells:
        merged = {group_of[name] for name in (cell.workload, *study.components(cell))}
        group_of = {name: min(merged) if group in merged else group for name, group in group_of.items()}
    return group_of


def _device_of_newest_record(cells: Sequence[Cell], results: Path) -> str:
    """Identity of the device that the newest of these cells' records names; empty without a record."""
    records = [path for cell in cells if (path := results / cell.raw).is_file()]
    try:
        newest = max(records, key=lambda path: path.stat().st_mtime)
        device = device_identity(read_json(newest, "node")["node"])
    except (ValueError, OSError, DamagedFile, KeyError, TypeError):
        return ""
    return device
