"""Tables for findings and documents: latency and throughput in units, or over one tenant alone where that is steady."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd

from publication.findings import format_times
from publication.numbers import DataSet, MissingNumber, Number, read_number
from sharebench.core.files import read_json
from sharebench.datasets import dataset
from sharebench.datasets.dataset import short_windows
from sharebench.model.config.load import load
from sharebench.model.records.types import Provenance
from sharebench.model.study_config import from_json
from sharebench.read.columns import read_table
from sharebench.read.decide import decide
from sharebench.read.report.words import format_number
from sharebench.read.statistics.intervals import log_interval
from sharebench.read.statistics.spread import measure_spread
from sharebench.read.tables.devices import closed_loop_workloads

UNITS = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))
"""The smallest latency in seconds for a unit, how many of the unit make a second, and its name."""
THOUSANDS_FROM_HZ = 10_000
"""Rates from this one on are given in thousands."""


def _unit(seconds: float) -> tuple[float, str]:
    return next((factor, unit) for least, factor, unit in UNITS if seconds >= least)


def format_latency(seconds: Number) -> str:
    """`17.3 ms (17.2 to 17.3)`, in the unit that suits its size."""
    factor, unit = _unit(seconds.value)
    return seconds.scaled(factor).formatted(f" {unit}")


def format_latency_range(seconds: Sequence[Number]) -> str:
    """The smallest and largest latency, as `4.25 to 7.71 ms`."""
    smallest, largest = min(each.value for each in seconds), max(each.value for each in seconds)
    factor, unit = _unit(largest)
    return f"{format_number(factor * smallest)} to {format_number(factor * largest)} {unit}"


def format_rate(hz: float) -> str:
    """`406/s`, `81.0 k/s`."""
    return f"{format_number(hz / 1000)} k/s" if hz >= THOUSANDS_FROM_HZ else f"{format_number(hz)}/s"


def main_table(
    rows: Sequence[tuple[DataSet, str, str]],
    replicas: int,
    strategies: Mapping[str, str],
    marks: Mapping[str, str],
    elsewhere: tuple[str, Sequence[DataSet]] | None = None,
) -> str:
    """Mean latency and throughput in units, of one tenant alone and of `replicas` tenants under each strategy.

    A row is a data set, its workload and that one's name in the table; `strategies` maps names to titles of columns.
    `marks` has the sign for `unsteady` baselines, which are given as a range over their cells, and for workloads that
    were measured `once` or meet the `power` limit. `elsewhere` adds a column, by its title and other data sets:
    latencies under the first two strategies, in the first data set with the workload.
    """
    found = []
    for data, workload, label in rows:
        many, one = (_rows_of_copies(data, workload, count) for count in (replicas, 1))
        if not many:
            raise MissingNumber(f"{data.name} has no cell with {replicas} tenants of {workload}")
        signs = {"once": data.repeats_by_workload[workload] == 1, "power": data.is_slowed_down(workload)}
        sign = "".join(marks[name] for name, is_so in signs.items() if is_so)
        alone = _format_alone(data, one[data.baseline], workload, marks)
        cells = {f"{replicas} tenants": f"{label}{sign}", "one alone": alone}
        cells |= {title: _format_in_units(many[name]) if name in many else "" for name, title in strategies.items()}
        if elsewhere:
            title, others = elsewhere
            there = next(filter(None, (_rows_of_copies(other, workload, replicas) for other in others)), {})
            latencies = (read_number(there[name], "latency_mean_seconds").point for name in [*strategies][:2] if there)
            cells[title] = ", ".join(map(format_latency, latencies))
        found.append(cells)
    return markdown(found)


def _rows_of_copies(data: DataSet, workload: str, replicas: int) -> dict[str, dict[Any, Any]]:
    """Strategy → the row of tables/summary.csv for this many tenants of a workload."""
    summary = data.table("summary")
    own = summary[(summary["workload"] == workload) & (summary["tenant_workload"] == workload)]
    return {row["strategy"]: row for row in own[own["replicas"] == replicas].to_dict("records")}


def _format_alone(data: DataSet, row: Mapping[Any, Any], workload: str, marks: Mapping[str, str]) -> str:
    if data.is_steady(workload):
        return _format_in_units(row)
    return f"{format_latency_range(data.alone_latencies(workload))}{marks['unsteady']}"


def _format_in_units(row: Mapping[Any, Any]) -> str:
    if missing := _missing_reason(row, "latency_mean_seconds"):
        return missing
    latency = format_latency(read_number(row, "latency_mean_seconds").point)
    return f"{latency} · {format_rate(float(row['throughput_total_hz']))}"


def take(data: DataSet, workload: str, tenants: int | None = None, **asked: object) -> str:
    """The strategy that the advice takes first for a workload of a data set, as `sharebench advise` does."""
    study = dataset.read_study(data.folder)
    config = load(study.config | {"tenants": tenants} | asked)
    question = dataset.resolve_question(config | {"workloads": [workload]}, ("tenants", *asked), ["workloads"], study)
    results = decide.read_results(data.folder, data.rebuilt, dataset.other_studies([data.folder]))
    return decide.answer(results, question).answers[0].strategy


def widest_percent(data: DataSet, replicas: int, strategies: Sequence[str], workloads: Sequence[str]) -> Number:
    """The largest distance of an upper end of an interval in `main_table` from its value, in percent."""
    summary = data.table("summary")
    own = summary[summary["workload"].isin(workloads) & (summary["workload"] == summary["tenant_workload"])]
    shared = own["strategy"].isin(strategies) & (own["replicas"] == replicas)
    steady = [workload for workload in workloads if data.is_steady(workload)]
    alone = (own["strategy"] == data.baseline) & (own["replicas"] == 1) & own["workload"].isin(steady)
    chosen = own[shared | alone].dropna(subset=["latency_mean_seconds_low"])
    if chosen.empty:
        raise MissingNumber(f"{data.name} has no interval with {replicas} tenants")
    return Number(float(100 * (chosen["latency_mean_seconds_high"] / chosen["latency_mean_seconds"] - 1).max()))


def strategy_table(data: DataSet, strategies: Sequence[str], workloads: Sequence[str]) -> str:
    """Latency and throughput of the workloads under these strategies, by number of tenants.

    Both are over one tenant alone, or in units for a workload whose baseline is not steady.
    """
    summary = data.table("summary")
    plain = summary[summary["workload"] == summary["tenant_workload"]]
    steady = {name for name in workloads if data.is_steady(name)}
    rows = []
    for replicas in sorted(set(plain["replicas"])):
        for strategy in strategies:
            own = plain[(plain["strategy"] == strategy) & (plain["replicas"] == replicas)]
            by_workload = {row["workload"]: row for row in own.to_dict("records")}
            if by_workload:
                named = {"strategy": f"`{strategy}`"} if len(strategies) > 1 else {}
                cells = {f"`{name}`": _format_row(by_workload.get(name), name in steady) for name in workloads}
                rows.append({"tenants": str(replicas)} | named | cells)
    if not rows:
        raise MissingNumber(f"{data.name} has no cell of {', '.join(strategies)}")
    return markdown(rows)


def unsteady_clause(data: DataSet, workloads: Sequence[str]) -> str:
    """A clause that names the workloads without a steady baseline, which `strategy_table` has in units."""
    unsteady = [name for name in workloads if not data.is_steady(name)]
    ranges = [f"`{name}` ({format_latency_range(data.alone_latencies(name))} alone)" for name in unsteady]
    return f"; without a steady baseline, and so in units: {', '.join(ranges)}" if ranges else ""


def _format_row(row: Mapping[Any, Any] | None, is_steady: bool) -> str:
    return "" if row is None else _format_ratios(row) if is_steady else _format_in_units(row)


def _format_ratios(row: Mapping[Any, Any]) -> str:
    if missing := _missing_reason(row, "slowdown"):
        return missing
    slowdown, work = read_number(row, "slowdown"), read_number(row, "stp")
    return f"latency × {slowdown.formatted()}, throughput × {work.formatted()}"


def _missing_reason(row: Mapping[Any, Any], column: str) -> str:
    """The reason why a row lacks the value; empty where it has one."""
    if row["n"] > 0 and not pd.isna(row[column]):
        return ""
    return "no valid cell" if row["status"] == "ok" else str(row["status"]).replace("-", " ")


def facts_table(datasets: Mapping[str, DataSet]) -> str:
    return markdown([_facts_row(name, data) for name, data in sorted(datasets.items())])


def _facts_row(name: str, data: DataSet) -> dict[str, str]:
    cells = data.table("cells").drop_duplicates(["strategy", "workload", "replicas", "repeat"])
    config, repeats = data.manifest["config"], data.repeats_by_workload.values()
    return {
        "study": name.split("/")[-1],
        "cells": str(len(cells)),
        "valid": str(int(cells["valid"].sum())),
        "repeats": " to ".join(map(str, sorted({min(repeats), max(repeats)}))),
        "window": f"{config['window_seconds']:g} s",
        "identity (hashed)": ", ".join(sorted(set(cells["device"].astype(str)))),
        "driver": _versions(each.get("driver", "") for each in _software(data)[0]),
        "measured": data.measured_on,
    }


def _software(data: DataSet) -> tuple[list[Mapping[str, Any]], list[Provenance]]:
    """Details of the nodes that measured a study, and provenances; of all its records where several visits did."""
    is_joined = data.manifest["config"].get("measured_elsewhere", False)
    pattern = "cells/**/raw.json" if is_joined else "calibration/*.json"
    files = [read_json(path) for path in sorted(data.unpacked.glob(pattern))]
    details = [each["node"]["details"] for each in files] if is_joined else [data.device["details"]]
    return details, [each["provenance"] for each in files]


def _versions(found: Iterable[Any]) -> str:
    return " or ".join(sorted({str(each) for each in found}))


def setup_list(datasets: Mapping[str, DataSet]) -> str:
    """A list of the driver, Python and frameworks that the studies of a publication were measured with."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, data in sorted(datasets.items()):
        details, used = _software(data)
        names = {"driver": "driver", "CUDA": "cuda", "compute mode": "compute_mode", "MIG mode": "mig_mode"}
        if data.device["kind"] == "kubernetes":
            names = {"driver": "driver", "Kubernetes": "kubernetes", "device plugin": "device_plugin"}
        parts = [f"{text} {_versions(each.get(key) for each in details)}" for text, key in names.items()]
        parts += sorted({f"Python {each['python']}" for each in used})
        packages = sorted({(key, text) for each in used for key, text in each["packages"].items()})
        parts += [f"{key} {_versions(text for _, text in own)}" for key, own in groupby(packages, itemgetter(0))]
        found.setdefault(tuple(parts), []).append(f"`{name.split('/')[-1]}`")
    common = [part for part in min(found, default=()) if all(part in each for each in found)]
    lines = [f"- All: {', '.join(common)}."] if common else []
    for all_parts, studies in found.items():
        if different := [part for part in all_parts if part not in common]:
            lines.append(f"- {', '.join(studies)}: {', '.join(different)}.")
    return "\n".join(lines)


