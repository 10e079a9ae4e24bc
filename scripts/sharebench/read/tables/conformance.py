"""tables/conformance.csv and .xml: whether each strategy keeps its promises, from the cells of a conformance study.

No gate excludes a cell here: a promise that is not kept is what these cells look for. Where the machine was not fit to
measure times (`gates.MACHINE`), what a rate or a latency shows is not measured.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import pandas as pd

from sharebench.model.promises import BROKEN, KEPT, NOT_MEASURED, NOT_PROMISED, Promise, promises
from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import FaultOutcome, PhaseWindow, Promises, Record, TenantRecord, VisibleProcess
from sharebench.model.spec import parse_spec, workload_reference
from sharebench.read.cells.rows import supported_percentiles
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.gates.gates import MACHINE
from sharebench.read.histogram import Histogram
from sharebench.read.statistics.intervals import required_count

FAULT = "fault"
FOUND_TASKS = ("look_after_free", "look_after_end", "look_shared")


class NotMeasured(Exception):
    """Why a promise was not measured in a cell."""


def machine_problem(record: Record) -> str | None:
    """Why the machine was not fit to measure times in the cell's window, whatever its status; None if it was."""
    verdicts = [check(record) for check in MACHINE.values()] if record["window"] else []
    return next((verdict.message for verdict in verdicts if verdict and not verdict.passed), None)


@dataclass(frozen=True)
class ConformanceCell:
    """A cell that measured promises; `alone` is that of one tenant that has the device."""

    record: Record
    found: Promises
    alone: "ConformanceCell | None"

    @property
    def tenants(self) -> list[TenantRecord]:
        return self.record["tenants"]

    @property
    def rates_hz(self) -> list[float]:
        """Rate of each tenant while all are busy. Raises NotMeasured."""
        self._check_times()
        seconds = window_seconds(self.record) if self.record["window"] else math.inf
        return [tenant["count"] / seconds for tenant in self.tenants]

    @property
    def windows(self) -> Mapping[str, PhaseWindow]:
        """The short windows of other modes. Raises NotMeasured."""
        self._check_times()
        return self.found["windows"]

    def _check_times(self) -> None:
        if problem := machine_problem(self.record):
            raise NotMeasured(problem)

    @property
    def alone_hz(self) -> float:
        """Rate of one tenant that has the device. Raises NotMeasured."""
        if self.alone is None:
            raise NotMeasured("there is no rate of one tenant that has the device")
        try:
            return self.alone.rates_hz[0]
        except NotMeasured as problem:
            raise NotMeasured(f"of one tenant that has the device: {problem}") from None

    def shares_percent(self) -> list[float] | None:
        """The share of the device that each tenant is given; None where that is not known.

        An instance and a green context have SMs of their own, which CUDA or, on the stand-in, the affinity mask shows.
        """
        strategy, units = parse_spec(self.record["spec"]).strategy, self.record["node"]["units"]
        if strategy.mechanism[0] in ("mig", "green-contexts"):
            own = list(map(_units, self.tenants))
            return [100 * each / units for each in own if each] if units and all(own) else None
        tenants = len(self.tenants)
        limits = [strategy.tenant_limits(tenants, index).thread_percent for index in range(tenants)]
        known = [limit for limit in limits if limit is not None]
        # Without limits an even share is what one might expect.
        return known if len(known) == len(limits) else [100 / tenants] * tenants

    def task(self, name: str, key: str) -> list[float]:
        """What the tenants' results of a task have under that key."""
        return [result[key] for result in self.found["tasks"].get(name, []) if result.get(key) is not None]


def _units(tenant: TenantRecord) -> int | None:
    view, cpu = tenant["view"], tenant["cpu"]
    if view is not None:
        return view["sm_count"]
    return len(cpu["affinity"]) if cpu and cpu["affinity"] else None


def _share(cell: ConformanceCell) -> float | None:
    shares, rates_hz = cell.shares_percent(), cell.rates_hz
    if not cell.alone_hz or shares is None:
        return None
    ratios = [1e4 * hz / cell.alone_hz / share for hz, share in zip(rates_hz, shares, strict=True)]
    return max(ratios, key=lambda ratio: abs(ratio - 100))


def _share_idle(cell: ConformanceCell) -> float | None:
    shares, found = cell.shares_percent(), cell.windows
    if not cell.alone_hz or shares is None:
        return None
    ratios = [
        1e4 * (window["tenants"][index]["count"] / window["seconds"]) / cell.alone_hz / share
        for index, share in enumerate(shares)
        if (window := found.get(f"alone-{index}"))
    ]
    return max(ratios, default=None)


