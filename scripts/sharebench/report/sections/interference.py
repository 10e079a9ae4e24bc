"""What the pairs of a study say of each strategy, in plain words."""

import math
from typing import Any

import pandas as pd

from sharebench.figures.data import DrawnStudy, interference

Row = dict[str, Any]


def verdicts(study: DrawnStudy) -> list[tuple[str, str]]:
    """Strategy and what its pairs say: the worst, and the one whose two suffer least alike; empty without pairs."""
    if not study.config["interference"]:
        return []
    table = interference(study)
    return [(strategy, _verdict(table[table["strategy"] == strategy])) for strategy in study.strategies(table)]


def _verdict(table: pd.DataFrame) -> str:
    rows: list[Row] = [
        {str(key): value for key, value in row.items()}
        for row in table.to_dict("records")
        if not math.isnan(row["slowdown"])
    ]
    if not rows:
        return "No pair has a valid measurement."
    worst = max(rows, key=lambda row: float(row["slowdown"]))
    interval = ""
    if not math.isnan(worst["slowdown_low"]):
        interval = f" (95 % interval {worst['slowdown_low']:.2f} to {worst['slowdown_high']:.2f})"
    sentences = [
        f"Worst: beside {worst['aggressor']}, an iteration of {worst['victim']} takes {worst['slowdown']:.2f} times"
        f" as long as alone{interval}."
    ]
    of = {(row["victim"], row["aggressor"]): float(row["slowdown"]) for row in rows}
    ratios = {pair: of[pair] / of[pair[::-1]] for pair in of if pair[0] != pair[1] and pair[::-1] in of}
    if ratios:
        loser, winner = max(ratios, key=lambda pair: ratios[pair])
        sentences.append(
            f"Least alike: {loser} beside {winner} takes {of[loser, winner]:.2f} times as long, {winner} beside {loser}"
            f" {of[winner, loser]:.2f} times, a ratio of {ratios[loser, winner]:.2f}."
        )
    if len(rows) < len(table):
        sentences.append(f"Without a valid measurement: {len(table) - len(rows)} of {len(table)}.")
    return " ".join(sentences)
