"""Recompute every number of README.md and docs/which-strategy.md from the raw records, without this project's code.

Of docs/findings.md it recomputes those of pairs (4) and of energy (19), with their intervals.

`python benchmarks/recompute.py` takes a few seconds. Only validity is read from published tables, since records of
edition one have the verdicts of their time and later ones have none. docs/findings.yaml names the data sets.
"""

import csv
import json
import math
import re
import statistics
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
ALONE = ("exclusive", "exclusive-again")
SHARED = ("time-slicing", "mps", "mps-limited", "streams")
ENERGY_POINTS = (("exclusive", 1), ("time-slicing", 7), ("mps", 7))
ENERGY_NAMES = ("YOLOS", "ResNet", "matmul 16384")
STEADY_RATIO = 1.1
BUCKET_ERROR = 0.011
"""Relative width of a bucket of the project's histograms: how far off its medians may be."""
BLOCK = re.compile(r"<!-- by rule: ([a-z0-9-]+) -->\n(.*?)<!-- end of rule -->", re.DOTALL)
NUMBER = re.compile("\\d+(?:\u202f\\d{3})*(?:\\.\\d+)?")
LABELS = re.compile(
    r"`[^`]*`|\(?\[[^\]]*\]\([^)]*\)\)?|[¹²³⁴⁵]|H[12]00s?|fp\d+|256 x 256|16384 x 16384|ResNet-50|1/7|7 streams"
    r"|\(50 ms\)|7 tenants|batch 1,|8 billion|100/N|BERT-base"
)
"""Digits in names."""
Record = dict[str, Any]
Expected = list[str | float]
"""Numbers as they must be printed; a float is a median, which may be off by BUCKET_ERROR."""
Metric = Callable[[Record], float]
Interval = tuple[float, float, float]
"""A value, and the lower and upper end of its interval."""
Alone = Callable[[Metric], float]
"""A metric → its value for one tenant alone on the same device in the same block."""


def read_aliases() -> dict[str, list[str]]:
    aliases: dict[str, list[str]] = yaml.safe_load((ROOT / "docs/findings.yaml").read_text(encoding="utf-8"))["data"]
    return aliases


def data_set(alias: str) -> str:
    return next(name for name in read_aliases()[alias] if (ROOT / "published" / name / "data.zip").is_file())


@cache
def read_cells(name: str) -> list[Record]:
    """Records of a data set with one of the statuses of a measurement, each with its validity."""
    key = ("strategy", "workload", "replicas", "repeat")
    folder = ROOT / "published" / name
    with (folder / "tables/cells.csv").open(encoding="utf-8") as table:
        valid = {tuple(row[each] for each in key): row["valid"] == "True" for row in csv.DictReader(table)}
    found = []
    with zipfile.ZipFile(folder / "data.zip") as archive:
        for path in archive.namelist():
            if path.startswith("cells/") and path.endswith("/raw.json"):
                record = json.loads(archive.read(path))
                own = tuple(str(record["cell"][each]) for each in key)
                found.append({**record["cell"], **record, "valid": valid[own], "device": record["node"]["device"]})
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
    """Geometric mean of a value, and the ends of its 95 % interval."""
    logs = independent_logs((value(cell), cell) for cell in cells)
    middle = statistics.fmean(logs)
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - float(half)), math.exp(middle + float(half))


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


def progress(name: str, strategy: str, workload: str, replicas: int) -> float:
    """Throughput in units of that of one tenant alone."""

    def own(cell: Record, alone: Alone) -> float:
        rates = (float(each["count"]) / float(each["sum_seconds"]) for each in cell["tenants"])
        return alone(mean_seconds) * sum(rates)

    return over_alone(name, strategy, workload, replicas, own)[0]


def ratio_to_alone(metric: Metric) -> Callable[[Record, Alone], float]:
    return lambda cell, alone: metric(cell) / alone(metric)


