"""The tables of both READMEs of edition two, recomputed from the raw records of the studies published there."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import yaml
from benchmarks.recomputed.records import (
    BUCKET_ERROR,
    ROOT,
    Group,
    Metric,
    Record,
    compare,
    digits,
    geometric_mean,
    holm,
    independent_logs,
    mean_seconds,
    read_cells,
    tenants_of,
    tokens_hz,
    with_ends,
)
from scipy import stats

PUBLISHED = ROOT / "published"
PUBLICATIONS = sorted(path.parent.name for path in PUBLISHED.glob("*/visits"))
"""Of edition two, one for each product."""
FEW_UNITS = 3
"""Largest number of units that take the variance of all rows of the workload."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")
P_FACTOR = 1.5
"""How far off a p of medians may be, which the histograms' buckets round."""
Row = Mapping[str, str]
Table = Mapping[str, Row]
"""First word of a row → column → text."""
Logs = Mapping[str, float]
"""Device or machine → mean log of a metric over its blocks."""
Groups = Mapping[Group, tuple[float, float]]
"""Group → p, and the ratio of the second edition to the first."""


class Test(NamedTuple):
    """What is known of an outcome; `value` is without ends and `p` None where the variance is not known."""

    value: tuple[float, ...]
    limit: float
    p: float | None
    units: int
    is_median: bool
    is_tested: bool
    """Whether the limit is not of this very product; without a test `p` is None too."""


def document_of(publication: str) -> str:
    return f"published/{publication}/README.md"


def studies(publication: str) -> list[str]:
    folders = sorted(path.parent for path in (PUBLISHED / publication).glob("*/data.zip"))
    return [f"{publication}/{folder.name}" for folder in folders]


def median_ttft_seconds(cell: Record) -> float:
    own = (seconds for tenant in cell["tenants"] for seconds in tenant["requests"]["ttft_seconds"])
    return statistics.median(float(seconds) for seconds in own if seconds is not None)


METRICS: Mapping[str, Metric] = {
    "latency_mean_seconds": mean_seconds,
    "output_tokens_hz": tokens_hz,
    "ttft_p50_seconds": median_ttft_seconds,
}


