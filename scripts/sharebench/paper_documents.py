"""What stands between the marks of documents: tables and texts whose numbers come from the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench import paper_bare_loop
from sharebench.analysis.across_devices import always_busy, spread
from sharebench.analysis.statistics import log_interval
from sharebench.files import read_json
from sharebench.paper_findings import Contradicted, Filler, times
from sharebench.paper_marks import BLOCK
from sharebench.paper_numbers import DataSet, NoNumber, number_in
from sharebench.report_words import digits
from sharebench.strategies import again


def filled(path: Path, root: Path, filler: Filler, blocks: Mapping[str, Any], datasets: Mapping[str, DataSet]) -> str:
    """The document with its blocks made anew; `datasets` are all that is published, by name."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name in OF_A_PUBLICATION:
            own = {key: data for key, data in datasets.items() if key.split("/")[0] == path.parent.name}
            content = OF_A_PUBLICATION[name](own)
        elif name == paper_bare_loop.FOLDER:
            content = markdown(paper_bare_loop.read(root / path.parent).rows())
        elif name in blocks:
            content = filler.block(name, blocks[name])
        else:
            known = ", ".join([*OF_A_PUBLICATION, paper_bare_loop.FOLDER, *blocks])
            raise Contradicted(f"{path}: there is no block {name}; known are {known}")
        return f"{found[1]}{content}\n{found[4]}"

    return BLOCK.sub(block, (root / path).read_text(encoding="utf-8"))


def facts(datasets: Mapping[str, DataSet]) -> str:
    """A table of the studies of a publication: what each measured, on which device, and when."""
    rows = [facts_row(name, data) for name, data in sorted(datasets.items())]
    return markdown(rows)


def facts_row(name: str, data: DataSet) -> dict[str, str]:
    """One study: its cells, valid ones, window, devices (hashed identity), driver, and the days."""
    cells = data.table("cells").drop_duplicates(["strategy", "workload", "replicas", "repeat"])
    config = data.manifest["config"]
    # A run's id begins with its time.
    days = sorted({f"{run[:4]}-{run[4:6]}-{run[6:8]}" for run in cells["run_id"].astype(str)})
    return {
        "study": name.split("/")[-1],
        "cells": str(len(cells)),
        "valid": str(int((cells["valid"].astype(str) == "True").sum())),
        "repeats": str(data.repeats),
        "window": f"{config['window_seconds']:g} s",
        "device": data.device["product"],
        "identity (hashed)": ", ".join(sorted(set(cells["device"].astype(str)))),
        "driver": str(data.device["details"].get("driver", "")),
        "measured": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
    }


def setup(datasets: Mapping[str, DataSet]) -> str:
    """What the studies of a publication were measured with: driver, Python and frameworks."""
    found: dict[str, list[str]] = {}
    for name, data in sorted(datasets.items()):
        details = data.device["details"]
        parts = [f"driver {details.get('driver')}", f"CUDA {details.get('cuda')}"]
        parts += [f"compute mode {details.get('compute_mode')}", f"MIG mode {details.get('mig_mode')}"]
        used = [read_json(path)["provenance"] for path in sorted((data.folder / "calibration").glob("*.json"))]
        packages = {key: text for each in used for key, text in each["packages"].items()}
        parts += sorted({f"Python {each['python']}" for each in used})
        parts += [f"{key} {text}" for key, text in sorted(packages.items())]
        found.setdefault(", ".join(parts), []).append(f"`{name.split('/')[-1]}`")
    return "\n".join(f"- {', '.join(names)}: {what}." for what, names in found.items())