def energy_joules(cell: Record) -> float:
    """Energy of an iteration."""
    return float(cell["telemetry"]["energy_joules"]) / sum(int(each["count"]) for each in cell["tenants"])


def sliced_over_mps(name: str, workload: str, metric: Metric) -> Interval:
    under = {place(cell): metric(cell) for cell in select(name, "mps", workload, 7)}
    return interval(select(name, "time-slicing", workload, 7), lambda cell: metric(cell) / under[place(cell)])


def speedup(name: str, strategy: str, workload: str, replicas: int) -> float:
    """How much faster jobs are done than one after another."""
    queue = {place(cell): makespan_seconds(cell) for cell in select(name, "sequential", workload, replicas)}
    cells = select(name, strategy, workload, replicas)
    return interval(cells, lambda cell: queue[place(cell)] / makespan_seconds(cell))[0]


def compare_latencies(one: str, two: str) -> tuple[int, int, int]:
    """How many mean latencies are in both studies, are below 0.05 in Welch's test, and after Holm's adjustment."""
    probabilities = []
    for point in {(cell["strategy"], cell["workload"], cell["replicas"]) for cell in read_cells(one)}:
        samples = [[(mean_seconds(cell), cell) for cell in select(name, *point)] for name in (one, two)]
        if min(map(len, samples)) > 1:
            logs = map(independent_logs, samples)
            probabilities.append(float(stats.ttest_ind(*logs, equal_var=False).pvalue))
    count = len(probabilities)
    weighted = np.sort(probabilities) * np.arange(count, 0, -1)
    adjusted = np.minimum(1, np.maximum.accumulate(weighted))
    return count, sum(p < 0.05 for p in probabilities), int((adjusted < 0.05).sum())


def count_died(strategy: str, *kinds: str) -> Expected:
    """Victims that failed, and all victims."""
    ends = []
    for alias in ("faults", "faults_again", "faults_mps"):
        for cell in read_cells(data_set(alias)):
            fault = cell["fault"]
            if cell["strategy"] == strategy and fault and fault["happened"] and (not kinds or fault["kind"] in kinds):
                victims = (each for index, each in enumerate(cell["tenants"]) if index != fault["aggressor"])
                ends += [each["status"] != "ok" for each in victims]
    return [str(sum(ends)), str(len(ends))]


def count_wrong(strategy: str) -> Expected:
    """Tenants whose digest differs from that of one alone by more than a thousandth, and all tenants."""
    ends = []
    for cell in read_cells(data_set("limits")):
        if cell["strategy"] == strategy:
            wanted = cell["calibration"]["output_digest"]
            for tenant in cell["tenants"]:
                pairs = zip(wanted, tenant["output_digest"], strict=True)
                ends.append(any(got is None or not math.isclose(right, got, rel_tol=1e-3) for right, got in pairs))
    return [str(sum(ends)), str(len(ends))]


def digits(value: float, factor: float = 1.0) -> str:
    """Three significant digits, all that are before the point."""
    decimals = max(0, 2 - math.floor(math.log10(abs(value * factor))))
    return f"{value * factor:,.{decimals}f}".replace(",", "\u202f")


def with_ends(*intervals: Interval) -> Expected:
    """Each value and the ends of its interval, with the decimals of the value."""
    return [f"{end:.{len(digits(own[0]).partition('.')[2])}f}" for own in intervals for end in own]


def format_latency(seconds: float) -> str:
    return digits(seconds, 1e3 if seconds >= 1e-3 else 1e6)


def format_rate(hz: float) -> str:
    return digits(hz, 1e-3 if hz >= 1e4 else 1)


