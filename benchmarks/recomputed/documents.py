"""The numbers of README.md, docs/which-strategy.md and docs/findings.md, recomputed from the raw records."""

import math
from collections.abc import Sequence

from benchmarks.recomputed.records import (
    ALONE,
    Expected,
    both_alone,
    compare,
    data_set,
    digits,
    format_latency,
    format_rate,
    holm,
    interval,
    mean_seconds,
    over_alone,
    paired,
    percentile,
    progress,
    rate_hz,
    ratio_to_alone,
    read_cells,
    select,
    slowdown,
    speedup,
    tokens_hz,
    tpot_seconds,
    with_ends,
)

SHARED = ("time-slicing", "mps", "mps-limited")
STEADY_RATIO = 1.1


def count_died(
    strategy: str,
    *kinds: str,
    aliases: Sequence[str] = ("faults", "faults_again", "faults_mps", "faults_two", "promised"),
) -> Expected:
    """Victims that failed, and all victims."""
    ends = []
    for alias in aliases:
        for cell in read_cells(data_set(alias)):
            fault = cell["fault"]
            if cell["strategy"] == strategy and fault and fault["happened"] and (not kinds or fault["kind"] in kinds):
                victims = (each for index, each in enumerate(cell["tenants"]) if index != fault["aggressor"])
                ends += [each["status"] != "ok" for each in victims]
    return [str(sum(ends)), str(len(ends))]


def hang_ratios() -> Expected:
    """Mean latency next to a hanging tenant under time-slicing over that before, without the slot before the hang.

    The smallest and the largest of all cells.
    """
    ratios = []
    for name in map(data_set, ("faults", "faults_again", "faults_two")):
        for cell in select(name, "time-slicing", "fault-spin+matmul-256-graph", 2):
            (line,) = (each["timeline"] for each in cell["tenants"] if each["index"] != cell["fault"]["aggressor"])
            first = round(cell["fault"]["at_seconds"] / line["slot_seconds"])
            before, during = (
                sum(line["sum_seconds"][part]) / sum(line["count"][part])
                for part in (slice(first - 1), slice(first, None))
            )
            ratios.append(during / before)
    return [digits(min(ratios)), digits(max(ratios))]


def shared_memory(*strategies: str) -> Expected:
    """How many % of the SMs' shared memory had a neighbour's pattern."""
    tasks = (select(data_set("promised"), each, "conformance", 3)[0]["promises"]["tasks"] for each in strategies)
    looks = (each["look_shared"][0] for each in tasks)
    percents = [100 * each["shared_found_bytes"] / each["shared_looked_bytes"] for each in looks]
    return [digits(each) if each else "0" for each in percents]


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


def repeats(name: str, workload: str) -> str:
    return str(len({cell["repeat"] for cell in read_cells(name) if cell["workload"] == workload}))


def main_row(name: str, workload: str, strategies: Sequence[str], elsewhere: str = "") -> tuple[Expected, int]:
    """A row of a table in units, last with latencies elsewhere; also how far an upper end of an interval is, in %."""
    alone = sorted(mean_seconds(cell) for strategy in ALONE for cell in select(name, strategy, workload, 1))
    is_steady = alone[-1] / alone[0] <= STEADY_RATIO
    printed: Expected = (
        [] if is_steady else [digits(each, 1e3 if alone[-1] >= 1e-3 else 1e6) for each in (alone[0], alone[-1])]
    )
    widest = 0.0
    for strategy, replicas in ([("exclusive", 1)] if is_steady else []) + [(each, 7) for each in strategies]:
        if cells := select(name, strategy, workload, replicas):
            value, _, high = interval(cells, mean_seconds)
            printed += [format_latency(value), format_rate(interval(cells, rate_hz)[0])]
            if not math.isnan(high):
                widest = max(widest, high / value - 1)
    if elsewhere:
        cells_of = (select(elsewhere, each, workload, 7) for each in SHARED[:2])
        printed += [format_latency(interval(cells, mean_seconds)[0]) for cells in cells_of]
    return printed, math.ceil(100 * widest)


