"""The figures with their titles and captions; rules and report read them, so this imports nothing heavy."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.study_config import StudyConfig, has_streams, sweeps_by_entry
from sharebench.read.tables.registry import has_table
from sharebench.study.loads import compares_servers


@dataclass(frozen=True)
class Entry:
    """Title, caption and conditions of a figure, for code that does not draw it."""

    title: str
    caption: str
    table: str = "summary"
    """The table that it is drawn from; a study without it has no such figure."""
    needs: Callable[[StudyConfig], object] = lambda config: True
    """Whether a study has the figure, if it has the table."""
    needs_gpu: bool = False
    column: str = ""
    """Column of tables/summary.csv that it needs and that not every study has."""


ENTRIES: dict[str, Entry] = {
    "latency": Entry(
        "Latency by number of tenants",
        "How long one iteration takes when more tenants share the device. Thick lines with filled "
        "markers are the median (p50) with its 95 % interval over repeats or devices; thin lines with hollow "
        "markers are the 99th percentile, where the sample can carry one. Lower is better, and a flat "
        "line means that tenants do not slow each other down. Markers of one number of tenants stand "
        "side by side so that none hides another. What has no value is named below the axis, with the reason.",
    ),
    "throughput": Entry(
        "Total throughput by number of tenants",
        "Iterations per second of all tenants together, with the 95 % interval over repeats or devices. The "
        "dashed grey line is N times one exclusive tenant: what N devices would do. Higher is better; a "
        "flat line means that the tenants only divide what one of them could have had. What has no value is named "
        "below the axis, with the reason.",
    ),
    "serving": Entry(
        "Time to first token and per token by number of tenants",
        "TTFT is the time from the moment at which a request was to be sent to its first token, TPOT the mean time "
        "between two tokens after that. Thick lines with filled markers are the median over the requests of all "
        "tenants with its 95 % interval over repeats or devices; thin lines with hollow markers are the 99th "
        "percentile. Lower is better. A dashed line is the SLO.",
        needs=has_streams,
    ),
    "load-curve": Entry(
        "Load and latency",
        "Each line goes through the loads of a sweep, whose values stand at its points. Across: what all tenants "
        "together give, output tokens or requests per second. Up: how long a request waits for it. Thick lines are "
        "medians with their 95 % intervals over repeats or devices, thin ones the 99th percentile. A line that turns "
        "up has reached what the device can give. One exclusive tenant stands in every panel, for comparison. A dashed "
        "line is the SLO: what lies above it does not count. A bar that leaves its panel reaches beyond three times "
        "the largest value, or a third of the smallest.",
        needs=sweeps_by_entry,
    ),
    "replicas": Entry(
        "Several servers over one at equal total load",
        "Output tokens per second of N servers that share a load, over those of one server with all of it (the mean of "
        "the baseline and its A/A control), with the 95 % interval over repeats or devices. Above the dashed line the "
        "servers do more than one. Across: the share of the SMs that one server keeps active alone, with the range of "
        "its cells, so what it leaves idle is on its right; several stand around it. Where the device does not count "
        "it, the loads stand side by side.",
        table="cells",
        needs=compares_servers,
    ),
    "utilisation": Entry(
        "How busy the device is",
        "SMs active: the share of the SMs on which a warp was, on average over the window. Occupancy: how many warps "
        "there were, of those that have room. DRAM traffic: what was moved, of what the memory's interface can move. "
        "The device counts these for all tenants together. Busy is not fast: compare with the throughput.",
        needs_gpu=True,
        column="sm_active_percent",
    ),
    "progress": Entry(
        "Work done against waiting",
        "Across: system throughput (STP), the sum over the tenants of what each gets done relative to itself alone; "
        "right of the dashed line, sharing does more than one tenant alone. Up: average normalised turnaround time "
        "(ANTT), mean latency over that of one alone. Best is right and low.",
    ),
    "power": Entry(
        "Power by total throughput",
        "Mean power of the whole device against the iterations per second of all tenants together, with 95 % intervals "
        "over repeats or devices. Of two points at one height, the one further right has more done for the "
        "same energy.",
        needs_gpu=True,
    ),
    "interference": Entry(
        "Slowdown next to each other",
        "Two tenants share the device: latency of the row's workload next to the "
        "column's over that alone, with the 95 % interval over repeats or devices where there is room. All "
        "strategies have one colour scale, logarithmic, on which 1 is white: as fast as alone. On the "
        "diagonal a workload is next to its own kind. A row of dark cells is a workload that suffers, a column "
        "of them one that others suffer from.",
        table="interference",
    ),
    "jobs": Entry(
        "Makespan of jobs by their number",
        "How long N jobs take, from the moment at which all begin to the end of the last, with the 95 % "
        "interval over repeats or devices. Start-up before that moment is not in it. The line of the queue is the "
        "jobs one after another, each alone on the device: a strategy below it saves time, one above it "
        "costs time. Where no queue was measured, the dashed grey line is N times one exclusive job. What has "
        "no value is named below the axis, with the reason.",
        table="jobs",
    ),
    "startup": Entry(
        "Time to the first result",
        "From a node in another state to a tenant's first result, in parts, each strategy at its smallest and at its "
        "largest number of tenants: setting the strategy (in a cluster, NVIDIA's MIG manager and device plugin apart "
        "from the rest, which is preparation and the time for which all must stay right), starting the process, "
        "importing the framework, opening a context on the device, loading model and data, and the first iteration. "
        "Means over tenants and cells. How long a strategy takes to be left, and a tenant to be warm, is in "
        "tables/startup.csv.",
        table="startup",
    ),
    "isolation": Entry(
        "Who dies",
        "One of two tenants goes wrong in the middle of the window, as the column names it; the cell shows what became "
        "of the other, at worst over victims and repeats. Unharmed: as fast as before the fault. Slowed: by how much "
        "at worst, and for how long. Failed: it ended, or gave no answer any more. Survived: it went on, but its "
        "latencies cannot be judged.",
        table="isolation",
    ),
    "conformance": Entry(
        "Which promises are kept",
        "What each strategy promises by its documentation, against what was measured: blue is kept, dark red is "
        "broken, grey is not promised, and white was not measured. The number is the measured one, in the unit of the "
        "promise. Limits and sources are in tables/conformance.csv.",
        table="conformance",
    ),
}


def names_for(config: StudyConfig, node_kind: str, summary: Path | None = None) -> list[str]:
    """The figures of a study on this kind of node; without a `summary` its columns are not a condition."""
    columns = None
    if summary and summary.is_file():
        with summary.open(encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file))
    return [
        name
        for name, entry in ENTRIES.items()
        if has_table(entry.table, config)
        and entry.needs(config)
        and (NODE_KINDS[node_kind].has_gpus or not entry.needs_gpu)
        and (columns is None or entry.column in ("", *columns))
    ]
