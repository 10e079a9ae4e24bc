"""Raw records of published data sets, and statistics over them, without this project's code.

Only validity is read from published tables, since records of edition one have the verdicts of their time and later
ones have none. docs/findings.yaml names the data sets.
"""

import csv
import json
import math
import statistics
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("exclusive", "exclusive-again")
BUCKET_ERROR = 0.011
"""Relative width of a bucket of the project's histograms: how far off its medians may be."""
Record = dict[str, Any]
Expected = list[str | float]
"""Numbers as they must be printed; a float is a median, which may be off by BUCKET_ERROR."""
Metric = Callable[[Record], float]
Interval = tuple[float, float, float]
"""A value, and the lower and upper end of its interval."""
Point = tuple[str, str, int]
"""Strategy, workload, number of tenants."""
Group = tuple[str, str, int, str]
"""Strategy, workload of the tenants, their number with neighbours, and workload of the cell."""
Alone = Callable[[Metric], float]
"""A metric → its value for one tenant alone on the same device in the same block."""


def read_aliases() -> dict[str, list[str]]:
    aliases: dict[str, list[str]] = yaml.safe_load((ROOT / "docs/findings.yaml").read_text(encoding="utf-8"))["data"]
    return aliases


def data_set(alias: str) -> str:
    return next(name for name in read_aliases()[alias] if (ROOT / "published" / name / "data.zip").is_file())


@cache
def read_cells(name: str) -> list[Record]:
    """Records of a data set with one of the statuses of a measurement, each with whether and why it is excluded."""
    key = ("strategy", "workload", "replicas", "repeat")
    folder = ROOT / "published" / name
    with (folder / "tables/cells.csv").open(encoding="utf-8") as table:
        judged = {tuple(row[each] for each in key): row for row in csv.DictReader(table)}
    found = []
    with zipfile.ZipFile(folder / "data.zip") as archive:
        for path in archive.namelist():
            if path.startswith("cells/") and path.endswith("/raw.json"):
                record = json.loads(archive.read(path))
                row = judged[tuple(str(record["cell"][each]) for each in key)]
                found.append({**record["cell"], **record, "device": record["node"]["device"]})
                found[-1] |= {"valid": row["valid"] == "True", "excluded": row["reason"]}
    return found


def select(name: str, strategy: str, workload: str, replicas: int) -> list[Record]:
    point = (strategy, workload, replicas)
    own = (cell for cell in read_cells(name) if cell["valid"])
    return [cell for cell in own if (cell["strategy"], cell["workload"], cell["replicas"]) == point]


def place(cell: Record) -> tuple[str, int]:
    return cell["device"], cell["block"]


def tenants_of(cell: Record, workload: str) -> list[Record]:
    return [tenant for tenant in cell["tenants"] if tenant["workload"] == workload]


def window_seconds(cell: Record) -> float:
    window = cell["window"]
    return float(window["end_monotonic_seconds"] - window["start_monotonic_seconds"])


def mean_seconds(cell: Record) -> float:
    seconds = sum(float(each["sum_seconds"]) for each in cell["tenants"])
    return seconds / sum(int(each["count"]) for each in cell["tenants"])


def rate_hz(cell: Record) -> float:
    return sum(int(each["count"]) for each in cell["tenants"]) / window_seconds(cell)


def percentile(share: float) -> Metric:
    """A percentile of the latencies of all tenants, from their histograms, whose bucket i ends at 2^(i/64) µs."""

    def own(cell: Record) -> float:
        counts = np.zeros(2000, dtype=int)
        for tenant in cell["tenants"]:
            counts[[int(index) for index in tenant["histogram"]]] += [*tenant["histogram"].values()]
        reached = np.searchsorted(np.cumsum(counts), share * counts.sum())
        return float(1e-6 * 2 ** ((reached - 0.5) / 64))

    return own


