"""Tables of findings and documents: latency and throughput in units, and over one tenant alone where that is steady."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from publication.findings import times
from publication.numbers import DataSet, NoNumber, Number, number_in
from sharebench.analysis.statistics.intervals import log_interval
from sharebench.analysis.tables.devices import always_busy, spread
from sharebench.core.files import read_json
from sharebench.core.strategies import control_name
from sharebench.datasets.dataset import short_windows
from sharebench.report.words import digits

UNITS = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))
"""From how many seconds on a latency is in this unit, how many of it a second has, and its name."""
THOUSANDS = 10_000
"""From this rate on, a rate is in thousands."""


def latency_in_words(seconds: Number) -> str:
    """`17.3 ms (17.2 to 17.3)`, in the unit that suits its size."""
    factor, unit = next((factor, unit) for least, factor, unit in UNITS if seconds.value >= least)
    return seconds.times(factor).in_words(f" {unit}")


def range_in_words(seconds: Sequence[Number]) -> str:
    """`4.25 to 7.71 ms`: the smallest and the largest of some latencies."""
    least, most = (pick(each.value for each in seconds) for pick in (min, max))
    factor, unit = next((factor, unit) for limit, factor, unit in UNITS if most >= limit)
    return f"{digits(factor * least)} to {digits(factor * most)} {unit}"


def rate_in_words(hz: float) -> str:
    """`406/s`, `81.0 k/s`."""
    return f"{digits(hz / 1000)} k/s" if hz >= THOUSANDS else f"{digits(hz)}/s"


def main_table(
    data: DataSet, replicas: int, strategies: Mapping[str, str], workloads: Mapping[str, str], marks: Mapping[str, str]
) -> str:
    """Mean latency and throughput of one tenant alone and of `replicas` tenants, in units: no cell divides by another.

    `strategies` and `workloads` map what the study has to what the table calls it. `marks` has the signs of `unsteady`
    baselines, which are given as a range over their cells, and of what runs into the `power` limit.
    """
    summary = data.table("summary")
    known = summary[summary["workload"] == summary["tenant_workload"]]
    rows = []
    for workload, label in workloads.items():
        own = known[known["workload"] == workload]
        many = {row["strategy"]: row for row in own[own["replicas"] == replicas].to_dict("records")}
        if not many:
            raise NoNumber(f"{data.name} has no cell with {replicas} tenants of {workload}")
        one = own[(own["strategy"] == data.baseline) & (own["replicas"] == 1)].to_dict("records")
        sign = marks["power"] if data.is_slowed_down(workload) else ""
        cells = {title: _in_units(many[name]) if name in many else "" for name, title in strategies.items()}
        rows.append(
            {f"{replicas} tenants": f"{label}{sign}", "one alone": _alone(data, one[0], workload, marks)} | cells
        )
    return markdown(rows)


def _alone(data: DataSet, row: Mapping[Any, Any], workload: str, marks: Mapping[str, str]) -> str:
    if data.is_steady(workload):
        return _in_units(row)
    return f"{range_in_words(data.alone(workload))}{marks['unsteady']}"


def _in_units(row: Mapping[Any, Any]) -> str:
    if missing := _missing(row, "latency_mean_seconds"):
        return missing
    latency = latency_in_words(number_in(row, "latency_mean_seconds").point)
    return f"{latency} · {rate_in_words(float(row['throughput_total_hz']))}"


def widest_percent(data: DataSet, replicas: int, strategies: Sequence[str], workloads: Sequence[str]) -> Number:
    """How far the ends of the 95 % intervals of `main_table`'s latencies are from their values at most, in percent."""
    summary = data.table("summary")
    own = summary[summary["workload"].isin(workloads) & (summary["workload"] == summary["tenant_workload"])]
    shared = own["strategy"].isin(strategies) & (own["replicas"] == replicas)
    steady = [workload for workload in workloads if data.is_steady(workload)]
    alone = (own["strategy"] == data.baseline) & (own["replicas"] == 1) & own["workload"].isin(steady)
    chosen = own[shared | alone].dropna(subset=["latency_mean_seconds_low"])
    if chosen.empty:
        raise NoNumber(f"{data.name} has no interval with {replicas} tenants")
    return Number(float(100 * (chosen["latency_mean_seconds_high"] / chosen["latency_mean_seconds"] - 1).max()))


