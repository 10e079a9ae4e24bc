"""Writes published data sets, with the tables that `snakemake paper` would make of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from publication.numbers import DataSet

# Mean latency in seconds of two tenants, by strategy and repeat.
LATENCY = {"time-slicing": [2.0, 2.2, 2.1], "mps": [1.0, 1.05, 1.1], "exclusive": [0.9, 0.95, 1.0]}
H200 = {"product": "NVIDIA H200", "label": "", "kind": "nvidia", "is_gpu": True, "details": {"driver": "580"}}


def publish(root: Path, name: str = "gpu/study", device: Mapping[str, Any] = H200, devices: str = "aaa") -> None:
    """A data set under `root`/published and its tables under `root`/made; each repeat is on a letter of `devices`."""
    folder, made = root / "published" / name, root / "made" / name
    (folder / "nodes").mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "nodes/device.json").write_text(json.dumps({"node": device}))
    (made / "tables").mkdir(parents=True)
    config = {"repeats": 3, "window_seconds": 5, "baseline": "exclusive"}
    (made / "manifest.json").write_text(json.dumps({"config": config, "created_epoch_seconds": 1.7e9}))
    rows, summary = [], []
    for strategy, latencies in LATENCY.items():
        point = {"strategy": strategy, "workload": "net", "tenant_workload": "net", "replicas": 2}
        for repeat, seconds in enumerate(latencies, 1):
            letter = devices[(repeat - 1) % len(devices)]
            where = {"repeat": repeat, "block": repeat, "run_id": "20261120-1", "device": letter, "valid": True}
            for tenant, count in enumerate((100, 300)):
                # The mean over all iterations is `seconds`.
                own = seconds * (1.3 if tenant == 0 else 0.9)
                measured = {"latency_mean_seconds": own, "throughput_hz": count / 5, "count": count}
                measured |= {"slowdown": own / 0.9, "memory_mib": 100 * (tenant + repeat), "sm_clock_mean_mhz": 1980}
                rows.append(point | where | {"tenant": tenant} | measured)
        ends = {"slowdown": 2.0, "slowdown_low": 1.9, "slowdown_high": 2.1, "stp": 1.0}
        ends |= {"latency_mean_seconds": latencies[0], "latency_mean_seconds_low": latencies[0] * 0.9}
        ends |= {"latency_mean_seconds_high": latencies[0] * 1.1, "throughput_total_hz": 12345.0}
        summary.append(point | {"n": 3, "status": "ok"} | ends)
    pd.DataFrame(rows).to_csv(made / "tables/cells.csv", index=False)
    pd.DataFrame(summary).to_csv(made / "tables/summary.csv", index=False)


def alone(root: Path, seconds: list[float], name: str = "gpu/study", strategy: str = "exclusive") -> None:
    """Add cells and a row of the summary of one tenant alone, one of these latencies in each repeat."""
    tables = root / "made" / name / "tables"
    point = {"strategy": strategy, "workload": "net", "tenant_workload": "net", "replicas": 1}
    where = {"run_id": "20261120-1", "valid": True, "tenant": 0, "count": 9, "sm_clock_mean_mhz": 1980, "device": "a"}
    cells = [
        point | where | {"repeat": repeat, "block": repeat, "latency_mean_seconds": value}
        for repeat, value in enumerate(seconds, 1)
    ]
    row = point | {"n": len(cells), "status": "ok", "latency_mean_seconds": seconds[0], "throughput_total_hz": 1.0}
    for table, rows in {"cells": cells, "summary": [row]}.items():
        known = pd.read_csv(tables / f"{table}.csv")
        pd.concat([known, pd.DataFrame(rows)]).to_csv(tables / f"{table}.csv", index=False)


def data_set(root: Path, name: str = "gpu/study") -> DataSet:
    return DataSet(name, root / "published", root / "made")