def tokens_hz(cell: Record) -> float:
    return sum(int(each["output_tokens"]["count"]) for each in cell["tenants"]) / window_seconds(cell)


def tpot_seconds(cell: Record) -> float:
    own = (seconds for tenant in cell["tenants"] for seconds in tenant["requests"]["tpot_seconds"])
    return statistics.median(float(seconds) for seconds in own if seconds is not None)


def makespan_seconds(cell: Record) -> float:
    ends = [float(tenant["job"]["completion_seconds"]) for tenant in cell["tenants"]]
    return sum(ends) if "turns" in cell["window"] else max(ends)


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def independent_logs(pairs: Iterable[tuple[float, Record]]) -> list[float]:
    """Logs of values of cells; of devices' means where repeats share devices, of machines' where these differ."""
    by_device: dict[str, list[float]] = defaultdict(list)
    by_machine: dict[str | None, list[float]] = defaultdict(list)
    machine_of = {}
    for value, cell in pairs:
        by_device[cell["device"]].append(math.log(value))
        machine_of[cell["device"]] = (cell.get("host") or {}).get("machine")
    if len(by_device) == 1:
        return next(iter(by_device.values()))
    means = {device: statistics.fmean(own) for device, own in by_device.items()}
    for device, mean in means.items():
        by_machine[machine_of[device]].append(mean)
    is_nested = None not in by_machine and 1 < len(by_machine) < len(means)
    if is_nested and stats.f_oneway(*by_machine.values()).pvalue < 0.5:
        return [statistics.fmean(own) for own in by_machine.values()]
    return list(means.values())


def interval(cells: Iterable[Record], value: Metric) -> Interval:
    """Geometric mean of a value, and the ends of its 95 % interval, which one value alone has not."""
    logs = independent_logs((value(cell), cell) for cell in cells)
    middle = statistics.fmean(logs)
    if len(logs) == 1:
        return math.exp(middle), math.nan, math.nan
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - float(half)), math.exp(middle + float(half))


def both_alone(name: str, workload: str, cell: Record, metric: Metric) -> float:
    """The geometric mean of a metric over both baselines of a cell's device and block."""
    cells = [own for each in ALONE for own in select(name, each, workload, 1) if place(own) == place(cell)]
    return geometric_mean(map(metric, cells))


def over_alone(
    name: str, strategy: str, workload: str, replicas: int, value: Callable[[Record, Alone], float], of: str = ""
) -> Interval:
    """The mean of `value`, which gets a cell and how to ask for a metric of both baselines of its device and block."""

    def relative(cell: Record) -> float:
        alone = [own for each in ALONE for own in select(name, each, of or workload, 1) if place(own) == place(cell)]
        return value(cell, lambda metric: geometric_mean(map(metric, alone)))

    return interval(select(name, strategy, workload, replicas), relative)


def slowdown(name: str, strategy: str, workload: str, replicas: int, of: str = "") -> Interval:
    def own(cell: Record, alone: Alone) -> float:
        victims = tenants_of(cell, of or workload)
        return statistics.fmean(float(each["sum_seconds"]) / each["count"] for each in victims) / alone(mean_seconds)

    return over_alone(name, strategy, workload, replicas, own, of)


def progress(name: str, strategy: str, workload: str, replicas: int, of: str = "") -> Interval:
    """Throughput in units of that of one tenant alone."""

    def own(cell: Record, alone: Alone) -> float:
        rates = (float(each["count"]) / float(each["sum_seconds"]) for each in cell["tenants"])
        return alone(mean_seconds) * sum(rates)

    return over_alone(name, strategy, workload, replicas, own, of)


def ratio_to_alone(metric: Metric) -> Callable[[Record, Alone], float]:
    return lambda cell, alone: metric(cell) / alone(metric)


def energy_joules(cell: Record) -> float:
    """Energy of an iteration."""
    return float(cell["telemetry"]["energy_joules"]) / sum(int(each["count"]) for each in cell["tenants"])


