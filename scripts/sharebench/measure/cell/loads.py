"""The load of each tenant of a cell: what the config asks of one tenant, or its part of what it asks of all."""

import zlib
from collections.abc import Mapping

from sharebench.measure.nodes.contract import PlannedLoad
from sharebench.model.records.types import Calibration
from sharebench.model.spec import Spec
from sharebench.model.workload import Workload
from tenant.contract.trace import mean_rate_hz, read_trace

# How often fixed prompts are asked: in a cell before the load and after the window, for the calibration once more.
CALIBRATION_ASKS, CELL_ASKS = 3, 2


def planned_loads(spec: Spec, calibrations: Mapping[str, Calibration]) -> list[PlannedLoad]:
    """The loads of a cell's tenants, in order.

    `calibrations` is empty while calibrating. A rate that is a share of capacity needs the workload's calibration.
    """
    workloads = spec.workloads
    names = [workload.name for workload in workloads]
    return [
        _planned_load(
            workload,
            calibrations.get(workload.name),
            spec.repeat,
            before=index - names[:index].count(workload.name),
            number=names[:index].count(workload.name),
            tenants=names.count(workload.name),
        )
        for index, workload in enumerate(workloads)
    ]


def _planned_load(
    workload: Workload, calibration: Calibration | None, repeat: int, before: int, number: int, tenants: int
) -> PlannedLoad:
    """The load of tenant `number` of the `tenants` with this workload; `before` it are as many with others."""
    load, parts = workload.load, tenants if workload.load.rate_for == "all" else 1
    rate_hz = load.rate_hz
    if (share := load.rate_of_capacity) is not None:
        assert calibration is not None
        rate_hz = share * calibration["capacity_hz"]
    elif load.arrival == "trace":
        rate_hz = mean_rate_hz(read_trace(str(load.trace)))
    # Arrivals differ by repeat and workload, and are the same for all strategies.
    seed = zlib.crc32(f"{workload.name}/{repeat}".encode())
    planned: PlannedLoad = {"arrival": load.arrival, "seed": seed, "before": before}
    concurrency = load.concurrency
    if (total := load.concurrency_total) is not None:
        concurrency = total // tenants + (number < total % tenants)
    if concurrency is not None:
        planned["concurrency"] = concurrency
    if rate_hz is not None:
        planned["rate_hz"] = rate_hz / parts
    if parts > 1:
        planned["parts"] = parts
    if calibration is None and workload.kind == "http" and workload.answers is not False:
        planned["asks"] = CALIBRATION_ASKS
    elif calibration is not None and calibration.get("answers"):
        planned["asks"] = CELL_ASKS
    return planned
