"""Ours and theirs: numbers that others published beside ours, each over its own baseline, and whether they agree."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from publication.findings import SOURCE, Contradicted, Filler
from publication.numbers import Number
from publication.tables import markdown
from sharebench.report.words import digits

KEYS = {"what", "source", "theirs", "reading_percent", "data", "ours", "note"}


@dataclass(frozen=True)
class Pair:
    """One published ratio, and ours of the same; None where ours is not measured yet."""

    what: str
    source: str
    theirs: float
    ours: Number | None
    note: str
    reading_percent: float = 0
    """How far theirs may be off: read off a plot, or one run."""

    @property
    def theirs_ends(self) -> tuple[float, float]:
        """Theirs with its reading error, downwards and upwards by the same factor."""
        factor = 1 + self.reading_percent / 100
        return self.theirs / factor, self.theirs * factor

    @property
    def verdict(self) -> str:
        """Whether theirs, with its reading error, meets our interval; if not, whether both are on one side of 1."""
        if self.ours is None:
            return "not measured yet"
        low, high = self.theirs_ends
        factor = f"ours is {digits(self.ours.value / self.theirs)} × theirs"
        way = "same direction" if (self.ours.value > 1) == (self.theirs > 1) else "opposite direction"
        # There is none where theirs is exactly 1.
        way = f", {way}" if self.theirs != 1 else ""
        if self.ours.low is None or self.ours.high is None:
            return f"undecided without an interval{way}: {factor}"
        if self.ours.low <= self.theirs <= self.ours.high:
            return "agrees: within our interval"
        if low <= self.ours.high and self.ours.low <= high:
            return f"agrees within its reading error: {factor}"
        if self.ours.low <= 1 <= self.ours.high:
            return f"disagrees: {factor}, and not different from 1"
        return f"disagrees in size{way}: {factor}"


class Literature:
    """published/literature.csv, asked for single numbers."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="", encoding="utf-8") as file:
            self._rows = list(csv.DictReader(file))

    def __call__(self, source: str, workload: str, strategy: str, replicas: int, metric: str) -> float:
        """The value of the one row with these words, in the row's unit. Raises KeyError."""
        wanted = {"source": source, "workload": workload, "strategy": strategy, "metric": metric}
        rows = [
            row
            for row in self._rows
            if all(row[key] == value for key, value in wanted.items()) and int(row["replicas"]) == replicas
        ]
        if len(rows) != 1:
            raise KeyError(f"literature.csv has {len(rows)} rows with {', '.join(wanted.values())}, {replicas}")
        return float(rows[0]["value"])


def pairs(entries: Sequence[Mapping[str, Any]], filler: Filler) -> list[Pair]:
    """The pairs that docs/findings.yaml names under `theirs`. Raises Contradicted."""
    found = []
    for entry in entries:
        where = f"theirs: {entry.get('what')}"
        if entry.keys() != KEYS:
            odd = sorted(entry.keys() ^ KEYS)[0]
            raise Contradicted(f"{SOURCE}: {where}: {odd} is {'missing' if odd in KEYS else 'an unknown key'}")
        theirs = float(filler.value(where, entry["theirs"], {}))
        is_there = all(alias in filler.of for alias in entry["data"])
        ours = filler.value(where, entry["ours"], {}) if is_there else None
        note = filler.text(where, entry["note"]) if is_there else ""
        found.append(Pair(entry["what"], entry["source"], theirs, ours, note, entry["reading_percent"]))
    return found


def table(found: Sequence[Pair]) -> str:
    """The pairs as a table for people."""
    return markdown(
        [
            {
                "what": pair.what,
                "who": pair.source,
                "theirs": f"{digits(pair.theirs)} × ± {pair.reading_percent:g} %",
                "ours": "" if pair.ours is None else pair.ours.in_words(" ×"),
                "verdict": pair.verdict,
                "note": pair.note,
            }
            for pair in found
        ]
    )


def as_csv(found: Sequence[Pair]) -> list[dict[str, Any]]:
    """The same as rows of a csv file; `ours` is blank where it is not measured, its ends where there is no interval."""
    rows = []
    for pair in found:
        ours = pair.ours or Number(float("nan"))
        low, high = pair.theirs_ends
        numbers = {
            "theirs": pair.theirs,
            "theirs_low": low,
            "theirs_high": high,
            "ours": ours.value,
            "ours_low": ours.low,
            "ours_high": ours.high,
        }
        rows.append({"what": pair.what, "source": pair.source, **numbers, "verdict": pair.verdict, "note": pair.note})
    return rows