def paired(name: str, over: Point, under: Point, metric: Metric, other: str = "") -> Interval:
    """A metric of a point over that of another point, of `other` if given, on the same device in the same block."""
    below = {place(cell): metric(cell) for cell in select(other or name, *under)}
    return interval(select(name, *over), lambda cell: metric(cell) / below[place(cell)])


def sliced_over_mps(name: str, workload: str, metric: Metric, replicas: int = 7) -> Interval:
    return paired(name, ("time-slicing", workload, replicas), ("mps", workload, replicas), metric)


def speedup(name: str, strategy: str, workload: str, replicas: int) -> Interval:
    """How much faster jobs are done than one after another."""
    own, queue = ((each, workload, replicas) for each in (strategy, "sequential"))
    slower, low, high = paired(name, own, queue, makespan_seconds)
    return 1 / slower, 1 / high, 1 / low


@cache
def group_values(name: str, metric: str) -> dict[Group, list[tuple[float, Record]]]:
    """Mean latencies, or slowdowns without those of the baselines, of each group of tenants, with their cells."""
    found: dict[Group, list[tuple[float, Record]]] = defaultdict(list)
    for cell in (each for each in read_cells(name) if each["valid"]):
        for workload in {tenant["workload"] for tenant in cell["tenants"]}:
            own = {**cell, "tenants": [each for each in tenants_of(cell, workload) if each["count"]]}
            if not own["tenants"]:
                continue
            value = mean_seconds(own)
            if metric == "slowdown":
                alone = [
                    each for base in ALONE for each in select(name, base, workload, 1) if place(each) == place(cell)
                ]
                if not alone or (cell["strategy"] in ALONE and cell["replicas"] == 1):
                    continue
                means = (float(each["sum_seconds"]) / each["count"] for each in own["tenants"])
                value = statistics.fmean(means) / geometric_mean(map(mean_seconds, alone))
            found[cell["strategy"], workload, cell["replicas"], cell["workload"]].append((value, cell))
    return found


def compare(first: Sequence[str], second: Sequence[str], metric: str) -> dict[Group, tuple[float, float]]:
    """Groups that two collections of studies have in common → p of Welch's test, and the ratio second over first.

    A group is taken from the first study of a collection that has it.
    """
    found = {}
    one, two = (
        {group: own for name in reversed(names) for group, own in group_values(name, metric).items()}
        for names in (first, second)
    )
    for group in one.keys() & two.keys():
        samples = [one[group], two[group]]
        if min(map(len, samples)) > 1:
            before, after = map(independent_logs, samples)
            change = math.exp(statistics.fmean(after) - statistics.fmean(before))
            found[group] = float(stats.ttest_ind(before, after, equal_var=False).pvalue), change
    return found


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjusted p values, in the same order."""
    order = np.argsort(probabilities)
    weighted = np.asarray(probabilities)[order] * np.arange(len(order), 0, -1)
    adjusted = np.minimum(1, np.maximum.accumulate(weighted))
    return [float(each) for each in adjusted[np.argsort(order)]]


def digits(value: float, factor: float = 1.0) -> str:
    """Three significant digits, all that are before the point."""
    decimals = max(0, 2 - math.floor(math.log10(abs(value * factor))))
    return f"{value * factor:,.{decimals}f}".replace(",", "\u202f")


def with_ends(*intervals: tuple[float, ...]) -> Expected:
    """Each value and the ends of its interval, with the decimals of the value."""
    decimals = ((own, len(digits(own[0]).partition(".")[2])) for own in intervals)
    return [f"{end:,.{places}f}".replace(",", "\u202f") for own, places in decimals for end in own]


def format_latency(seconds: float) -> str:
    return digits(seconds, 1e3 if seconds >= 1e-3 else 1e6)


def format_rate(hz: float) -> str:
    return digits(hz, 1e-3 if hz >= 1e4 else 1)