def devices_table(datasets: Mapping[str, DataSet]) -> str:
    """Baselines that were measured on several devices, by workload, over all studies of a publication.

    Only workloads that never pause count. The table has the spread between devices and on one device.
    """
    hosts = _hosts(datasets)
    baselines = sorted(_device_baselines(datasets).items())
    return markdown([_devices_row(workload, found) | _hosts_columns(found, hosts) for workload, found in baselines])


def _hosts(datasets: Mapping[str, DataSet]) -> dict[str, str]:
    """Device → its host, from the records or, where old ones do not name it, from hosts.csv of the publication."""
    found: dict[str, str] = {}
    for data in datasets.values():
        if (path := data.folder.parent / "hosts.csv").is_file():
            table = read_table(path)
            found |= dict(zip(table["device"], table["host"], strict=True))
        found |= {device: place.machine for device, place in data.places.items() if place.machine}
    return found


def _hosts_columns(by_device: Mapping[str, list[float]], hosts: Mapping[str, str]) -> dict[str, str]:
    """The spread between hosts with several devices, and on these hosts; blank for fewer than two."""
    by_host: dict[str, list[float]] = {}
    for device in by_device.keys() & hosts.keys():
        by_host.setdefault(hosts[device], []).append(log_interval(by_device[device]).value)
    several = {host: sorted(means) for host, means in sorted(by_host.items()) if len(means) > 1}
    texts = [str(len(several)), *_spread_texts(several.values())] if len(several) > 1 else [""] * 4
    return dict(zip(("hosts", "between hosts", "between devices of one", "p of hosts"), texts, strict=True))