def main_row(name: str, workload: str) -> tuple[Expected, int]:
    """A row of README's table; also the largest distance of an upper end of an interval from its value, in percent."""
    alone = sorted(mean_seconds(cell) for strategy in ALONE for cell in select(name, strategy, workload, 1))
    is_steady = alone[-1] / alone[0] <= STEADY_RATIO
    printed: Expected = (
        [] if is_steady else [digits(each, 1e3 if alone[-1] >= 1e-3 else 1e6) for each in (alone[0], alone[-1])]
    )
    widest = 0.0
    for strategy, replicas in ([("exclusive", 1)] if is_steady else []) + [(each, 7) for each in SHARED]:
        if cells := select(name, strategy, workload, replicas):
            value, _, high = interval(cells, mean_seconds)
            printed += [format_latency(value), format_rate(interval(cells, rate_hz)[0])]
            widest = max(widest, high / value - 1)
    return printed, math.ceil(100 * widest)


@cache
def expected_numbers() -> dict[tuple[str, str, str], Expected]:
    """(Document, block, how its line starts) → the numbers of the line, in order; without block only of these lines."""
    main, again, pairs = map(data_set, ("inference", "inference_again", "interference"))
    services, servers, pods, host = map(data_set, ("services", "servers", "pods", "pods_host"))
    names = {"YOLOS": "yolos-graph", "ResNet": "resnet50-graph", "BERT": "bert"}
    names |= {"matmul 256": "matmul-256-graph", "matmul 16384": "matmul-16384"}
    rows = {label: main_row(main, workload) for label, workload in names.items()}
    widest = max(wide for label, (_, wide) in rows.items() if label != "matmul 256")
    repeats = len({cell["repeat"] for cell in read_cells(main)})
    others = len({cell["device"] for cell in read_cells(again)})
    tested, below, adjusted = compare_latencies(main, again)
    victims = {each: slowdown(pairs, each, "matmul-16384+yolos", 2, "yolos") for each in SHARED[:3]}
    big = {each: own[0] for each, own in victims.items()}
    others_next_to_it = [
        slowdown(name, "mps", "+".join(sorted((victim, "matmul-16384"))), 2, victim)
        for victim in ("training-4096", "empty")
        for name in (pairs, data_set("interference_again"))
    ]
    joules = [interval(select(main, each, "yolos-graph", n), energy_joules) for each, n in ENERGY_POINTS]
    joules += [
        over_alone(main, each, "yolos-graph", 7, ratio_to_alone(energy_joules)) for each in ("time-slicing", "mps")
    ]
    yolos, resnet, huge = (sliced_over_mps(main, names[each], energy_joules) for each in ENERGY_NAMES)
    work = {(label, each): digits(progress(main, each, names[label], 7)) for label in names for each in SHARED[:3]}
    on_host = {place(cell): mean_seconds(cell) for cell in select(host, "mps-limited", "resnet50-graph", 3)}
    in_pods = interval(select(pods, "mps", "resnet50-graph", 3), lambda cell: mean_seconds(cell) / on_host[place(cell)])
    llm: Expected = []
    for strategy in SHARED[:2]:
        llm.append(digits(over_alone(servers, strategy, "vllm-concurrency-16", 4, ratio_to_alone(tokens_hz))[0]))
        llm.append(over_alone(servers, strategy, "vllm-concurrency-16", 4, ratio_to_alone(tpot_seconds))[0])
    single = [cell for each in (*ALONE, "mps") for cell in select(servers, each, "vllm-concurrency-16", 1)]
    active = sorted(cell["telemetry"]["sm_active_mean_percent"] for cell in single)
    light = [digits(slowdown(services, each, "yolos-light", n)[0]) for each, n in zip(SHARED, (3, 7, 7), strict=False)]
    copies = [(digits(slowdown(main, each, "yolos-graph", 7)[0]), work["YOLOS", each]) for each in SHARED[:3]]
    assert adjusted == 0 and count_wrong("mps")[0] == "0"
    table, measured, which = ("README.md", "main"), ("README.md", "measured"), ("docs/which-strategy.md", "which")
    notes, findings = ("published/h200/README.md", "main-notes"), ("docs/findings.md", "")
    return {(*table, f"| {label}"): printed for label, (printed, _) in rows.items()} | {
        (*table, "<sub>"): [str(repeats)],
        (*notes, "- 95 %"): ["95", str(widest), str(rows["matmul 256"][1])],
        (*notes, "- Of "): [str(tested), str(others), str(below), "5", f"{0.05 * tested:.1f}"],
        (*measured, "- **Small"): [
            work[label, each] for each in ("mps", "time-slicing") for label in ("YOLOS", "ResNet")
        ],
        (*measured, "- **One big"): [f"{big['mps']:.0f}", digits(big["time-slicing"]), digits(big["mps-limited"])],
        (*measured, "- **MPS does"): [
            *count_died("mps", "killed"),
            *count_died("mps", "illegal-address"),
            *count_died("time-slicing"),
        ],
        (*measured, "- **A share"): count_wrong("mps-limited"),
        (*measured, "- **Kubernetes"): [digits(in_pods[0])],
        (*which, "| small models"): [number for pair in copies for number in pair],
        (*which, "| each fills"): [work["matmul 16384", each] for each in SHARED[:3]],
        (*which, "| a small model"): [digits(big["time-slicing"]), f"{big['mps']:.0f}", digits(big["mps-limited"])],
        (*which, "| LLM"): llm,
        (*which, "LLM servers"): [f"{active[0]:.0f}", f"{active[-1]:.0f}"],
        (*which, "| batch"): [digits(speedup(data_set("jobs"), each, "batch-matmul-100000", 4)) for each in SHARED[:2]],
        (*which, "| tenants that"): [*count_died("time-slicing"), *count_died("mps", "killed")],
        (*which, "| light"): [*light],
        (*findings, "**Next to matmuls"): with_ends(victims["mps"], victims["time-slicing"]),
        (*findings, "- *Is it only YOLOS?*"): with_ends(*others_next_to_it),
        (*findings, "**With seven tenants an inference"): with_ends(yolos, resnet),
        (*findings, "*Measured:* one iteration"): with_ends(*joules, resnet, huge),
    }


