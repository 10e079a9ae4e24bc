"""How long strategies take to be set, in the steps that a node tells apart, and to be left."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sharebench.figures import data

# Columns of the table with a step each.
STEPS = ("publish", "pending", "cut", "plugin", "follow", "stable")
# Below, nobody waits for a switch.
LEAST_SECONDS = 0.1


def switches(study: data.DrawnStudy) -> list[dict[str, Any]]:
    """A row per strategy, in seconds; none where no switch takes a tenth of a second."""
    table = data.startup(study).drop_duplicates("strategy")
    if not (table[["switch_in_seconds", "switch_out_seconds"]] >= LEAST_SECONDS).any(axis=None):
        return []
    return [_row(table[table["strategy"] == strategy].iloc[0]) for strategy in study.strategies(table)]


def _row(row: pd.Series) -> dict[str, Any]:
    steps = {step: float(row[f"switch_{step}_seconds"]) for step in STEPS}
    known = [seconds for seconds in steps.values() if not math.isnan(seconds)]
    return {
        "strategy": row["strategy"],
        "set": float(row["switch_in_seconds"]),
        "n": int(row["switch_in_n"]),
        **steps,
        "rest": max(0.0, float(row["switch_in_seconds"]) - sum(known)) if known else math.nan,
        "left": float(row["switch_out_seconds"]),
    }