def strategy_table(data: DataSet, strategies: Sequence[str], workloads: Sequence[str]) -> str:
    """Workloads under these strategies by number of tenants: latency and throughput.

    Both over one tenant alone; of a workload whose baseline is not steady, both in units.
    """
    summary = data.table("summary")
    plain = summary[summary["workload"] == summary["tenant_workload"]]
    steady = {name for name in workloads if data.is_steady(name)}
    rows = []
    for replicas in sorted(set(plain["replicas"])):
        for strategy in strategies:
            own = plain[(plain["strategy"] == strategy) & (plain["replicas"] == replicas)]
            of = {row["workload"]: row for row in own.to_dict("records")}
            if of:
                named = {"strategy": f"`{strategy}`"} if len(strategies) > 1 else {}
                cells = {
                    f"`{name}`": (_over_alone if name in steady else _in_units)(of[name]) if name in of else ""
                    for name in workloads
                }
                rows.append({"tenants": str(replicas)} | named | cells)
    if not rows:
        raise NoNumber(f"{data.name} has no cell of {', '.join(strategies)}")
    return markdown(rows)


def unsteady_in_words(data: DataSet, workloads: Sequence[str]) -> str:
    """A clause on those of the workloads whose baseline is not steady, so that `strategy_table` has them in units."""
    odd = [f"`{name}` ({range_in_words(data.alone(name))} alone)" for name in workloads if not data.is_steady(name)]
    return f"; without a steady baseline, and so in units: {', '.join(odd)}" if odd else ""


def _over_alone(row: Mapping[Any, Any]) -> str:
    if missing := _missing(row, "slowdown"):
        return missing
    slowdown, work = number_in(row, "slowdown"), number_in(row, "stp")
    return f"latency × {slowdown.in_words()}, throughput × {work.in_words()}"


def _missing(row: Mapping[Any, Any], column: str) -> str:
    """Why the row has no such value; empty where it has one."""
    if row["n"] > 0 and not pd.isna(row[column]):
        return ""
    return "no valid cell" if row["status"] == "ok" else str(row["status"]).replace("-", " ")


def facts(datasets: Mapping[str, DataSet]) -> str:
    return markdown([_facts_row(name, data) for name, data in sorted(datasets.items())])


def _facts_row(name: str, data: DataSet) -> dict[str, str]:
    """One study: its cells, valid ones, window, devices (hashed identity), driver, and the days."""
    cells = data.table("cells").drop_duplicates(["strategy", "workload", "replicas", "repeat"])
    config = data.manifest["config"]
    return {
        "study": name.split("/")[-1],
        "cells": str(len(cells)),
        "valid": str(int(cells["valid"].sum())),
        "repeats": str(data.repeats),
        "window": f"{config['window_seconds']:g} s",
        "identity (hashed)": ", ".join(sorted(set(cells["device"].astype(str)))),
        "driver": str(data.device["details"].get("driver", "")),
        "measured": data.measured_on,
    }