def expected_numbers() -> dict[tuple[str, str, str], Expected]:
    """(Document, block, how its line starts) → the numbers of the line, in order; without block only of these lines."""
    main, again, pairs = map(data_set, ("inference", "inference_again", "interference"))
    services, servers, pods, host = map(data_set, ("services", "servers", "pods", "pods_host"))
    names = {"YOLOS": "yolos-graph", "ResNet": "resnet50-graph", "BERT": "bert"}
    names |= {"matmul 256": "matmul-256-graph", "matmul 16384": "matmul-16384"}
    core, host_bound = map(data_set, ("core", "host_bound"))
    own = {label: host_bound if label in ("BERT", "matmul 256") else core for label in names}
    own_two = {label: data_set("host_bound_two" if name == host_bound else "core_two") for label, name in own.items()}
    rows = {label: main_row(own[label], workload, SHARED, own_two[label]) for label, workload in names.items()}
    before = {
        label: main_row(main, workload, (*SHARED, "mps-limited-200", "streams")) for label, workload in names.items()
    }
    widest, widest_before = (
        max(wide for label, (_, wide) in each.items() if label != "matmul 256") for each in (rows, before)
    )
    others = len({cell["device"] for cell in read_cells(again)})
    latencies = [p for p, _ in compare([main], [again], "latency").values()]
    pairs_two = data_set("pairs_two")
    sides = [("yolos-and-matmul", of) for of in ("yolos-graph", "matmul-16384")]
    sides += [("yolos-and-memcopy", of) for of in ("yolos-graph", "memcopy-4096")]
    big = {each: [digits(slowdown(pairs_two, each, mix, 2, of)[0]) for mix, of in sides] for each in SHARED}
    work = {
        (name, label, each): digits(progress(name, each, names[label], 7)[0])
        for name in (core, main)
        for label in ("YOLOS", "ResNet", "matmul 16384")
        for each in SHARED
    }
    in_pods = paired(pods, ("mps", "resnet50-graph", 3), ("mps-limited", "resnet50-graph", 3), mean_seconds, host)
    llm: Expected = []
    tuned, mix, batches = map(data_set, ("tuned", "mix", "batches"))
    of_one = (("time-slicing", "large", 3), ("time-slicing", "small", 4), ("mps", "large", 3), ("mps", "small", 4))
    small = ("yolos-graph", "resnet50-graph")
    seven_32 = {each: [digits(progress(batches, each, f"{of}-32", 7)[0]) for of in small] for each in SHARED}
    images_32 = 32 * interval(select(batches, "exclusive", "yolos-graph-32", 1), rate_hz)[0]
    images = interval(select(data_set("core_two"), "mps", "yolos-graph", 7), rate_hz)[0]
    one_model: Expected = [
        digits(over_alone(tuned, *each, ratio_to_alone(tokens_hz))[0])
        for each in (*of_one, ("mps-limited", "small", 4))
    ]
    of_one_alone = [tokens_hz(cell) for each in ALONE for cell in select(tuned, each, "small", 1)]
    four = select(tuned, "mps-limited", "small", 4)
    gains = [tokens_hz(cell) / both_alone(tuned, "small", cell, tokens_hz) for cell in four]
    quarter = [
        *("0.6", str(sum(gain > 1 for gain in gains)), str(len(gains))),
        *(digits(end(of_one_alone)) for end in (min, max)),
        *with_ends(interval(four, tokens_hz)),
    ]
    crowd: Expected = [
        digits(slowdown(mix, strategy, "server-and-services", 4, of)[0])
        for strategy in ("mps-half", "time-slicing", "mps")
        for of in ("service", "server")
    ]
    for strategy in SHARED:
        llm.append(digits(over_alone(servers, strategy, "vllm-concurrency-16", 4, ratio_to_alone(tokens_hz))[0]))
        llm.append(over_alone(servers, strategy, "vllm-concurrency-16", 4, ratio_to_alone(tpot_seconds))[0])
    single = [cell for each in (*ALONE, "mps") for cell in select(servers, each, "vllm-concurrency-16", 1)]
    active = sorted(cell["telemetry"]["sm_active_mean_percent"] for cell in single)
    light: Expected = [
        1e3 * interval(select(services, each, "yolos-light", n), percentile(share))[0]
        for each, n, share in (
            ("time-slicing", 3, 0.5),
            ("mps", 7, 0.95),
            ("mps-limited", 3, 0.95),
            ("mps-limited", 7, 0.95),
        )
    ]
    wider = [paired(name, ("mps-limited-200", "bert", 7), ("mps", "bert", 7), rate_hz) for name in (main, again)]
    alike = (("mps-limited", "bert", 7), ("mps", "bert", 7), rate_hz)
    narrow = [digits(paired(data_set(each), *alike)[0]) for each in ("host_bound", "host_bound_two")]
    berts = {cell["device"] for name in (main, again) for cell in select(name, "mps-limited-200", "bert", 7)}
    steps = "training-4096+training-4096"
    training = [progress(pairs, "time-slicing", steps, 2, "training-4096")]
    both = (pairs, data_set("interference_again"))
    training += [paired(each, ("mps", steps, 2), ("time-slicing", steps, 2), rate_hz) for each in both]
    huge = [progress(core, each, names["matmul 16384"], 7)[0] for each in SHARED]
    copies = [(digits(slowdown(core, each, "yolos-graph", 7)[0]), work[core, "YOLOS", each]) for each in SHARED]
    batches_of = zip((*SHARED, "mps"), map(data_set, ("jobs", "jobs", "jobs_two", "jobs_two")), strict=True)
    jobs = [digits(speedup(name, each, "batch-matmul-100000", 4)[0]) for each, name in batches_of]
    below = [str(sum(p < 0.05 for p in latencies)), "5", f"{0.05 * len(latencies):.1f}"]
    assert min(holm(latencies)) > 0.05 and count_wrong("mps")[0] == "0"
    table, measured, which = ("README.md", "main"), ("README.md", "measured"), ("docs/which-strategy.md", "which")
    exceptions = ("docs/which-strategy.md", "exceptions")
    notes, seven = ("published/h100/README.md", "main-notes"), ("published/h200/README.md", "seven")
    return {(*table, f"| {label}"): printed for label, (printed, _) in rows.items()} | {
        **{(*seven, f"| {label}"): printed for label, (printed, _) in before.items()},
        (*notes, "- Repeats"): [
            repeats(own[label], names[label]) for label in ("YOLOS", "ResNet", "matmul 16384", "BERT")
        ],
        (*notes, "- 95 %"): ["95", str(widest)],
        (*notes, "- ⁴"): [
            *(repeats(own_two[label], names[label]) for label in ("YOLOS", "ResNet", "matmul 16384", "BERT")),
            repeats(main, names["YOLOS"]),
        ],
        (*seven, "- 95 %"): ["95", str(widest_before), str(before["matmul 256"][1])],
        (*seven, "- Of "): [str(len(latencies)), str(others), *below],
        (*measured, "- **Small"): [
            *(work[core, label, "mps"] for label in ("YOLOS", "ResNet")),
            *("32", *seven_32["mps"]),
            *(work[core, label, "time-slicing"] for label in ("YOLOS", "ResNet")),
        ],
        (*measured, "- **A workload"): [digits(min(huge)), digits(max(huge))],
        (*measured, "- **One big"): [f"{float(big['mps'][0]):.0f}", big["time-slicing"][0], big["mps-limited"][0]],
        (*measured, "- **One LLM"): [one_model[2], one_model[0]],
        (*measured, "- **MPS does"): [
            *count_died("mps", "killed"),
            *count_died("mps", "illegal-address"),
            *count_died("time-slicing", "killed", "illegal-address"),
        ],
        (*measured, "- **A share"): count_wrong("mps-limited"),
        (*measured, "- **Kubernetes"): [digits(in_pods[0])],
        (*which, "| small models"): [number for pair in copies for number in pair],
        (*which, "| each fills"): [work[core, "matmul 16384", each] for each in SHARED],
        (*which, "| a small model"): [number for each in SHARED for number in big[each]],
        (*which, "| LLM servers of one"): [*quarter, *one_model, "400"],
        (*which, "| LLM servers of several"): ["4", *llm],
        (*which, "| an LLM server"): crowd,
        (*which, "| the same"): [
            *("32", digits(images_32), digits(images)),
            *(number for each in SHARED for number in seven_32[each]),
        ],
        (*which, "LLM servers have"): ["0.6", f"{active[0]:.0f}", f"{active[-1]:.0f}"],
        (*which, "| batch"): [*jobs],
        (*which, "| tenants that"): [
            *count_died("time-slicing", "killed", "illegal-address"),
            *hang_ratios(),
            *count_died("mps", "killed"),
            *count_died("mps-limited", "killed", "illegal-address", aliases=["promised", "faults_two"]),
        ],
        (*which, "| untrusted"): shared_memory("mps", "mps-limited"),
        (*which, "| light"): light,
        (*exceptions, "- **BERT"): [*with_ends(*wider), str(len(berts)), *narrow],
        (*exceptions, "- **So are two"): [*with_ends(*training), "5"],
    }
