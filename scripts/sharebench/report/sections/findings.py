"""What the summary says of each strategy at its largest number of tenants, in plain words."""

import math
from typing import Any, NamedTuple

from sharebench.core.spec import in_words
from sharebench.core.strategies import is_again
from sharebench.figures import data as tables
from sharebench.report.words import digits, estimate

BASELINE = ("exclusive", 1, True)
"""Strategy and tenants of what every finding compares with, if it has a valid cell."""

CHANCE = 0.03
"""By how much a baseline may differ from itself without a word, as the logarithm of the ratio."""

Row = dict[str, Any]


class Statement(NamedTuple):
    """What the data say of one strategy, in plain words."""

    strategy: str
    text: str


def all_findings(rows: dict[str, list[Row]]) -> dict[str, list[Statement]]:
    """The findings of each workload, and of each that is part of a mix; pairs have a section of their own."""
    found = {}
    for workload, of_workload in rows.items():
        for tenant_workload in dict.fromkeys(row["tenant_workload"] for row in of_workload):
            if "+" not in workload:
                own = [row for row in of_workload if row["tenant_workload"] == tenant_workload]
                found[in_words(workload, tenant_workload)] = findings(own, rows.get(tenant_workload, []))
    return found


def findings(rows: list[Row], plain: list[Row]) -> list[Statement]:
    """One finding per strategy at its largest number of tenants, from all `rows` of a workload, in order.

    Where that has no valid measurement, the finding says why and goes on with the largest that has one. The workload
    alone is among `plain`, the same rows unless those are of a mix.
    """
    alone = next((row for row in plain if (row["strategy"], row["replicas"], row["n"] > 0) == BASELINE), None)
    found = []
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        own = [row for row in rows if row["strategy"] == strategy]
        measured = [row for row in own if row["n"] > 0]
        sentences = ["The baseline, measured a second time: what differs, differs by chance."] * is_again(strategy)
        if own[-1]["n"] == 0:
            reason = f" ({own[-1]['reason']})" if own[-1]["reason"] else ""
            sentences.append(f"{_tenants(own[-1])}: {tables.absence(own[-1])}{reason}.")
        if measured:
            sentences += _sentences(measured[-1], alone)
            if is_again(strategy):
                sentences += _chance(measured[-1]["slowdown"])
        found.append(Statement(strategy, " ".join(sentences)))
    return found


def _chance(slowdown: float) -> list[str]:
    """What a baseline that does not repeat means for all that is held against it; NaN has no sentence."""
    off = abs(math.log(slowdown)) if slowdown > 0 else 0.0
    if off < CHANCE:
        return []
    return [f"So differences of {100 * math.expm1(off):.0f} % can be chance alone with this workload."]


def _tenants(row: Row) -> str:
    if row["tenant_workload"] != row["workload"]:
        return f"Among {row['replicas']} tenants"
    return "One tenant" if row["replicas"] == 1 else f"{row['replicas']} tenants"


def _sentences(row: Row, alone: Row | None) -> list[str]:
    total_hz, slowdown = row["throughput_total_hz"], estimate(row, "slowdown")
    if row is alone or alone is None or not slowdown.value:
        p50_ms = digits(1e3 * row["latency_p50_seconds"]) or "unknown"
        sentences = [f"{_tenants(row)}: median latency {p50_ms} ms, {digits(total_hz)} iterations/s in total."]
    else:
        within = f" (95 % interval {slowdown.low} to {slowdown.high})" if slowdown.low else ""
        alone_hz = alone["throughput_total_hz"]
        sentences = [
            f"{_tenants(row)}: an iteration took on average {slowdown.value} times as long as alone{within}.",
            f"In total {total_hz / alone_hz:.2f} times the work of one exclusive tenant"
            f" ({digits(total_hz)} against {digits(alone_hz)} iterations/s).",
        ]
    if row["n"] < row["n_expected"]:
        sentences.append(f"From {row['n']} of {row['n_expected']} repeats.")
    if row["warnings"]:
        sentences.append(f"Cells with a warning: {row['warnings']} of {row['n_expected']}.")
    return sentences