def devices(datasets: Mapping[str, DataSet]) -> str:
    """A table of the baselines that were measured on several devices, in whichever studies of a publication.

    Per workload that never pauses how far the devices' means are apart, and how far measurements on one device are.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for data in datasets.values():
        baseline = str(data.manifest["config"]["baseline"])
        cells = data.table("cells")
        alone = cells["strategy"].isin([baseline, again(baseline)]) & (cells["replicas"] == 1)
        alone &= cells["workload"].isin(always_busy(data.manifest["config"]))
        for row in cells[alone & (cells["valid"].astype(str) == "True")].to_dict("records"):
            by_device = found.setdefault(row["workload"], {})
            by_device.setdefault(row["device"], []).append(float(row["latency_mean_seconds"]))
    rows = []
    for workload, by_device in sorted(found.items()):
        if len(by_device) < 2:
            continue
        means = [1e3 * log_interval(own).value for own in by_device.values()]
        apart = spread(by_device)
        within, p = apart.within_percent, apart.probability
        rows.append(
            {
                "alone on a device": f"`{workload}`",
                "devices": str(len(by_device)),
                "cells": str(sum(map(len, by_device.values()))),
                "fastest to slowest device": f"{digits(min(means))} to {digits(max(means))} ms",
                "between devices": f"{apart.between_percent:.2f} %",
                "within one": "" if within is None else f"{within:.2f} %",
                "p": "" if p is None else f"{p:.2g}",
            }
        )
    return markdown(rows)


OF_A_PUBLICATION: Mapping[str, Callable[[Mapping[str, DataSet]], str]] = {
    "facts": facts,
    "setup": setup,
    "devices": devices,
}
"""Blocks about the studies of the publication whose document has them."""


def main_table(data: DataSet, replicas: int) -> str:
    """Each plain workload under each strategy at so many tenants: latency and work done, both over one alone."""
    summary = data.table("summary")
    plain = summary[(summary["workload"] == summary["tenant_workload"]) & (summary["replicas"] == replicas)]
    if plain.empty:
        raise NoNumber(f"{data.name} has no cell with {replicas} tenants")
    strategies = list(dict.fromkeys(plain["strategy"]))
    rows = []
    for workload in dict.fromkeys(plain["workload"]):
        of = {row["strategy"]: row for row in plain[plain["workload"] == workload].to_dict("records")}
        cells = {name: _entry(of[name]) if name in of else "" for name in strategies}
        rows.append({f"{replicas} tenants": f"`{workload}`", **cells})
    return markdown(rows)


def measured_in(data: DataSet, root: str) -> str:
    """On what a data set was measured and how often, with a link to what it is; `root` leads to the checkout."""
    devices = f"{data.device_count} devices, " if data.device_count > 1 else ""
    how = f"{data.device['product']}, {devices}every cell {times(data.repeats)}, windows of {data.window_seconds:g} s"
    return f"{how}: [{data.name}]({root}/{data.about})"


def strategy_table(data: DataSet, strategies: Sequence[str], workloads: Sequence[str]) -> str:
    """Workloads under these strategies by number of tenants: latency and work done, both over one alone."""
    summary = data.table("summary")
    plain = summary[summary["workload"] == summary["tenant_workload"]]
    rows = []
    for replicas in sorted(set(plain["replicas"])):
        for strategy in strategies:
            own = plain[(plain["strategy"] == strategy) & (plain["replicas"] == replicas)]
            of = {row["workload"]: row for row in own.to_dict("records")}
            if of:
                named = {"strategy": f"`{strategy}`"} if len(strategies) > 1 else {}
                cells = {f"`{name}`": _entry(of[name]) if name in of else "" for name in workloads}
                rows.append({"tenants": str(replicas)} | named | cells)
    if not rows:
        raise NoNumber(f"{data.name} has no cell of {', '.join(strategies)}")
    return markdown(rows)


def model_table(data: DataSet, strategies: Sequence[str]) -> str:
    """What the scaling model makes of each workload: the fit, and its largest errors where it had to do without.

    Errors are those of predicted over measured mean latency: of all cells as fitted, and of each of these strategies
    predicted from the others.
    """
    predictions, shapes = data.table("predictions"), data.table("model")
    measured = predictions.dropna(subset=["residual_percent"])
    chosen = shapes[shapes["chosen"].astype(str) == "True"].drop_duplicates("workload").set_index("workload")["shape"]
    rows = []
    for workload, shape in chosen.items():
        own = measured[measured["workload"] == workload]
        broken = int((own["flagged"].astype(str) == "True").sum())
        apart = {name: own[own["strategy"] == name]["left_out_residual_percent"] for name in strategies}
        rows.append(
            {"workload": f"`{workload}`", "shape": str(shape), "fitted": _largest(own["residual_percent"])}
            | {name: _largest(errors) for name, errors in apart.items()}
            | {"cells that break it": f"{broken} of {len(own)}"}
        )
    return markdown(rows)


def _largest(errors: pd.Series[float]) -> str:
    known = errors.dropna().abs()
    return f"{digits(known.max())} %" if len(known) else "-"


def _entry(row: Mapping[Any, Any]) -> str:
    if not row["n"] > 0 or pd.isna(row["slowdown"]):
        return "no valid cell" if row["status"] == "ok" else str(row["status"]).replace("-", " ")
    return f"{number_in(row, 'slowdown').in_words(' ×')} as long, {number_in(row, 'stp').in_words(' ×')} the work"


def markdown(rows: list[dict[str, str]]) -> str:
    """Rows with the same keys as a table."""
    if not rows:
        return "Nothing is published here yet."
    titles = list(rows[0])
    lines = [titles, ["---"] * len(titles), *([row[title] for title in titles] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