def read_printed(root: Path, document: str, block: str) -> dict[str, list[str]]:
    """Line of a block, or of the whole document without one, → its numbers."""
    whole = (root / document).read_text(encoding="utf-8")
    text = dict(BLOCK.findall(whole))[block] if block else whole
    return {line: NUMBER.findall(LABELS.sub("", line)) for line in text.splitlines()}


def agrees(wanted: Expected, printed: list[str]) -> bool:
    def same(right: str | float, number: str) -> bool:
        if isinstance(right, str):
            return right == number
        return abs(float(number) / right - 1) < BUCKET_ERROR

    return len(wanted) == len(printed) and all(map(same, wanted, printed))


def find_deviations(root: Path = ROOT) -> tuple[int, list[str]]:
    """How many numbers of the documents in `root` were compared, and what deviates or was recomputed by nothing."""
    wanted, found, count = expected_numbers(), [], 0
    for document, block in dict.fromkeys(key[:2] for key in wanted):
        lines = read_printed(root, document, block)
        starts = [start for *where, start in wanted if where == [document, block]]
        found += [f"{document}, {block}: no line starts with {each}" for each in starts if not _starting(lines, each)]
        for line, numbers in lines.items():
            own = [start for start in starts if line.startswith(start)]
            count += len(numbers) if block or own else 0
            if block and numbers and not own:
                found.append(f"{document}, {block}: nothing recomputes {numbers} of: {line[:60]}")
            for start in own:
                right = wanted[document, block, start]
                if not agrees(right, numbers):
                    found.append(f"{document}, {block}, {start}: printed {numbers}, recomputed {right}")
    return count, found


def _starting(lines: Iterable[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


def main() -> int:
    count, found = find_deviations()
    print(*found, f"{count} numbers, {len(found)} lines deviate", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