def _memory(cell: ConformanceCell) -> float | None:
    total = cell.record["node"]["memory_bytes"]
    strategy, ratios = parse_spec(cell.record["spec"]).strategy, []
    for result in cell.found["tasks"].get("largest_allocation", []):
        if total and (largest := result.get("largest_bytes")) is not None:
            limit = strategy.tenant_limits(len(cell.tenants), result["tenant"]).memory_bytes(total)
            ratios.append(100 * largest / (limit or total))
    return max(ratios, default=None)


def _answers(cell: ConformanceCell) -> float | None:
    results = cell.found["tasks"].get("answers", [])
    wrong = [len(result["wrong"]) for result in results if "wrong" in result]
    return sum(wrong) if wrong and len(wrong) == len(results) else None


def _check_neighbour(cell: ConformanceCell) -> None:
    if len(cell.tenants) == 1:
        raise NotMeasured("one tenant has no neighbour")


def _bytes(cell: ConformanceCell) -> float | None:
    _check_neighbour(cell)
    keys = ("found_bytes", "shared_found_bytes")
    found = [value for name in FOUND_TASKS for key in keys for value in cell.task(name, key)]
    return sum(found) if found else None


def _looked_at(name: str, cell: ConformanceCell) -> float | None:
    """How many results were checked, or bytes looked into; None for other promises."""
    tasks, keys = {
        "answers": (("answers",), ("checked",)),
        "bytes": (FOUND_TASKS, ("looked_bytes", "shared_looked_bytes")),
    }.get(name, ((), ()))
    return sum(value for task in tasks for key in keys for value in cell.task(task, key)) or None


def _fair(cell: ConformanceCell) -> float | None:
    _check_neighbour(cell)
    shares, rates_hz = cell.shares_percent(), cell.rates_hz
    is_equal = shares is None or len(set(shares)) == 1
    if not is_equal or not max(rates_hz):
        return None
    return max(rates_hz) / min(rates_hz) if min(rates_hz) else math.inf


def _light(cell: ConformanceCell) -> float | None:
    _check_neighbour(cell)
    windows = [window for name in ("light-next-to-busy", "light-alone") if (window := cell.windows.get(name))]
    histograms = [Histogram.from_sparse(window["tenants"][0]["histogram"]) for window in windows]
    found = [supported_percentiles(each, each.count).get("p95") for each in histograms]
    p95 = [seconds for each in found if each and (seconds := each.value_seconds)]
    if len(p95) < len(found):
        few = any(each.count < required_count(0.95) for each in histograms)
        problem = f"had fewer than {required_count(0.95)} iterations" if few else "has a p95 beyond the buckets"
        raise NotMeasured(f"the light tenant {problem}")
    return p95[0] / p95[1] if len(p95) == 2 else None


def _listed(cell: ConformanceCell) -> Sequence[VisibleProcess | None]:
    if not cell.found["visible"]:
        raise NotMeasured(f"{cell.record['node']['kind']} lists no processes of a GPU; measure it with node: nvidia")
    return cell.found["visible"]


def _visible(cell: ConformanceCell) -> float | None:
    listed = _listed(cell)
    return 100 * sum(each is not None for each in listed) / len(listed)


def _utilisation(cell: ConformanceCell) -> float | None:
    used = [each and each["utilisation_percent"] for each in _listed(cell)]
    rates_hz = cell.rates_hz
    if any(each is None for each in used):
        raise NotMeasured("the driver gives no utilisation of its tenants")
    if not cell.alone_hz:
        return None
    truth = [100 * hz / cell.alone_hz for hz in rates_hz]
    return max(abs(float(each or 0) - true) for each, true in zip(used, truth, strict=True))


MEASURES: Mapping[str, Callable[[ConformanceCell], float | None]] = {
    "share": _share,
    "share-idle": _share_idle,
    "memory": _memory,
    "answers": _answers,
    "bytes": _bytes,
    "fair": _fair,
    "light": _light,
    "visible": _visible,
    "utilisation": _utilisation,
    "start": lambda cell: 100 * sum(tenant["count"] > 0 for tenant in cell.tenants) / len(cell.tenants),
}
"""How each promise but that of faults is measured, in its unit; None where it was not, or raises NotMeasured."""


