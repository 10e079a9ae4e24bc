"""What the report shows of one combination of strategy, workload and tenants when it is chosen, as compact JSON."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenant.contract import BUCKET_COUNT

BUDGET_BYTES = 1_500_000
"""So much of the report may be details; what does not fit is counted, and stays in the records."""
MOST_BARS = 64
MOST_TENANTS = 8
"""So many tenants of a cell have their timeline in the report."""
DIGITS = 4

Key = tuple[str, str, int]
"""Strategy, workload, replicas."""


class Embedded(NamedTuple):
    """Details as text for a script element, and of how many combinations."""

    text: str
    shown: int
    known: int


class Details:
    """Gathers the records of a study, given one by one; small, whatever their number."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[str, Any]] = {}
        self._pooled: dict[Key, dict[str, Counter[int]]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in one raw.json; those of one combination in the order of their repeats."""
        cell = record["cell"]
        key = (cell["strategy"], cell["workload"], cell["replicas"])
        failed = [gate["name"] for gate in record["gates"] if not gate["passed"] and gate["severity"] == "invalid"]
        is_valid = record["status"] == "ok" and not failed
        outcome = "valid" if is_valid else f"excluded by {', '.join(failed)}" if failed else record["status"]
        if record["reason"]:
            outcome += f": {record['reason']}"
        mine = self._of.setdefault(key, {"repeats": [], "of_valid": False})
        mine["repeats"].append([cell["repeat"], outcome])
        if (is_valid and not mine["of_valid"]) or len(mine["repeats"]) == 1:
            # The first record stands for the combination until there is a valid one.
            mine |= {"of_valid": is_valid, "shown": cell["repeat"], **_of_one(record)}
            self._pooled[key] = {}
        if is_valid or (not mine["of_valid"] and mine["shown"] == cell["repeat"]):
            for tenant in record["tenants"]:
                counts = self._pooled[key].setdefault(tenant["workload"], Counter())
                counts.update({int(index): count for index, count in tenant["histogram"].items()})

    def embedded(self, budget_bytes: int = BUDGET_BYTES) -> Embedded:
        """As many combinations as the budget holds, in the order of the study."""
        texts, used = [], 0
        for key, mine in self._of.items():
            histograms = [[name, *_bars(counts)] for name, counts in self._pooled[key].items() if counts]
            value = {**mine, "histograms": histograms}
            text = f"{_json('/'.join(map(str, key)))}:{_json(value)}"
            used += len(text.encode()) + 1
            if used > budget_bytes:
                break
            texts.append(text)
        return Embedded("{" + ",".join(texts) + "}", len(texts), len(self._of))


def _json(value: Any) -> str:
    """Compact JSON that cannot end the script element which holds it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _of_one(record: Mapping[str, Any]) -> dict[str, Any]:
    """Timelines (ms), gates and evidence of one record."""
    timelines = [tenant["timeline"] for tenant in record["tenants"][:MOST_TENANTS] if tenant["timeline"] is not None]
    evidence = Counter(
        (item["name"], _words(item["expected"]), _words(item["observed"]), item["holds"]) for item in record["evidence"]
    )
    return {
        "slot_seconds": timelines[0]["slot_seconds"] if timelines else None,
        "timelines": [
            [
                _short(1e3 * total / count) if count else None
                for total, count in zip(timeline["sum_seconds"], timeline["count"], strict=True)
            ]
            for timeline in timelines
        ],
        "tenants": len(record["tenants"]),
        "gates": [
            [
                gate["name"],
                gate["severity"],
                *map(_short, (gate["value"], gate["limit"])),
                gate["passed"],
                gate["message"],
            ]
            for gate in record["gates"]
        ],
        "evidence": [[*item, count] for item, count in evidence.items()],
    }


def _short(value: Any) -> Any:
    """A finite number with few digits; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _bars(counts: Counter[int]) -> tuple[int, int, list[int]]:
    """First bucket, buckets per bar, and the count of each bar: as fine as MOST_BARS allows."""
    # The overflow has no upper bound and gets no bar of its own.
    first, last = min(counts), min(max(counts), BUCKET_COUNT - 1)
    per_bar = 1
    while (last - first) // per_bar >= MOST_BARS:
        per_bar *= 2
    bars = [0] * ((last - first) // per_bar + 1)
    for index, count in counts.items():
        bars[(index - first) // per_bar] += count
    return first, per_bar, bars
