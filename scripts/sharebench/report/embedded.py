"""What the report holds beyond its text, within a budget: figures as images, and details of cells as compact JSON."""

import base64
import html
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sharebench.records.types import Record
from tenant.contract import BUCKET_COUNT

PIXELS_PER_POINT = 1.9
"""Makes a figure's text of 7 points as large as the report's small print."""
IMAGES_BYTES = 1_600_000
"""So much all figures may take up together; base64 adds a third."""
DETAILS_BYTES = 1_500_000
"""So much of the report may be details; what does not fit is counted, and stays in the records."""
MOST_BARS = 64
MOST_TENANTS = 8
"""Tenants of a cell that have their timeline in the report."""
DIGITS = 4


class Image(NamedTuple):
    """A figure as a data URI, its width on the screen, and its text for those who do not see it."""

    uri: str
    width_pixels: int
    words: str


def images(
    folder: Path,
    names: Iterable[str],
    budget_bytes: int = IMAGES_BYTES,
    suffix: str = "",
    first: Collection[str] = (),
) -> dict[str, Image | None]:
    """Name → the figure in the files `name` + `suffix`: as svg, or as png where the svgs together are too large.

    None if not drawn, or no room, which the `first` get before all others.
    """
    files = {
        name: [path for kind in ("svg", "png") if (path := folder / f"{name}{suffix}.{kind}").is_file()]
        for name in names
    }
    sizes = {name: paths[0].stat().st_size for name, paths in files.items() if paths}
    while sum(sizes.values()) > budget_bytes:
        largest = max(sizes, key=lambda name: (name not in first and sizes[name] > 0, sizes[name]))
        files[largest] = files[largest][1:]
        sizes[largest] = files[largest][0].stat().st_size if files[largest] else 0
    return {name: _image(folder / f"{name}{suffix}.svg", paths[0]) if paths else None for name, paths in files.items()}


def _image(svg: Path, chosen: Path) -> Image:
    text = svg.read_text(encoding="utf-8")
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', text)
    about = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    kind = {".svg": "svg+xml", ".png": "png"}[chosen.suffix]
    return Image(
        uri=f"data:image/{kind};base64," + base64.b64encode(chosen.read_bytes()).decode(),
        width_pixels=round(PIXELS_PER_POINT * float(width[1])) if width else 640,
        words=html.unescape(about[1]) if about else "",
    )


class Embedded(NamedTuple):
    """Details as text for a script element, and of how many combinations."""

    text: str
    shown: int
    known: int


@dataclass
class _Detail:
    """One combination of strategy, workload and replicas, as report.js reads it.

    The first record stands for the combination until there is a valid one.
    """

    repeats: list[tuple[int, str]] = field(default_factory=list)
    of_valid: bool = False
    shown: int = 0
    slot_seconds: float | None = None
    timelines: list[list[float | None]] = field(default_factory=list)
    tenants: int = 0
    gates: list[tuple[Any, ...]] = field(default_factory=list)
    evidence: list[tuple[Any, ...]] = field(default_factory=list)
    histograms: list[tuple[Any, ...]] = field(default_factory=list)
    """Of each workload its name, and what `_bars` gives."""

    def show(self, record: Record, is_valid: bool) -> None:
        """Take timelines (ms), gates and evidence from this record."""
        self.of_valid, self.shown = is_valid, record["cell"]["repeat"]
        lines = [tenant["timeline"] for tenant in record["tenants"][:MOST_TENANTS] if tenant["timeline"] is not None]
        self.slot_seconds = lines[0]["slot_seconds"] if lines else None
        self.timelines = [
            [
                _short(1e3 * total / count) if count else None
                for total, count in zip(line["sum_seconds"], line["count"], strict=True)
            ]
            for line in lines
        ]
        self.tenants = len(record["tenants"])
        self.gates = [
            (
                *(gate["name"], gate["severity"], _short(gate["value"]), _short(gate["limit"])),
                *(gate["passed"], gate["message"]),
            )
            for gate in record["gates"]
        ]
        evidence = Counter(
            (item["name"], _text(item["expected"]), _text(item["observed"]), item["holds"])
            for item in record["evidence"]
        )
        self.evidence = [(*item, count) for item, count in evidence.items()]


class Details:
    """Gathers the records of a study, given one by one; small, whatever their number."""

    def __init__(self) -> None:
        self._of: dict[str, _Detail] = {}
        self._pooled: dict[str, dict[str, Counter[int]]] = {}

    def add(self, record: Record) -> None:
        """Take in one raw.json; those of one combination in the order of their repeats."""
        cell = record["cell"]
        key = f"{cell['strategy']}/{cell['workload']}/{cell['replicas']}"
        failed = [gate["name"] for gate in record["gates"] if not gate["passed"] and gate["severity"] == "invalid"]
        is_valid = record["status"] == "ok" and not failed
        outcome = "valid" if is_valid else f"excluded by {', '.join(failed)}" if failed else record["status"]
        if record["reason"]:
            outcome += f": {record['reason']}"
        detail = self._of.setdefault(key, _Detail())
        detail.repeats.append((cell["repeat"], outcome))
        if (is_valid and not detail.of_valid) or len(detail.repeats) == 1:
            detail.show(record, is_valid)
            self._pooled[key] = {}
        if is_valid or (not detail.of_valid and detail.shown == cell["repeat"]):
            for tenant in record["tenants"]:
                counts = self._pooled[key].setdefault(tenant["workload"], Counter())
                counts.update({int(index): count for index, count in tenant["histogram"].items()})

    def embedded(self, budget_bytes: int = DETAILS_BYTES) -> Embedded:
        """As many combinations as the budget holds, in the order of the study."""
        texts, used = [], 0
        for key, detail in self._of.items():
            detail.histograms = [(name, *_bars(counts)) for name, counts in self._pooled[key].items() if counts]
            text = f"{_json(key)}:{_json(asdict(detail))}"
            used += len(text.encode()) + 1
            if used > budget_bytes:
                break
            texts.append(text)
        return Embedded("{" + ",".join(texts) + "}", len(texts), len(self._of))


def _json(value: object) -> str:
    """Compact JSON that cannot end the script element which holds it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _short(value: float | None) -> float | None:
    """A finite number with few digits; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def _text(value: object) -> str:
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