def _devices_row(workload: str, by_device: Mapping[str, list[float]]) -> dict[str, str]:
    means = [1e3 * log_interval(own).value for own in by_device.values()]
    between, within, p = _spread_texts(by_device.values())
    return {
        "alone on a device": f"`{workload}`",
        "devices": str(len(by_device)),
        "cells": str(sum(map(len, by_device.values()))),
        "fastest to slowest device": f"{format_number(min(means))} to {format_number(max(means))} ms",
        "between devices": between,
        "within one": within,
        "p": p,
    }


def _spread_texts(groups: Collection[Sequence[float]]) -> tuple[str, str, str]:
    """The spread between the groups, that within them, and p; blank where it is not known."""
    spread = measure_spread(groups)
    within = "" if spread.within_percent is None else f"{spread.within_percent:.2f} %"
    return f"{spread.between_percent:.2f} %", within, "" if spread.probability is None else f"{spread.probability:.2g}"


def device_spread(datasets: Mapping[str, DataSet], workload: str) -> dict[str, float]:
    """The numbers of a workload in `devices_table`. Raises MissingNumber."""
    by_device = _device_baselines(datasets).get(workload, {})
    found = measure_spread(by_device.values()) if by_device else None
    if found is None or found.within_percent is None or found.probability is None:
        raise MissingNumber(f"{workload} was not measured alone on several devices, and twice on one")
    percents = {"between_percent": found.between_percent, "within_percent": found.within_percent}
    return percents | {"probability": found.probability, "devices": len(by_device)}


