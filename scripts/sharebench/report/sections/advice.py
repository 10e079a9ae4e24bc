"""What the report says of the decision: the advice, the model behind its predictions, capacity and cost."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.figures import data
from sharebench.figures.data import DrawnStudy

Row = dict[str, Any]
ADVICE = ("workload", "strategy", "basis", "verdict", "percentile", "effort", "reason", "isolation")
ISOLATION = tuple(f"{kind}_isolation{end}" for kind in ("performance", "fault") for end in ("", "_basis"))


def advice(study: DrawnStudy) -> dict[str, Any]:
    """The question, the answers in words, and the rows of each workload; empty answers where there is no advice."""
    lines = _lines(study.results / "tables" / "advice.md")
    table = data.table(study, "advice", (*ADVICE, *ISOLATION))
    return {
        "caption": lines[0] if lines else "",
        "answers": [line.removeprefix("- ") for line in lines if line.startswith("- ")],
        "rows": _by_workload(table),
        "has_price": bool(table["price_per_hour"].notna().any()),
    }


def model(study: DrawnStudy) -> dict[str, Any]:
    """The chosen shape of each workload with its parameters, and how far off predictions are."""
    shapes = data.table(study, "model", ("workload", "shape", "parameter", "unit", "reason"))
    predictions = data.table(study, "predictions", ("strategy", "workload", "basis", "reason"))
    chosen = shapes[shapes["chosen"]]
    return {
        "parameters": _rows(chosen),
        "without": _rows(shapes[shapes["shape"] == ""].drop_duplicates("workload")),
        "errors": [_errors(str(name), rows) for name, rows in predictions.groupby("workload", sort=False)],
    }


def capacity(study: DrawnStudy) -> list[Row]:
    """Rows of tables/capacity.csv that say something of an SLO or of memory."""
    table = data.table(study, "capacity", ("strategy", "workload", "percentile", "bound", "reason"))
    return _rows(table[table["capacity_interpolated"].notna() | table["max_tenants_by_memory"].notna()])


def cost(study: DrawnStudy) -> list[Row]:
    """Rows of tables/cost.csv; none where no price is set."""
    table = data.table(study, "cost", ("strategy", "workload"))
    return _rows(table[table["price_per_hour"].notna()])


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _rows(table: pd.DataFrame) -> list[Row]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _by_workload(table: pd.DataFrame) -> dict[str, list[Row]]:
    return {str(name): _rows(rows) for name, rows in table.groupby("workload", sort=False)}


def _errors(workload: str, rows: pd.DataFrame) -> Row:
    """Largest residual of the model, cells that break it, and the largest error for a strategy that it had not seen."""
    seen, left_out = rows["residual_percent"].abs().max(), rows["left_out_residual_percent"].abs().max()
    broken = rows[rows["flagged"]]
    return {
        "workload": workload,
        "cells": int(rows["residual_percent"].notna().sum()),
        # Where there are as many numbers as cells, rounding errors are all that is left.
        "residual_percent": math.nan if pd.isna(seen) else round(float(seen), 9),
        "left_out_residual_percent": math.nan if pd.isna(left_out) else float(left_out),
        "broken": [f"{row['strategy']} with {row['replicas']}" for row in broken.to_dict("records")],
    }
