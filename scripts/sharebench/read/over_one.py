"""What tenants do together over one tenant alone, from tables/cells.csv: for the figure `replicas` and the advice.

Servers that stream under a closed load are compared by their output tokens, whose number per request may vary, and all
other tenants by what they finish. One alone is the mean of its two measurements, the baseline and its A/A control.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from sharebench.model.strategies import control_name
from sharebench.model.study_config import StudyConfig
from sharebench.read.grouping import group_by
from sharebench.read.statistics.intervals import Estimate, Place, log_interval, welch_ratio
from sharebench.study.loads import requests_in_flight

Row = dict[str, Any]
GroupKey = tuple[str, str, int]
"""Strategy, workload and number of tenants."""
CELL = ["strategy", "workload", "replicas", "run_id", "device", "machine", "block", "repeat"]
"""Columns of cells.csv that identify a cell and its place."""
THROUGHPUT, TOKENS = "throughput_hz", "output_tokens_hz"


def cell_groups(tenants: pd.DataFrame, config: StudyConfig, *others: str) -> dict[GroupKey, list[Row]]:
    """A row for each cell with its `place`, the `work` of all its tenants, and `others` of the first of them."""
    tenants = tenants.reindex(columns=[*CELL, "status", "valid", THROUGHPUT, TOKENS, *others])
    tenants = tenants.astype({"machine": object}).fillna({"machine": ""})
    streams = {name for name in tenants["workload"].unique() if requests_in_flight(config, name, 1) is not None}
    tenants["work"] = tenants[TOKENS].where(tenants["workload"].isin(streams), tenants[THROUGHPUT])
    of_cell = {"status": "first", "valid": "all", "work": "sum", **dict.fromkeys(others, "first")}
    cells = tenants.groupby(CELL, sort=False).agg(of_cell).reset_index().to_dict("records")
    # Blocks are paired within a run, of several devices within a device.
    scope = "device" if len({cell["device"] for cell in cells}) > 1 else "run_id"
    rows: list[Row] = [
        {str(column): value for column, value in cell.items()}
        | {"place": Place(cell["device"], cell["machine"] or None)}
        | {"block": (cell[scope], cell["block"], cell["repeat"]), "valid": cell["valid"] and cell["work"] > 0}
        for cell in cells
    ]
    return group_by(rows, lambda row: (row["strategy"], row["workload"], row["replicas"]))


def cells_alone(groups: Mapping[GroupKey, list[Row]], baseline: str, workload: str) -> list[Row]:
    """The cells of one tenant alone, both of the baseline and of its A/A control."""
    return [cell for name in (baseline, control_name(baseline)) for cell in groups.get((name, workload, 1), ())]


def work_ratio(over: list[Row], under: list[Row]) -> Estimate | None:
    """Ratio of the work of valid cells, by their pairs in a block; of one device without pairs of their means."""
    tops, bottoms = _by_block(over), _by_block(under)
    if pairs := [(tops[block], bottoms[block]) for block in tops if block in bottoms]:
        return log_interval([top["work"] / one["work"] for top, one in pairs], [top["place"] for top, _ in pairs])
    if not (tops and bottoms) or len({cell["device"] for cell in (*tops.values(), *bottoms.values())}) > 1:
        return None
    values, of_one = ([cell["work"] for cell in each.values()] for each in (tops, bottoms))
    return welch_ratio(values, of_one)


def _by_block(cells: list[Row]) -> dict[object, Row]:
    """A valid cell for each block; one alone and its A/A control count as one, by their geometric mean."""
    found = group_by((cell for cell in cells if cell["valid"]), lambda cell: cell["block"])
    means = {block: log_interval([cell["work"] for cell in own]).value for block, own in found.items()}
    return {block: own[0] | {"work": means[block]} for block, own in found.items()}
