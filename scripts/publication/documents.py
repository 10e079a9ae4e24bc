"""What stands between the marks of documents: tables and texts whose numbers come from the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from publication import bare_loop, gates
from publication.findings import Contradicted, Filler, times
from publication.marks import BLOCK
from publication.numbers import DataSet, NoNumber
from publication.tables import markdown
from sharebench.analysis.statistics.intervals import log_interval
from sharebench.analysis.tables.devices import always_busy, spread
from sharebench.core.files import read_json
from sharebench.core.strategies import again
from sharebench.datasets.dataset import short_windows
from sharebench.report.words import digits


def filled(path: Path, root: Path, filler: Filler, blocks: Mapping[str, Any], datasets: Mapping[str, DataSet]) -> str:
    """The document with its blocks made anew; `datasets` are all that is published, by name."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name in OF_A_PUBLICATION:
            own = {key: data for key, data in datasets.items() if key.split("/")[0] == path.parent.name}
            content = OF_A_PUBLICATION[name](own)
        elif name == bare_loop.FOLDER:
            content = bare_loop.read(root / path.parent).table()
        elif name in blocks:
            content = filler.block(name, blocks[name])
        else:
            known = ", ".join([*OF_A_PUBLICATION, bare_loop.FOLDER, *blocks])
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
    return {
        "study": name.split("/")[-1],
        "cells": str(len(cells)),
        "valid": str(int(cells["valid"].sum())),
        "repeats": str(data.repeats),
        "window": f"{config['window_seconds']:g} s",
        "device": data.device["product"],
        "identity (hashed)": ", ".join(sorted(set(cells["device"].astype(str)))),
        "driver": str(data.device["details"].get("driver", "")),
        "measured": data.measured_on,
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
        alone = cells["strategy"].isin([data.baseline, again(data.baseline)]) & (cells["replicas"] == 1)
        alone &= cells["workload"].isin(always_busy(data.manifest["config"]))
        for row in cells[alone & cells["valid"]].to_dict("records"):
            by_device = found.setdefault(row["workload"], {})
            by_device.setdefault(row["device"], []).append(float(row["latency_mean_seconds"]))
    return {workload: by_device for workload, by_device in found.items() if len(by_device) > 1}


OF_A_PUBLICATION: Mapping[str, Callable[[Mapping[str, DataSet]], str]] = {
    "facts": facts,
    "setup": setup,
    "devices": devices,
    "gates": gates.table,
}
"""Blocks about the studies of the publication whose document has them."""


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
