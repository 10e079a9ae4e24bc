"""The numbers of sentences of docs/findings.md, recomputed from the raw records.

Of each finding that has records of cells: the bold sentence, of some also what is measured or what speaks against it.
"""

import csv
import json
import math
import statistics
import zipfile
from collections import defaultdict

from benchmarks.recomputed.documents import SHARED, count_died, count_wrong, shared_memory
from benchmarks.recomputed.edition import studies
from benchmarks.recomputed.records import (
    ALONE,
    ROOT,
    Alone,
    Expected,
    Interval,
    Record,
    both_alone,
    compare,
    data_set,
    digits,
    energy_joules,
    holm,
    interval,
    mean_seconds,
    over_alone,
    paired,
    percentile,
    place,
    progress,
    rate_hz,
    ratio_to_alone,
    read_cells,
    select,
    sliced_over_mps,
    slowdown,
    speedup,
    tenants_of,
    tokens_hz,
    with_ends,
)

YOLOS, RESNET, HUGE = "yolos-graph", "resnet50-graph", "matmul-16384"
RESNET_32, YOLOS_32 = "resnet50-graph-32", "yolos-graph-32"


def nos_seconds(strategy: str, replicas: int) -> float:
    with (ROOT / "published/literature.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["source"].startswith("nos ")]
    wanted = (strategy, str(replicas), "mean latency")
    return next(float(row["value"]) for row in rows if (row["strategy"], row["replicas"], row["metric"]) == wanted)


def measured_on(name: str) -> str:
    (day,) = {cell["provenance"]["run_id"][:8] for cell in read_cells(name)}
    return f"{day[:4]}-{day[4:6]}-{day[6:]}"


def mean_of(name: str, strategy: str, workload: str, replicas: int, key: str) -> float:
    """The mean of a value of the telemetry, of cells that have it."""
    cells = select(name, strategy, workload, replicas)
    return statistics.fmean(float(value) for cell in cells if (value := cell["telemetry"][key]) is not None)


def memory_ratios(name: str, strategy: str) -> list[str]:
    cells = select(name, strategy, "burn-8192", 2)
    own = sorted(max(each) / min(each) for each in (cell["telemetry"]["tenant_memory_mib"] for cell in cells))
    return [digits(ratio) for ratio in own]


def heavy_ends(name: str) -> list[float]:
    """Smallest and largest mean latency of the heavy service in ms: under time-slicing, alone, under MPS.

    Alone without the repeat that is excluded under time-slicing.
    """
    found, left = [], {place(cell) for cell in select(name, "time-slicing", "yolos-light-and-heavy", 2)}
    for strategy, workload, replicas in (
        ("time-slicing", "yolos-light-and-heavy", 2),
        ("exclusive", "yolos-heavy", 1),
        ("mps", "yolos-light-and-heavy", 2),
    ):
        cells = [cell for cell in select(name, strategy, workload, replicas) if replicas > 1 or place(cell) in left]
        own = [1e3 * mean_seconds({**cell, "tenants": tenants_of(cell, "yolos-heavy")}) for cell in cells]
        found += [min(own), max(own)]
    return found


def mean_of_ratio(name: str) -> str:
    """Time on the device over latency of ResNet-50 alone, in percent."""
    tenants = [tenant for cell in select(name, "exclusive", RESNET, 1) for tenant in cell["tenants"]]
    ratio = statistics.fmean(each["device_histogram"]["sum_seconds"] / each["sum_seconds"] for each in tenants)
    return f"{100 * ratio:.1f}"


def worst_slowdown(name: str, strategy: str, workload: str) -> Interval:
    def own(cell: Record, alone: Alone) -> float:
        return max(mean_seconds({**cell, "tenants": [each]}) for each in cell["tenants"]) / alone(mean_seconds)

    return over_alone(name, strategy, workload, 2, own)


def mix_progress(name: str, strategy: str, mix: str) -> Interval:
    """Progress of the tenants of a mix, added up, each over its own workload alone."""

    def own(cell: Record) -> float:
        rates = ((each["workload"], each["count"] / float(each["sum_seconds"])) for each in cell["tenants"])
        return math.fsum(both_alone(name, workload, cell, mean_seconds) * rate for workload, rate in rates)

    return interval(select(name, strategy, mix, 2), own)


def tails_ms(name: str) -> list[float]:
    """95th percentiles of YOLOS next to matmuls, then to copies: with half of the SMs each, under time-slicing."""
    own = percentile(0.95)
    return [
        1e3 * interval(select(name, each, mix, 2), lambda cell: own(cell | {"tenants": tenants_of(cell, YOLOS)}))[0]
        for mix in ("yolos-and-matmul", "yolos-and-memcopy")
        for each in ("mps-limited", "time-slicing")
    ]


def apart_and_counts(name: str) -> Expected:
    """How far devices differ in the slowdown of YOLOS under MPS, in %, cells that drift; iterations next to matmuls."""
    apart, counts = [], []
    for mix in ("yolos-and-memcopy", "yolos-and-matmul"):
        cells = [cell | {"tenants": tenants_of(cell, YOLOS)} for cell in select(name, "mps", mix, 2)]
        own = [mean_seconds(cell) / both_alone(name, YOLOS, cell, mean_seconds) for cell in cells]
        apart.append(max(own) / min(own))
        counts = sorted(cell["tenants"][0]["count"] for cell in cells)
    # Of gates: cells with `drift`, and independent iterations.
    return [f"{100 * (max(apart) - 1):.0f}", "2", "6", *map(str, counts), "12"]


def line_ratio(strategy: str, replicas: int) -> float:
    """Latency of these tenants over the mean of those of one fewer and one more, which are of another study."""
    own = interval(select(data_set("even"), strategy, YOLOS, replicas), mean_seconds)[0]
    main = data_set("inference")
    ends = (interval(select(main, strategy, YOLOS, n), mean_seconds)[0] for n in (replicas - 1, replicas + 1))
    return own / statistics.fmean(ends)


def spread_alone(workload: str) -> Expected:
    """Standard deviation in percent of devices' mean logs alone, the number of devices, and that on one device."""
    by_device: dict[str, list[float]] = defaultdict(list)
    for name in studies("h200"):
        for strategy in ALONE:
            for cell in select(name, strategy, workload, 1):
                by_device[cell["device"]].append(math.log(mean_seconds(cell)))
    between = statistics.stdev(statistics.fmean(own) for own in by_device.values())
    squares = sum((log - statistics.fmean(own)) ** 2 for own in by_device.values() for log in own)
    within = math.sqrt(squares / (sum(map(len, by_device.values())) - len(by_device)))
    return [f"{100 * between:.2f}", str(len(by_device)), f"{100 * within:.2f}"]


def broken_promises(name: str) -> Expected:
    """Wrong results of each tenant with a third of the SMs, of how many, and how many % had a neighbour's pattern."""
    answers = select(name, "mps-limited", "conformance", 3)[0]["promises"]["tasks"]["answers"]
    ((wrong, checked),) = {(len(own["wrong"]), own["checked"]) for own in answers}
    return [str(wrong), str(checked), *shared_memory("mps", "mps-limited", "time-slicing", "green-contexts")]


def queued_seconds(name: str) -> Expected:
    """The shortest and the longest time of a job in a queue of four."""
    (cell,) = select(name, "sequential", "batch-matmul-100000", 4)
    own = [tenant["job"]["completion_seconds"] for tenant in cell["tenants"]]
    return [digits(min(own)), digits(max(own))]


def replicated(metric: str) -> Expected:
    """How many slowdowns or latencies were re-measured on another host, and how many differ."""
    first, again = (("inference", "interference"), ("inference_again", "interference_again"))
    own = [p for p, _ in compare(list(map(data_set, first)), list(map(data_set, again)), metric).values()]
    assert min(holm(own)) > 0.05
    return [str(len(own)), str(sum(p < 0.05 for p in own)), f"{0.05 * len(own):.1f}"]


def read_slices(publication: str) -> Expected:
    """Numbers of tenants of the probes of a publication's visits, and medians of slices in ms and of switches in µs."""
    found: dict[int, Record] = {}
    for path in (ROOT / "published" / publication / "visits").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("/nodes/timeslice.json"):
                    probe = json.loads(archive.read(name))
                    found[probe["tenants"]] = probe["strategies"]["time-slicing"]
    own = [found[tenants] for tenants in sorted(found)]
    slices = (str(round(each["run"]["p50_us"] / 1000, 3)) for each in own)
    return [*map(str, sorted(found)), *slices, *(f"{each['switch']['p50_us']:.0f}" for each in own)]


def by_switches() -> float:
    """Latency of two tenants over one, of which each slice costs a switch."""
    with zipfile.ZipFile(ROOT / "published" / data_set("probe") / "data.zip") as archive:
        own = json.loads(archive.read("nodes/timeslice.json"))["strategies"]["time-slicing"]
    return 2 * (1 + float(own["switch"]["p50_us"]) / float(own["run"]["p50_us"]))


def activity(name: str, workload: str, points: tuple[tuple[str, int], ...], key: str, decimals: int) -> Expected:
    found = (mean_of(name, strategy, workload, replicas, f"{key}_active_mean_percent") for strategy, replicas in points)
    return [f"{value:.{decimals}f}" for value in found]


def expected_numbers() -> dict[tuple[str, str, str], Expected]:
    """(Document, no block, how its line starts) → the numbers of the line, in order."""
    main, pairs = map(data_set, ("inference", "interference"))
    load, services, jobs, servers = map(data_set, ("load", "services", "jobs", "servers"))
    pods, host, shares = map(data_set, ("pods", "pods_host", "shares"))
    sentinel, core = map(data_set, ("sentinel", "core"))
    jobs_two, capped = data_set("jobs_two"), ["promised", "faults_two"]
    now = {each: [digits(speedup(jobs_two, each, "batch-matmul-100000", 4)[0])] for each in SHARED}
    limited = count_died("mps-limited", "killed", "illegal-address", aliases=capped)
    all_limited = count_died("mps-limited", aliases=capped)
    both, four, few = "yolos-light-and-heavy", "vllm-concurrency-16", "vllm-concurrency-4"
    pairs_two = data_set("pairs_two")
    yolos_next_to, resnet_next_to, copied, matmul_next_to = (
        {each: slowdown(pairs_two, each, mix, 2, of) for each in SHARED}
        for mix, of in (
            ("yolos-and-matmul", YOLOS),
            ("resnet50-and-matmul", RESNET),
            ("yolos-and-memcopy", YOLOS),
            ("yolos-and-matmul", HUGE),
        )
    )
    both_next_to = [mix_progress(pairs_two, each, "yolos-and-matmul") for each in SHARED]
    others_next_to_it = [
        slowdown(name, "mps", "+".join(sorted((victim, HUGE))), 2, victim)
        for victim in ("training-4096", "empty")
        for name in (pairs, data_set("interference_again"))
    ]
    light = {each: slowdown(load, each, both, 2, "yolos-light") for each in ("time-slicing", "mps")}
    heavy = [f"{value:.{1 if value < 100 else 0}f}" for value in heavy_ends(load)]
    joules = [
        interval(select(main, each, YOLOS, n), energy_joules)
        for each, n in (("exclusive", 1), ("time-slicing", 7), ("mps", 7))
    ]
    joules += [over_alone(main, each, YOLOS, 7, ratio_to_alone(energy_joules)) for each in ("time-slicing", "mps")]
    yolos, resnet, huge = (sliced_over_mps(main, each, energy_joules) for each in (YOLOS, RESNET, HUGE))
    faster, slower = (speedup(jobs, each, "batch-matmul-100000", 4) for each in ("mps", "time-slicing"))
    off = {(each, n): 100 * abs(line_ratio(each, n) - 1) for each in ("time-slicing", "mps") for n in (2, 4, 6)}
    in_pods = [
        paired(pods, (each, RESNET, 3), (there, RESNET, 3), mean_seconds, host)
        for each, there in (("time-slicing", "time-slicing"), ("mps", "mps-limited"))
    ]
    kept = [worst_slowdown(shares, each, "matmul-8192") for each in ("hami-core-30-70", "mps-limited-30-70")]
    short = paired(shares, ("hami-core", "matmul-256", 2), ("mps-limited", "matmul-256", 2), mean_seconds)
    small_load = {place(cell): tokens_hz(cell) for cell in select(servers, "mps", few, 4)}
    one_server = interval(
        select(servers, "exclusive", four, 1),
        lambda cell: both_alone(servers, four, cell, tokens_hz) / small_load[place(cell)],
    )
    tails = [
        1e3 * interval(select(services, strategy, "yolos-light", replicas), percentile(0.95))[0]
        for strategy, replicas in (("mps", 7), ("mps-limited", 7), ("mps-limited", 3), ("exclusive", 1))
    ]
    untuned = [over_alone(servers, each, four, 4, ratio_to_alone(tokens_hz)) for each in SHARED]
    single = [cell["telemetry"] for each in (*ALONE, "mps") for cell in select(servers, each, four, 1)]
    active = sorted(each["sm_active_mean_percent"] for each in single)
    tuned, mix, batches = map(data_set, ("tuned", "mix", "batches"))
    together, small = (
        [over_alone(tuned, each, workload, n, ratio_to_alone(tokens_hz)) for each in strategies]
        for workload, n, strategies in (("large", 3, SHARED[:2]), ("small", 4, SHARED))
    )
    crowd = [
        slowdown(mix, strategy, "server-and-services", 4, of)
        for of in ("service", "server")
        for strategy in ("time-slicing", "mps", "mps-half")
    ]
    filled = [slowdown(core, each, HUGE, 2) for each in ("mps", "time-slicing")]
    pair_points = (("exclusive", 1), ("time-slicing", 2), ("mps", 2))
    points = (("exclusive", 1), ("time-slicing", 7), ("mps", 7))
    sliced = progress(core, "time-slicing", RESNET, 7)
    busy = mean_of_ratio(core)
    wrong, right = count_wrong("mps-limited"), count_wrong("mps")
    tested, latencies = replicated("slowdown"), replicated("latency")
    days = [part for each in ("inference", "inference_again") for part in measured_on(data_set(each)).split("-")]
    nos = nos_seconds("time-slicing", 7) / nos_seconds("mps", 7)
    lines: dict[str, Expected] = {
        "**With seven tenants the latency": [*with_ends(sliced_over_mps(core, YOLOS, mean_seconds)), f"{nos:.2f}"],
        "*Measured:* 7 tenants of `yolos-graph`, over": [
            *with_ends(*(of(core, each, YOLOS, 7) for of in (slowdown, progress) for each in SHARED)),
            *("100", f"{nos:.2f}", "100"),
        ],
        "*Measured:* 2 tenants of `matmul-16384`": [
            *("2", str(sum(tenant["count"] for cell in select(core, "mps", HUGE, 2) for tenant in cell["tenants"]))),
            *with_ends(*(progress(core, each, HUGE, 7) for each in SHARED)),
        ],
        "- *Does one tenant fill": [
            *("1", "7", *activity(core, YOLOS, points, "sm", 0), *activity(core, YOLOS, points, "dram", 1)),
        ],
        "**Seven tenants of ResNet-50": with_ends(slowdown(core, "mps", RESNET, 7), progress(core, "mps", RESNET, 7)),
        "- *Was the device idle": [
            *("1", "7", *with_ends(sliced), busy),
            *activity(sentinel, RESNET, points, "sm", 0),
            *activity(sentinel, RESNET, points, "dram", 1),
        ],
        "**Next to matmuls": with_ends(*(yolos_next_to[each] for each in ("mps", "time-slicing", "mps-limited"))),
        "*Measured:* `yolos-graph` next to": [
            *with_ends(*(matmul_next_to[each] for each in SHARED[1:]), *both_next_to, *copied.values()),
            *("95", *tails_ms(pairs_two), *apart_and_counts(pairs_two)),
        ],
        "- *Is it only YOLOS?*": with_ends(
            *(resnet_next_to[each] for each in ("mps", "time-slicing", "mps-limited")), *others_next_to_it
        ),
        "- *Do two tenants leave": [
            *("1", "2", *with_ends(*filled), f"{by_switches():.2f}"),
            *activity(core, HUGE, pair_points, "sm", 0),
            *activity(core, HUGE, pair_points, "dram", 0),
        ],
        "**With two tenants": with_ends(sliced_over_mps(core, HUGE, mean_seconds, 2)),
        "**Under MPS the neighbour": [
            *count_died("mps", "killed"),
            *count_died("mps", "illegal-address"),
            count_died("time-slicing", "killed", "illegal-address")[1],
            count_died("time-slicing")[1],
        ],
        "**Under time-slicing the latency": [
            *with_ends(light["time-slicing"]),
            *heavy[:4],
            *with_ends(light["mps"]),
            *heavy[4:],
        ],
        "**Seven services": with_ends(
            slowdown(services, "mps", "yolos-light", 7), slowdown(services, "time-slicing", "yolos-light", 3)
        ),
        "*Measured:* seven of": [*with_ends(slowdown(services, "mps-limited", "yolos-light", 7)), *tails],
        "**Four jobs": [*with_ends(faster), digits(1 / slower[0])],
        "- *Do shares of the SMs undo": ["4", *now["mps-limited"], *now["mps"]],
        "- *Is it these devices, their host, or this version of the code?* No (the same once": [
            *(*now["mps"], *now["time-slicing"], *queued_seconds(jobs_two)),
        ],
        "- *Does a share of the SMs protect": [*limited, "0", str(int(all_limited[1]) - int(limited[1]))],
        "- *Is it only this device": read_slices("h200-two"),
        "**Of two tenants": [memory_ratios(load, each)[-1] for each in ("mps", "mps-limited")],
        "**A language model": [*wrong, *right],
        "**The latency of 2": [
            *("2", "4", "6"),
            f"{max(off['time-slicing', n] for n in (2, 4, 6)):.2g}",
            *("1", "3", "5", "7", "4", "6"),
            f"{max(off['mps', n] for n in (4, 6)):.2g}",
            "2",
            f"{off['mps', 2]:.0f}",
        ],
        "**Alone, YOLOS": spread_alone(YOLOS),
        f"**Of {tested[0]} slowdowns": [tested[0], tested[1], "5"],
        "*Measured:* p < 0.05": [*("0.05", tested[1], *tested[::2], latencies[1], *latencies[::2], "0", "0"), *days],
        "**Three tuned servers": ["48", *with_ends(*together), "64", *with_ends(*small)],
        "- *Does it need a tuned": [
            *(f"{each:.0f}" for each in (active[0], active[-1])),
            *("16", *with_ends(one_server), "4", "16"),
            *with_ends(paired(servers, ("mps", four, 4), ("time-slicing", four, 4), tokens_hz)),
            *("4", *with_ends(paired(servers, ("mps", few, 4), ("time-slicing", few, 4), tokens_hz))),
            *("16", "16", *with_ends(*untuned[:2]), digits(untuned[2][0])),
        ],
        "- *Does MPS leave": [
            *activity(tuned, "large", (("mps", 3), ("time-slicing", 3)), "sm", 0),
            *activity(tuned, "large", (("mps", 3), ("time-slicing", 3)), "dram", 0),
        ],
        "**Next to an LLM server": with_ends(*crowd),
        "- *Does it hold for batches": [
            *("32", *(activity(batches, of, (("exclusive", 1),), "sm", 0)[0] for of in (RESNET_32, YOLOS_32))),
            *(
                digits(progress(batches, each, of, 7)[0])
                for of in (RESNET_32, YOLOS_32)
                for each in ("mps", "time-slicing", "mps-limited")
            ),
            digits(progress(data_set("batches_h100"), "mps", RESNET_32, 7)[0]),
            *(
                digits(rate)
                for of in (RESNET, YOLOS)
                for rate in (
                    32 * interval(select(batches, "exclusive", f"{of}-32", 1), rate_hz)[0],
                    interval(select(data_set("core_two"), "mps", of, 7), rate_hz)[0],
                )
            ),
        ],
        "**Pods that share": [*with_ends(in_pods[0]), *(f"{end:.4f}" for end in in_pods[1])],
        "**Within 3 s": ["3", "30", *with_ends(*kept, short)],
        "**With seven tenants an inference": with_ends(yolos, resnet),
        "*Measured:* one iteration": [
            *with_ends(*joules, resnet, huge),
            digits(interval(select(services, "time-slicing", "yolos-light", 3), energy_joules)[0]),
            *with_ends(sliced_over_mps(services, "yolos-light", energy_joules, 3)),
            *with_ends(interval(select(services, "exclusive", "yolos-light", 1), energy_joules)),
        ],
        "**One promise was": broken_promises(data_set("promised")),
    }
    return {("docs/findings.md", "", start): numbers for start, numbers in lines.items()}
