"""The answer for each workload as a card, from tables/advice.csv, advice.md and the summary."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sharebench.core.strategies import is_again
from sharebench.figures.data import Row, absence
from sharebench.report.sections.advice import Advice
from sharebench.report.words import estimate

MEASURED = "measured"
CHANGES = "What would change it: "
WHY = ("In throughput ", "In mean latency ", "Nothing that was measured ")
HOW_SURE = ("How sure", "Of the ")
"""How the reasons of advice.md begin that a card shows; the others are in its table of advice too."""


class Card(NamedTuple):
    """One workload: the best row of tables/advice.csv, or else None and why there is none."""

    workload: str
    best: Row | None
    why: list[str]
    changes: list[str]
    certainty: list[str]
    rivals: list[tuple[str, int, float, float]]
    """Strategies with a measured plan, the best first: devices, throughput of one, and in percent of the largest."""


def cards(advised: Advice, summary: Mapping[str, list[Row]], plain: Iterable[str]) -> list[Card]:
    """A card for each workload of the advice, then for each other one of `plain` that leaves no choice.

    `summary` has the rows of every workload.
    """
    found = [
        _answered(name, sentence, reasons, advised.rows.get(name, []), summary.get(name, []))
        for name, (sentence, reasons) in advised.answers.items()
    ]
    others = (name for name in plain if name not in advised.answers)
    return found + [Card(name, None, [why], [], [], []) for name in others if (why := _no_choice(summary[name]))]


def _answered(name: str, sentence: str, reasons: list[str], plans: list[Row], summary: list[Row]) -> Card:
    certainty = [each.partition(": see ")[0].rstrip(".") + "." for each in reasons if each.startswith(HOW_SURE)]
    if not plans or math.isnan(plans[0]["rank"]):
        return Card(name, None, [_no_choice(summary) or sentence, *reasons], [], [], [])
    best = plans[0]
    measured = [row for row in plans if row["rank"] > 0 and row["basis"] == MEASURED]
    why = [_against_one_alone(best, summary), *(each for each in reasons if each.startswith(WHY))]
    if [row["strategy"] for row in measured] == [best["strategy"]]:
        why.append(f"Only {best['strategy']} was measured: there is nothing to compare it with.")
    listed = next((each.removeprefix(CHANGES) for each in reasons if each.startswith(CHANGES)), "")
    changes = [
        each.replace(" it is ", ": ", 1).removesuffix(" on 1 device")
        for each in listed.removesuffix(".").split("; ")
        if each
    ]
    rates = [
        (row["strategy"], int(row["devices"]), hz) for row in measured if (hz := row["throughput_per_device_hz"]) > 0
    ]
    most = max((hz for *_, hz in rates), default=0.0)
    rivals = [(strategy, devices, hz, round(100 * hz / most, 1)) for strategy, devices, hz in rates]
    return Card(name, best, [each for each in why if each], changes, certainty, rivals if len(rivals) > 1 else [])


def _against_one_alone(best: Row, summary: list[Row]) -> str:
    """Throughput and mean latency of the best over those of one exclusive tenant."""
    valid = {(row["strategy"], row["replicas"]): row for row in summary if row["n"] > 0}
    alone, own = valid.get(("exclusive", 1)), valid.get((best["strategy"], best["judged_with_tenants"]))
    if best["tenants_per_device"] == 1 or own is None:
        return ""
    if alone is None or math.isnan(own["slowdown"]):
        return "No valid baseline: what sharing costs, against one tenant alone, is not known."
    times = own["throughput_total_hz"] / alone["throughput_total_hz"]
    return f"Throughput × {times:.2f}, mean latency × {estimate(own, 'slowdown').value} of one tenant alone."


def _no_choice(summary: list[Row]) -> str:
    """Why these rows of a workload leave nothing to choose from; empty where they do not say."""
    rows = [row for row in summary if not is_again(row["strategy"])]
    measured = dict.fromkeys(row["strategy"] for row in rows if row["n"] > 0)
    if rows and not measured:
        reasons = dict.fromkeys(f"{row['strategy']}: {row['reason'] or absence(row)}" for row in rows)
        return f"No valid cell. {'; '.join(reasons)}."
    return (
        f"Only {next(iter(measured))} has a valid cell: there is nothing to choose from." if len(measured) == 1 else ""
    )