def _device_baselines(datasets: Mapping[str, DataSet]) -> dict[str, dict[str, list[float]]]:
    """Mean latencies of one tenant alone, by workload that never pauses and has several devices, and by device."""
    found: dict[str, dict[str, list[float]]] = {}
    for data in datasets.values():
        cells = data.table("cells")
        alone = cells["strategy"].isin(data.alone_strategies) & (cells["replicas"] == 1)
        alone &= cells["workload"].isin(closed_loop_workloads(from_json(data.manifest["config"])))
        for row in cells[alone & cells["valid"]].to_dict("records"):
            by_device = found.setdefault(row["workload"], {})
            by_device.setdefault(row["device"], []).append(float(row["latency_mean_seconds"]))
    return {workload: by_device for workload, by_device in found.items() if len(by_device) > 1}


def describe_measurement(data: DataSet, root: str) -> str:
    """The device, repeats and windows of a data set, with a link to its document; `root` leads to the checkout."""
    devices = f"{data.device_count} devices, " if data.device_count > 1 else ""
    repeats = data.repeats_by_workload.values()
    few, many = min(repeats), max(repeats)
    often = f"cells {few} to {many} times" if few < many else f"every cell {format_times(many)}"
    text = f"{data.device['product']}, {devices}{often}, windows of {data.window_seconds:g} s"
    names = sorted(set(data.table("cells")["tenant_workload"]) - {""})
    short = short_windows(from_json(data.manifest["config"]), names)
    if short:
        minimum = ", ".join(f"{seconds:g} s of `{name}`" for name, seconds in short.items())
        text += f", where the catalogue asks for {minimum}"
    return f"{text}: [{data.name}]({root}/{data.readme})"


def markdown(rows: list[dict[str, str]]) -> str:
    if not rows:
        return "Nothing is published here yet."
    titles = list(rows[0])
    lines = [titles, ["---"] * len(titles), *([row[title] for title in titles] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