def values_by_unit(name: str, side: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """(Device or machine, block) → the metric of the outcome in the valid cells of one side."""
    metric, unit = METRICS[entry.get("metric", "latency_mean_seconds")], entry.get("unit", "device")
    found = {}
    for cell in read_cells(name):
        is_own = all(cell[key] == side[key] for key in ("strategy", "workload", "replicas"))
        own = tenants_of(cell, side.get("tenant_workload", side["workload"]))
        if cell["valid"] and is_own and own:
            where = cell["device"] if unit == "device" else cell["host"]["machine"]
            found[where, cell["block"]] = metric({**cell, "tenants": own})
    return found


def mean_logs(values: Mapping[tuple[str, int], float]) -> Logs:
    units = sorted({unit for unit, _ in values})
    return {
        unit: statistics.fmean(math.log(value) for (own, _), value in values.items() if own == unit) for unit in units
    }


def pooled_variance(name: str, entry: Mapping[str, Any]) -> tuple[float, int]:
    """Variance of the log of two rows' ratio in a unit, from all rows of the workload: row and unit are additive."""
    workload = entry["over"].get("tenant_workload", entry["over"]["workload"])
    points = {(each["strategy"], each["workload"], each["replicas"]) for each in read_cells(name)}
    keys, logs = [], []
    for point in sorted(points):
        side = dict(zip(("strategy", "workload", "replicas"), point, strict=True)) | {"tenant_workload": workload}
        for unit, log in mean_logs(values_by_unit(name, side, entry)).items():
            keys.append((point, unit))
            logs.append(log)
    rows, units = (sorted({key[index] for key in keys}) for index in (0, 1))
    design = np.array([[*(key[0] == row for row in rows), *(key[1] == unit for unit in units)] for key in keys], float)
    fitted, _, rank, _ = np.linalg.lstsq(design, np.array(logs), rcond=None)
    degrees = len(logs) - int(rank)
    squares = float(((np.array(logs) - design @ fitted) ** 2).sum())
    return (2 * squares / degrees if degrees else 0.0), degrees


def test_outcome(entry: Mapping[str, Any], name: str) -> Test | None:
    """None where no block has both sides."""
    over, under = (values_by_unit(name, entry[side], entry) for side in ("over", "under"))
    if (entry["under"]["strategy"], entry["under"]["replicas"]) == ("exclusive", 1):
        again = values_by_unit(name, entry["under"] | {"strategy": "exclusive-again"}, entry)
        under |= {key: geometric_mean((under[key], again[key])) for key in under.keys() & again.keys()}
    logs = list(mean_logs({key: over[key] / under[key] for key in over.keys() & under.keys()}).values())
    if not logs:
        return None
    own, degrees = (statistics.variance(logs), len(logs) - 1) if len(logs) > FEW_UNITS else pooled_variance(name, entry)
    middle, before = statistics.fmean(logs), limit_logs(entry)
    limit, is_median = math.exp(statistics.fmean(before)), "p50" in entry.get("metric", "")
    is_tested = "limit_of" not in entry or product(entry["limit_of"]) != product(name)
    test = Test((math.exp(middle),), limit, None, len(logs), is_median, is_tested)
    if not degrees:
        return test
    error = own / len(logs)
    half = float(stats.t.ppf(0.975, degrees)) * math.sqrt(error)
    test = test._replace(value=(*test.value, math.exp(middle - half), math.exp(middle + half)))
    if not is_tested:
        return test
    distance = abs(middle - math.log(limit))
    if entry["claim"] != "within":
        return test._replace(p=2 * float(stats.t.sf(distance / math.sqrt(error), degrees)))
    theirs = statistics.variance(before) / len(before)
    both = (error + theirs) ** 2 / (error**2 / degrees + theirs**2 / (len(before) - 1))
    margin = math.log1p(entry["within_percent"] / 100)
    return test._replace(p=float(stats.t.sf((margin - distance) / math.sqrt(error + theirs), both)))


def product(name: str) -> str:
    return str(read_cells(name)[0]["node"]["product"])


def limit_logs(entry: Mapping[str, Any]) -> list[float]:
    """Log of the limit, or logs of the same ratio in the data set that it is of, one for each unit."""
    if "limit_of" not in entry:
        return [math.log(entry["limit"])]
    cells = {
        side: {
            (cell["device"], cell["block"]): cell
            for cell in read_cells(entry["limit_of"])
            if cell["valid"] and all(cell[key] == entry[side][key] for key in entry[side])
        }
        for side in ("over", "under")
    }
    pairs = [(cell, cells["under"][key]) for key, cell in cells["over"].items() if key in cells["under"]]
    return independent_logs((mean_seconds(over) / mean_seconds(under), over) for over, under in pairs)


def verdict(entry: Mapping[str, Any], test: Test, adjusted: float, contrary: float, is_final: bool) -> str:
    """What a test shows holds or is refuted; `contrary` is the adjusted p of being on the other side."""
    if not test.is_tested:
        return "not tested: the limit is of this product"
    so_far = "" if is_final else " so far"
    if test.p is None:
        return f"no interval{so_far}"
    ratio, claim = test.value[0] / test.limit, entry["claim"]
    shows = claim if claim != "not above" else "above"
    is_shown = {"above": ratio > 1, "below": ratio < 1, "within": test.p < 0.5}[shows]
    words = ("refuted", "holds") if claim == "not above" else ("holds", "refuted")
    if is_shown and adjusted < 0.05:
        return words[0] + so_far
    other = words[1]
    if is_shown or contrary >= 0.05:
        other = "not refuted" if claim == "not above" else "not shown"
    return other + (f", {words[0]} without the correction" if is_shown and test.p < 0.05 else "") + so_far


def contrary_p(entry: Mapping[str, Any], test: Test | None) -> float:
    """Two-sided p against the limit, or against the nearer end of what is `within`, whose own p is one-sided."""
    if not test or test.p is None:
        return 1.0
    return min(1.0, 2 * (1 - test.p)) if entry["claim"] == "within" else test.p


def primary_outcomes(publication: str) -> Table:
    """What is not measured or not tested counts as a test with a p of 1."""
    entries = yaml.safe_load((PUBLISHED / "edition-two/outcomes.yaml").read_text(encoding="utf-8"))
    names = {name.partition("/")[2]: name for name in studies(publication)}
    tests = [test_outcome(entry, names[entry["study"]]) if entry["study"] in names else None for entry in entries]
    p = [test.p if test and test.p is not None else 1.0 for test in tests]
    contrary = holm([contrary_p(entry, test) for entry, test in zip(entries, tests, strict=True)])
    found = {}
    for entry, test, own, other in zip(entries, tests, holm(p), contrary, strict=True):
        row = {"study": f"`{entry['study']}`", "verdict": "not measured yet", "now": "", "p": "", "Holm's p": ""}
        if test:
            study = yaml.safe_load((PUBLISHED / "edition-two" / f"{entry['study']}.yaml").read_text(encoding="utf-8"))
            blocks = blocks_of(names[entry["study"]])[entry["over"]["workload"]]
            planned = study["repeats"]
            unit = entry.get("unit", "device") + ("s" if test.units > 1 else "")
            pooled = ", variance pooled" if test.units <= FEW_UNITS and len(test.value) > 1 else ""
            about = " ≈" if test.is_median else ""
            value, *ends = map(str, with_ends(test.value))
            row |= {
                "now": value + (f" ({' to '.join(ends)})" if ends else "") + about,
                "units": f"{test.units} {unit} in {blocks} of {planned} blocks{pooled}",
                "claim": f"{entry['claim']}{_margin(entry)} {digits(test.limit)}",
                "p": "" if test.p is None else f"{test.p:.2g}{about}",
                "Holm's p": "" if test.p is None else f"{own:.2g}{about}",
                "verdict": verdict(entry, test, own, other, blocks >= planned),
            }
        found[str(entry["outcome"])] = row
    return found


def _margin(entry: Mapping[str, Any]) -> str:
    return f" {entry['within_percent']:g} % of" if entry["claim"] == "within" else ""


def differences(groups: Groups) -> Table:
    """By workload: how many slowdowns differ, by chance and by how much."""
    adjusted = dict(zip(groups, holm([p for p, _ in groups.values()]), strict=True))
    found = {}
    for workload in {group[1] for group in groups}:
        own = {group: tested for group, tested in groups.items() if group[1] == workload}
        changes = [100 * abs(change - 1) for _, change in own.values()]
        found[f"`{workload}`"] = {
            "tested": str(len(own)),
            "p < 0.05": str(sum(p < 0.05 for p, _ in own.values())),
            "by chance": f"{0.05 * len(own):.1f}",
            "Holm's p < 0.05": str(sum(adjusted[group] < 0.05 for group in own)),
            "middle change": f"{statistics.median(changes):.1f} %",
            "largest change": f"{max(changes):.1f} %",
        }
    return found


@cache
def editions(publication: str) -> Groups:
    before = [name for name in studies("h200") if read_cells(name)[0]["node"]["kind"] == "nvidia"]
    return compare(before, studies(publication), "slowdown")


def beyond_prediction(groups: Groups) -> str:
    """The end of the sentence on the slowdowns that change by more than the design predicts."""
    entries = yaml.safe_load((PUBLISHED / "edition-two/outcomes.yaml").read_text(encoding="utf-8"))
    margin = {each["over"]["workload"]: each["within_percent"] for each in entries if each["claim"] == "within"}
    predicted = {group: tested for group, tested in groups.items() if group[1] in margin}
    named = [
        f"`{workload}` under {strategy} × {replicas} ({100 * (change - 1):+.1f} %, p {p:.2g})"
        for (strategy, workload, replicas, *_), (p, change) in sorted(
            predicted.items(), key=lambda item: (item[0][1], item[0][0], item[0][2])
        )
        if max(change, 1 / change) > 1 + margin[workload] / 100
    ]
    return f" {len(named)} of {len(predicted)} are larger{': ' if named else ''}{', '.join(named)}."


def exclusions(publication: str) -> Table:
    found = {}
    for name in studies(publication):
        cells = read_cells(name)
        lost = [cell for cell in cells if not cell["valid"]]
        gates = Counter(cell["excluded"].partition(":")[0] for cell in lost if cell["status"] == "ok")
        ends = Counter(cell["status"] for cell in lost if cell["status"] != "ok")
        found[name.partition("/")[2]] = {
            "cells": str(len(cells)),
            "valid": str(len(cells) - len(lost)),
            "excluded by a gate": ", ".join(f"`{gate}` {count}" for gate, count in sorted(gates.items())),
            "no measurement": ", ".join(f"`{end}` {count}" for end, count in sorted(ends.items())),
        }
    return found


def blocks_of(name: str) -> Counter[str]:
    """Workload → the number of its blocks."""
    return Counter(workload for workload, _ in {(cell["workload"], cell["repeat"]) for cell in read_cells(name)})


def facts(publication: str) -> Table:
    found = {}
    for name in studies(publication):
        cells, blocks = read_cells(name), blocks_of(name).values()
        found[name.partition("/")[2]] = {
            "cells": str(len(cells)),
            "valid": str(sum(cell["valid"] for cell in cells)),
            "repeats": " to ".join(map(str, sorted({min(blocks), max(blocks)}))),
            "identity (hashed)": ", ".join(sorted({cell["device"] for cell in cells})),
        }
    return found


@cache
def expected_tables(publication: str) -> Mapping[str, Table]:
    """Name of a block → its table."""
    return {
        "facts": facts(publication),
        "primary-outcomes": primary_outcomes(publication),
        "editions": differences(editions(publication)),
        "exclusions": exclusions(publication),
    }


def read_table(text: str) -> dict[str, dict[str, str]]:
    """The Markdown table of a block by the first cell of its rows."""
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def same(wanted: str, printed: str, is_probability: bool) -> bool:
    """Whether a cell says the same; one that ends with ≈ is of medians."""
    if not wanted.endswith("≈"):
        return wanted == printed
    pairs = list(zip(NUMBER.findall(wanted), NUMBER.findall(printed), strict=False))
    factor = P_FACTOR if is_probability else 1 + 2 * BUCKET_ERROR
    return bool(pairs) and all(max(float(a), float(b)) <= factor * min(float(a), float(b)) for a, b in pairs)


def find_deviations(publication: str, blocks: Mapping[str, str]) -> tuple[int, list[str]]:
    """How many cells of the tables of these blocks were compared, and which deviate."""
    count, found, document = 0, [], document_of(publication)
    if (sentence := beyond_prediction(editions(publication))) not in blocks["editions"]:
        found.append(f"{document}, editions: no{sentence}")
    for block, wanted in expected_tables(publication).items():
        printed = read_table(blocks[block])
        if wanted.keys() != printed.keys():
            found.append(f"{document}, {block}: rows {sorted(printed)}, recomputed {sorted(wanted)}")
        for row in wanted.keys() & printed.keys():
            count += len(wanted[row])
            found += [
                f"{document}, {block}, {row}, {column}: printed {printed[row][column]}, recomputed {text}"
                for column, text in wanted[row].items()
                if not same(text, printed[row][column], column.endswith("p"))
            ]
    return count, found