def setup(datasets: Mapping[str, DataSet]) -> str:
    """What the studies of a publication were measured with: driver, Python and frameworks."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, data in sorted(datasets.items()):
        details = data.device["details"]
        names = {"driver": "driver", "CUDA": "cuda", "compute mode": "compute_mode", "MIG mode": "mig_mode"}
        if data.device["kind"] == "kubernetes":
            names = {"driver": "driver", "Kubernetes": "kubernetes", "device plugin": "device_plugin"}
        parts = [f"{text} {details.get(key)}" for text, key in names.items()]
        used = [read_json(path)["provenance"] for path in sorted((data.folder / "calibration").glob("*.json"))]
        packages = {key: text for each in used for key, text in each["packages"].items()}
        parts += sorted({f"Python {each['python']}" for each in used})
        parts += [f"{key} {text}" for key, text in sorted(packages.items())]
        found.setdefault(tuple(parts), []).append(f"`{name.split('/')[-1]}`")
    common = [part for part in min(found, default=()) if all(part in each for each in found)]
    lines = [f"- All: {', '.join(common)}."] if common else []
    for all_parts, studies in found.items():
        if different := [part for part in all_parts if part not in common]:
            lines.append(f"- {', '.join(studies)}: {', '.join(different)}.")
    return "\n".join(lines)


def devices(datasets: Mapping[str, DataSet]) -> str:
    """A table of the baselines that were measured on several devices, in whichever studies of a publication.

    Per workload that never pauses how far the devices' means are apart, and how far measurements on one device are.
    """
    return markdown([_devices_row(workload, found) for workload, found in sorted(_baselines(datasets).items())])


def _devices_row(workload: str, by_device: Mapping[str, list[float]]) -> dict[str, str]:
    means = [1e3 * log_interval(own).value for own in by_device.values()]
    apart = spread(by_device)
    within, p = apart.within_percent, apart.probability
    return {
        "alone on a device": f"`{workload}`",
        "devices": str(len(by_device)),
        "cells": str(sum(map(len, by_device.values()))),
        "fastest to slowest device": f"{digits(min(means))} to {digits(max(means))} ms",
        "between devices": f"{apart.between_percent:.2f} %",
        "within one": "" if within is None else f"{within:.2f} %",
        "p": "" if p is None else f"{p:.2g}",
    }


def across_devices(datasets: Mapping[str, DataSet], workload: str) -> dict[str, float]:
    """The numbers of a workload in the table of `devices`. Raises NoNumber."""
    by_device = _baselines(datasets).get(workload, {})
    apart = spread(by_device) if by_device else None
    if apart is None or apart.within_percent is None or apart.probability is None:
        raise NoNumber(f"{workload} was not measured alone on several devices, and twice on one")
    known = {"between_percent": apart.between_percent, "within_percent": apart.within_percent}
    return known | {"probability": apart.probability, "devices": len(by_device)}


def _baselines(datasets: Mapping[str, DataSet]) -> dict[str, dict[str, list[float]]]:
    """Mean latency of one tenant alone by workload and device, of workloads that never pause, where there are two."""
    found: dict[str, dict[str, list[float]]] = {}
    for data in datasets.values():
        cells = data.table("cells")
        alone = cells["strategy"].isin([data.baseline, control_name(data.baseline)]) & (cells["replicas"] == 1)
        alone &= cells["workload"].isin(always_busy(data.manifest["config"]))
        for row in cells[alone & cells["valid"]].to_dict("records"):
            by_device = found.setdefault(row["workload"], {})
            by_device.setdefault(row["device"], []).append(float(row["latency_mean_seconds"]))
    return {workload: by_device for workload, by_device in found.items() if len(by_device) > 1}


def measured_in(data: DataSet, root: str) -> str:
    """On what a data set was measured and how often, with a link to what it is; `root` leads to the checkout."""
    devices = f"{data.device_count} devices, " if data.device_count > 1 else ""
    how = f"{data.device['product']}, {devices}every cell {times(data.repeats)}, windows of {data.window_seconds:g} s"
    names = sorted(data.table("cells")["tenant_workload"].dropna().unique())
    short = short_windows(data.manifest["config"], names)
    if short:
        least = ", ".join(f"{seconds:g} s of `{name}`" for name, seconds in short.items())
        how += f", where the catalogue asks for {least}"
    return f"{how}: [{data.name}]({root}/{data.about})"


def markdown(rows: list[dict[str, str]]) -> str:
    if not rows:
        return "Nothing is published here yet."
    titles = list(rows[0])
    lines = [titles, ["---"] * len(titles), *([row[title] for title in titles] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
