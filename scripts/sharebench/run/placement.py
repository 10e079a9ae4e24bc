"""Which of several devices measures what. A block of a workload, with its baseline, stays on one device.

Blocks are dealt one after another, so that a strategy is never on one device only, and a workload's repeats are on as
many devices as there are. A block with records goes on where they were measured, as long as that device is there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sharebench.core import run_record
from sharebench.core.files import DamagedFile, read_json
from sharebench.core.run_record import DeviceEntry, RunRecord
from sharebench.core.study_config import is_on_several
from sharebench.nodes import devices_of, open_node
from sharebench.nodes.contract import NodeError
from sharebench.nodes.node import Node
from sharebench.records.references import identity
from sharebench.study.cells import Cell
from sharebench.study.study import Study


@dataclass(frozen=True)
class Placement:
    """The devices of a run, and the number of one of them for each block of a workload (`key`)."""

    study: Study
    devices: list[DeviceEntry]
    numbers: Mapping[str, int]

    def number(self, cell: Cell) -> int:
        return self.numbers[key(self.study, cell)]

    def shares(self, cells: Iterable[Cell]) -> str:
        """How many of the cells each device measures: `0: 6 cells, 1: 6 cells`."""
        found = by_device(cells, self)
        each = enumerate(self.devices)
        return ", ".join(f"{entry['number']}: {len(found.get(number, []))} cells" for number, entry in each)


def by_device(cells: Iterable[Cell], places: Placement | None) -> dict[int, list[Cell]]:
    """The cells of each device, in their order; of one device all of them."""
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        found.setdefault(places.number(cell) if places else 0, []).append(cell)
    return found


def given_up(run: RunRecord) -> list[str]:
    """A line for each device of that run that is down."""
    gone = [entry for entry in run.get("devices", []) if entry["down"]]
    return [f"device {entry['number']} is down, the next run leaves it out: {entry['down']}" for entry in gone]


def gate_number(study: Study, strategy: str, devices: Sequence[DeviceEntry]) -> int:
    """The device on which the strategy is set up once before its cells.

    Where a state stays for all its cells, on the first: the cells there find it as it is.
    """
    return 0 if study.order == "strategy" else list(study.strategies).index(strategy) % len(devices)


def key(study: Study, cell: Cell) -> str:
    """What stays on one device, as the run record has it."""
    return f"{study.block(cell)}/{cell.workload}"


def nodes_of(study: Study, results: Path, devices: Sequence[DeviceEntry] = ()) -> list[Node]:
    """The study's node, or that of each device of several, whose states lie in folders by their identities."""
    kind, folder = study.node_kind, run_record.state_folder(results) / "node"
    if not devices:
        return [open_node(kind, study.node_options(), folder)]
    return [open_node(kind, each["options"], folder / each["device"], each["number"]) for each in devices]


def devices(study: Study, last: RunRecord) -> list[DeviceEntry]:
    """The devices of a study on several; one that the last run here gave up is left out, if there are others.

    Raises NodeError.
    """
    found: list[DeviceEntry] = []
    for number, (options, cores) in enumerate(devices_of(study.node_kind, study.node_options())):
        device = open_node(study.node_kind, options, Path(), number).identity
        if (same := next((entry["number"] for entry in found if entry["device"] == device), None)) is not None:
            raise NodeError(
                f"devices {same} and {number} of the study have one identity; name each once, and give nodes of a "
                "cluster machine ids of their own (/etc/machine-id)"
            )
        found.append(
            {"number": number, "options": options, "device": device, "cores": cores, "failure": None, "down": None}
        )
    given_up = {entry["device"] for entry in last.get("devices", []) if entry["down"]}
    return [entry for entry in found if entry["device"] not in given_up] or found


def of_study(study: Study, results: Path) -> Placement | None:
    """The placement of a study on several devices; None on one, and where no device is there."""
    if not is_on_several(study.config, study.node_kind):
        return None
    try:
        found = devices(study, run_record.read_run(results))
    except NodeError:
        # Of results that were copied here, tables and figures can be made; a run that measures names what is missing.
        return None
    return Placement(study, found, placed(study, found, results))


def of_run(study: Study, results: Path, places: Placement | None, is_way_back: bool = False) -> Placement | None:
    """The placement of a run that needs the node (`of_study`); None on one device.

    The way back is for devices, too, that the last run gave up: it may have left them changed. Raises NodeError.
    """
    if not is_on_several(study.config, study.node_kind) or (places is not None and not is_way_back):
        return places
    found = devices(study, {})
    return Placement(study, found, placed(study, found, results))


def placed(study: Study, found: Sequence[DeviceEntry], results: Path) -> dict[str, int]:
    """The number of a device by `key`."""
    of = groups(study)
    units: dict[tuple[int, str], list[Cell]] = {}
    for cell in sorted(study.cells, key=lambda cell: (study.block(cell), cell)):
        units.setdefault((study.block(cell), of[cell.workload]), []).append(cell)
    numbers = {entry["device"]: number for number, entry in enumerate(found)}
    chosen = {unit: numbers.get(_measured_on(cells, results)) for unit, cells in units.items()}
    load: Counter[int] = Counter()
    was_here: Counter[tuple[str, int]] = Counter()
    # Those with a place first, which the others are dealt around.
    for unit in sorted(units, key=lambda unit: (chosen[unit] is None, unit)):
        number = chosen[unit]
        if number is None:
            number = min(numbers.values(), key=lambda each: (load[each], was_here[unit[1], each], each))
        chosen[unit] = number
        load[number] += len(units[unit])
        was_here[unit[1], number] += 1
    return {key(study, cell): chosen[unit] or 0 for unit, cells in units.items() for cell in cells}


def groups(study: Study) -> dict[str, str]:
    """For each workload one of those that must be where it is: a mix refers to the baselines of what it is of."""
    of = {name: name for cell in study.cells for name in (cell.workload, *study.components(cell))}
    for cell in study.cells:
        together = {of[name] for name in (cell.workload, *study.components(cell))}
        of = {name: min(together) if group in together else group for name, group in of.items()}
    return of


def _measured_on(cells: Sequence[Cell], results: Path) -> str:
    """Identity of the device of the newest of these cells' records; empty without a record."""
    there = [path for cell in cells if (path := results / cell.raw).is_file()]
    try:
        newest = max(there, key=lambda path: path.stat().st_mtime)
        device = identity(read_json(newest, "node")["node"])
    except (ValueError, OSError, DamagedFile, KeyError, TypeError):
        return ""
    return device