def conformance_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row for each promise of each cell that was measured, in the order of promises; of faults one for each kind."""
    rows = sorted(_rows(records), key=lambda row: list(promises()).index(str(row["promise"]).partition(" ")[0]))
    return table_frame("conformance", rows)


def _rows(records: Sequence[Record]) -> Iterator[TableRow]:
    alone = [
        ConformanceCell(record, found, None)
        for record in records
        if (found := record.get("promises")) and parse_spec(record["spec"]).strategy.mechanism == ("exclusive",)
    ]
    alone.sort(key=lambda cell: machine_problem(cell.record) is not None)
    for record in records:
        if (fault := record.get("fault")) is not None:
            harmed = _harmed(record, fault) if fault["happened"] else None
            yield _row(f"{FAULT} {fault['kind']}", promises()[FAULT], record, harmed)
        elif (found := record.get("promises")) is not None:
            cell = ConformanceCell(record, found, alone[0] if alone else None)
            for name, measure in MEASURES.items():
                measured, reason = None, found["failure"]
                try:
                    measured = measure(cell)
                except NotMeasured as problem:
                    reason = str(problem)
                yield _row(name, promises()[name], record, measured, reason) | {"of": _looked_at(name, cell)}
        elif record["status"] not in ("infeasible", "not-measured"):
            for name in MEASURES:
                yield _row(name, promises()[name], record, 0.0 if name == "start" else None, record["reason"])


def _harmed(record: Record, fault: FaultOutcome) -> float:
    """Neighbours of a fault that failed or computed something else."""
    spec = parse_spec(record["spec"])
    return sum(
        tenant["status"] != "ok" or not _is_right(record, tenant, spec.workloads[tenant["index"]].output_tolerance)
        for tenant in record["tenants"]
        if tenant["index"] != fault["aggressor"]
    )


def _is_right(record: Record, tenant: TenantRecord, tolerance: float) -> bool:
    right = workload_reference(record["calibration"], tenant["workload"]).get("output_digest")
    digest = tenant["output_digest"]
    if digest is None or right is None or len(digest) != len(right):
        return right is None
    return all(
        one is not None and math.isclose(one, other, rel_tol=tolerance)
        for one, other in zip(digest, right, strict=True)
    )


def _row(name: str, promise: Promise, record: Record, measured: float | None, failure: str | None = None) -> TableRow:
    strategy = parse_spec(record["spec"]).strategy
    statement = promise.statement(strategy.mechanism)
    is_made = statement is not None and statement.is_made(record["limits"])
    verdict = NOT_PROMISED
    if is_made:
        verdict = NOT_MEASURED if measured is None else KEPT if promise.is_kept(measured) else BROKEN
    return {
        "promise": name,
        "strategy": record["cell"]["strategy"],
        "replicas": record["cell"]["replicas"],
        "repeat": record["cell"]["repeat"],
        "promised": is_made,
        "measured": measured,
        "unit": promise.unit,
        "limit": promise.limit,
        "verdict": verdict,
        "source": "" if statement is None else statement.source,
        "reason": (failure or record["reason"] or "it was not measured here") if measured is None else None,
    }


def junit(table: pd.DataFrame) -> str:
    """The table as JUnit XML: a suite for each strategy, a failure for each promise that is broken."""
    root = ElementTree.Element("testsuites", {"name": "conformance", **_counts(table)})
    for strategy, rows in table.groupby("strategy", sort=False):
        suite = ElementTree.SubElement(root, "testsuite", {"name": str(strategy), **_counts(rows)})
        for row in rows.to_dict("records"):
            name = f"{row['promise']}, {row['replicas']} tenants, repeat {row['repeat']}"
            case = ElementTree.SubElement(suite, "testcase", classname=f"conformance.{strategy}", name=name)
            measured = "" if pd.isna(row["measured"]) else f"{row['measured']:.4g} {row['unit']}"
            if row["verdict"] == BROKEN:
                message = f"{measured}, promised: {row['limit']}"
                ElementTree.SubElement(case, "failure", message=message).text = str(row["source"])
            elif row["verdict"] == NOT_MEASURED:
                ElementTree.SubElement(case, "error", message=str(row["reason"]))
            elif row["verdict"] == NOT_PROMISED:
                ElementTree.SubElement(case, "skipped", message=f"not promised; {measured or 'not measured'}")
            else:
                ElementTree.SubElement(case, "system-out").text = measured
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(rows: pd.DataFrame) -> dict[str, str]:
    verdicts = {"failures": BROKEN, "errors": NOT_MEASURED, "skipped": NOT_PROMISED}
    counts = {name: str(int((rows["verdict"] == verdict).sum())) for name, verdict in verdicts.items()}
    return {"tests": str(len(rows)), **counts}
