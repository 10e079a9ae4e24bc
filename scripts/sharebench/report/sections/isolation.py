"""What the faults of a study say of each strategy, in plain words."""

import math
from typing import Any

import pandas as pd

from sharebench.figures.data import DrawnStudy, isolation
from sharebench.figures.isolation import verdict


def survivals(study: DrawnStudy) -> list[tuple[str, str]]:
    """Strategy and who survived whose fault under it; empty without faults."""
    if not study.config["faults"]:
        return []
    table = isolation(study)
    return [(strategy, _sentences(table[table["strategy"] == strategy])) for strategy in study.strategies(table)]


def _sentences(rows: pd.DataFrame) -> str:
    by_outcome: dict[str, list[str]] = {}
    for kind in dict.fromkeys(rows["fault"]):
        outcome, _ = verdict(rows[rows["fault"] == kind])
        by_outcome.setdefault(outcome, []).append(kind)
    words = {
        "failed": "A victim failed beside",
        "slowed": "Slowed, but alive, beside",
        "unharmed": "Unharmed beside",
        "survived": "Survived, with latencies that cannot be judged, beside",
        "": "Not known beside",
    }
    sentences = [
        f"{text}: {', '.join(by_outcome[outcome])}." for outcome, text in words.items() if outcome in by_outcome
    ]
    seconds = [float(value) for value in rows["new_tenant_seconds"] if not math.isnan(value)]
    if seconds:
        sentences.append(f"Afterwards a new tenant was ready within {max(seconds):.2g} s.")
    again: list[dict[Any, Any]] = rows[rows["set_up_again"] > 0].to_dict("records")
    if again:
        sentences.append(f"Had to be set up again after: {', '.join(dict.fromkeys(row['fault'] for row in again))}.")
    return " ".join(sentences)
