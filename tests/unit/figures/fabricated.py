"""A small made-up study on disk, with everything that figures and report must cope with.

Four strategies with 1, 2 and 4 tenants, three repeats and two workloads; `mig` cannot be split in four, one cell of
`mps` is excluded by a gate, one of `time-slicing` is warned, and `hashing` alone is too short for a p99.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy import stats
from unit import factories

from sharebench.analysis.decide import decide
from sharebench.analysis.tables import startup
from sharebench.core.study_config import Question
from sharebench.records.tables import frame
from sharebench.records.types import Record
from sharebench.report.page import POWER_AND_ENERGY
from sharebench.report.sections.comparisons import TOGETHER

WINDOW_SECONDS = 2.0
LABEL = "CPU stand-in, not a GPU"
HOSTILE = 'device has 2 cores <script>alert("x")</script>'
ALONE_SECONDS = {"matmul": 0.0043, "hashing": 0.019}
MECHANISMS = {"exclusive": "exclusive", "time-slicing": "time-slicing", "mps": "mps", "mig": "mig"}
GATES = {"evidence": "invalid", "coverage": "invalid", "drift": "warning"}
Point = tuple[str, str, int, int]  # strategy, workload, replicas, repeat
ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "dram_active_percent")
FAILED: dict[Point, tuple[str, str]] = {
    ("mps", "matmul", 2, 2): ("evidence", "tenant 1 could run on cores 0, not 0, 1"),
    ("time-slicing", "matmul", 4, 3): ("drift", "the second half was 11 % slower than the first"),
}


def config() -> dict[str, Any]:
    """The merged config of the study."""
    catalogue = {
        name: {
            "description": f"{name} of everything",
            "mechanism": [kind],
            "replicas": [1] if kind == "exclusive" else None,
            "profile": "1g" if kind == "mig" else None,
            **dict.fromkeys(("instances", "thread_percent", "memory_percent")),
        }
        for name, kind in MECHANISMS.items()
    }
    workloads = {
        name: {
            "description": f"{name} in a loop",
            "kind": "loop",
            "params": {"size": 384, "dtype": "float32"},
            "load": {"arrival": "closed", "rate_hz": None, "rate_of_capacity": None},
            "tenants": None,
            "min_window_seconds": 1,
        }
        for name in ALONE_SECONDS
    }
    return {
        "results": "results",
        "node": "cpu",
        "strategies": list(MECHANISMS),
        "replicas": [1, 2, 4],
        "workloads": list(ALONE_SECONDS),
        "interference": [],
        "faults": [],
        "fault_repeats": 1,
        "repeats": 3,
        "window_seconds": WINDOW_SECONDS,
        "baseline": "exclusive",
        "order": "blocks",
        "seed": 1,
        "from": None,
        "warmup": {"min_iterations": 20, "max_seconds": 10, "tolerance_percent": 5},
        "strategy_catalogue": catalogue,
        "workload_catalogue": workloads,
    }


def node(label: str = LABEL) -> dict[str, Any]:
    """The node object of records and of nodes/device.json."""
    return {
        "kind": "cpu",
        "device": "cpu-1f2e3d4c",
        "product": "AMD EPYC 7B13",
        "units": 2,
        "units_name": "cores",
        "memory_bytes": 24 * 2**30,
        "is_gpu": not label,
        "label": label,
        "details": {"governor": "performance", "cores": [0, 1]},
    }


def points(study: dict[str, Any]) -> Iterator[Point]:
    """All cells of the study."""
    for strategy in study["strategies"]:
        for workload in study["workloads"]:
            for replicas in study["replicas"] if strategy != "exclusive" else [1]:
                for repeat in range(1, study["repeats"] + 1):
                    yield strategy, workload, replicas, repeat


def record(point: Point) -> dict[str, Any]:
    """A valid raw.json of one cell."""
    strategy, workload, replicas, repeat = point
    random = np.random.default_rng([len(strategy), len(workload), replicas, repeat])
    factor = {"exclusive": 1.0, "time-slicing": replicas * 1.08, "mps": max(1.0, replicas / 2) * 1.04, "mig": 1.02}
    mean_seconds = ALONE_SECONDS[workload] * factor[strategy] * random.normal(1, 0.01)
    loads = [
        factories.closed_load(random, mean_seconds * (1 + 0.04 * index), 0.1, WINDOW_SECONDS)
        for index in range(replicas)
    ]
    is_infeasible = strategy == "mig" and replicas > 2
    raw = factories.record(
        strategy,
        [] if is_infeasible else loads,
        workload=workload,
        repeat=repeat,
        replicas=replicas,
        run_id="20250114-101112-4f2a",
        status="infeasible" if is_infeasible else "ok",
        reason=HOSTILE if is_infeasible else None,
    )
    name, message = FAILED.get(point, ("", ""))
    gates = [
        {"name": gate, "value": 1.0, "limit": 1.0, "severity": severity, "passed": gate != name}
        | {"message": message if gate == name else ""}
        for gate, severity in GATES.items()
    ]
    return raw | {"node": node(), "gates": [] if is_infeasible else gates}


def write(root: Path, label: str = LABEL, strategies: Sequence[str] = tuple(MECHANISMS)) -> Path:
    """Write the data set of the study, or of some of its strategies, and return its root."""
    shutil.copytree(_made(label, tuple(strategies)).name, root, dirs_exist_ok=True)
    return root


@cache
def _made(label: str, strategies: tuple[str, ...]) -> TemporaryDirectory[str]:
    """The data set, made once; it goes with this process."""
    folder = TemporaryDirectory()
    root = Path(folder.name)
    study = config()
    study["strategies"] = list(strategies)
    all_rows: list[dict[str, Any]] = []
    started: list[startup.Start] = []
    histograms: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in points(study):
        raw = record(point)
        raw["node"] = node(label)
        strategy, workload, replicas, repeat = point
        path = root / "cells" / strategy / workload / f"n{replicas}" / f"r{repeat}" / "raw.json"
        _write_json(path, raw)
        started += startup.starts(cast(Record, raw))
        rows = _cell_rows(raw)
        all_rows += rows
        if rows[0]["valid"]:
            histograms.setdefault((strategy, workload), []).extend(_buckets(raw))
    for (strategy, workload), rows in histograms.items():
        pd.DataFrame(rows).to_csv(root / "cells" / strategy / workload / "histograms.csv", index=False)
    (root / "tables").mkdir()
    cells = pd.DataFrame(all_rows)
    cells.to_csv(root / "tables" / "cells.csv", index=False)
    order = [(start.strategy, start.workload, start.replicas) for start in started]
    table = startup.startup_table(started, startup.Switches(), order)
    table.to_csv(root / "tables" / "startup.csv", index=False)
    groups = cells.groupby(["strategy", "workload", "replicas"], sort=False)
    pd.DataFrame([_group(cast(tuple[str, str, int], key), rows, cells) for key, rows in groups]).to_csv(
        root / "tables" / "summary.csv", index=False
    )
    for name in ("contrasts", "devices"):
        frame(name, []).to_csv(root / "tables" / f"{name}.csv", index=False)
    _write_json(root / "nodes" / "device.json", {"node": node(label), "idle_power_watts": None, "roofs": None})
    asked = {name: study[name] for name in ("strategies", "replicas", "workloads", "repeats")}
    manifest = {
        "config": study,
        "node_kind": "cpu",
        "order": "blocks",
        "requested": asked,
        "not_shown": "",
        "versions": {"sharebench": "0.1.0", "python": "3.11.7", "snakemake": "9.27.1"},
        "git_commit": "8c1d2e3f4a5b6c7d8e9f8c1d2e3f4a5b6c7d8e9f",
        "git_dirty": True,
        "argv": ["snakemake", "--cores", "1", "--config", "replicas=[1, 2, 4]"],
        "run_id": "20250114-101112-4f2a",
        "created_epoch_seconds": 1736850000.0,
    }
    _write_json(root / "manifest.json", manifest)
    decide_again(root)
    return folder


def decide_again(root: Path, data: Path | None = None, latency_ms: float = 20.0) -> None:
    """Write the tables of the decision from those of the cells, for five tenants."""
    results = decide.read(data or root, root)
    question: Question = {
        "slo": {"latency_ms": latency_ms, "ttft_ms": None, "itl_ms": None, "tpot_ms": None},
        "tenants": 5,
        "isolation": "none",
        "price_per_hour": 4.0,
    }
    decide.decide(results, question, root / ".sharebench" / "decided" / "question")


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _buckets(raw: dict[str, Any]) -> list[dict[str, Any]]:
    cell = raw["cell"]
    return [
        {
            "replicas": cell["replicas"],
            "repeat": cell["repeat"],
            "tenant": tenant["index"],
            "bucket_lower_seconds": 1e-6 * 2 ** ((int(i) - 1) / 64),
            "bucket_upper_seconds": 1e-6 * 2 ** (int(i) / 64),
            "count": n,
        }
        for tenant in raw["tenants"]
        for i, n in tenant["histogram"].items()
    ]


def _cell_rows(raw: dict[str, Any]) -> list[dict[str, Any]]:
    failed = [gate for gate in raw["gates"] if not gate["passed"]]
    cell = raw["cell"] | {
        "status": raw["status"],
        "valid": raw["status"] == "ok" and all(gate["severity"] == "warning" for gate in failed),
        "reason": raw["reason"],
        "warnings": ";".join(gate["name"] for gate in failed if gate["severity"] == "warning"),
        "run_id": raw["provenance"]["run_id"],
        "device": raw["node"]["device"],
    }
    if not raw["tenants"]:
        return [cell]
    rows = []
    for tenant in raw["tenants"]:
        values = np.repeat([1e-6 * 2 ** (int(i) / 64) for i in tenant["histogram"]], list(tenant["histogram"].values()))
        row = cell | {
            "tenant": tenant["index"],
            "tenant_workload": tenant["workload"],
            "tenant_status": tenant["status"],
            "count": tenant["count"],
            "errors": 0,
            "latency_mean_seconds": tenant["sum_seconds"] / tenant["count"],
            "throughput_hz": tenant["load"]["achieved_rate_hz"],
            "slowdown": tenant["sum_seconds"] / tenant["count"] / ALONE_SECONDS[tenant["workload"]],
            "memory_mib": tenant["memory_bytes"] / 2**20,
            "server_memory_mib": np.nan,
        }
        for percent in (50, 95, 99):
            is_carried = percent < 99 or tenant["count"] >= 299
            row[f"latency_p{percent}_seconds"] = np.percentile(values, percent) if is_carried else np.nan
        rows.append(row)
    return rows


def _group(key: tuple[str, str, int], rows: pd.DataFrame, cells: pd.DataFrame) -> dict[str, Any]:
    used = rows[rows["valid"]]
    by_repeat = used.groupby("repeat")
    metrics = {
        f"latency_{what}_seconds": by_repeat[f"latency_{what}_seconds"].mean() for what in ("mean", "p50", "p95", "p99")
    } | {
        "throughput_per_tenant_hz": by_repeat["throughput_hz"].mean(),
        "throughput_total_hz": by_repeat["throughput_hz"].sum(),
        "slowdown": by_repeat["slowdown"].mean(),
        "memory_per_tenant_mib": by_repeat["memory_mib"].mean(),
        **{name: 20 * by_repeat["slowdown"].mean() for name in ACTIVITY},
    }
    strategy, workload, replicas = key
    group: dict[str, Any] = {
        "strategy": strategy,
        "workload": workload,
        "tenant_workload": workload,
        "replicas": replicas,
        "status": rows["status"].iloc[0],
        "reason": rows["reason"].iloc[0],
        "n_expected": rows["repeat"].nunique(),
        "n": len(by_repeat),
        "n_excluded": rows["repeat"].nunique() - len(by_repeat),
        "warnings": int((rows.drop_duplicates("repeat")["warnings"] != "").sum()),
        "notes": "",
    }
    for name, values in metrics.items():
        logs = np.log(values.dropna())
        half = stats.t.ppf(0.975, len(logs) - 1) * logs.std() / len(logs) ** 0.5 if len(logs) > 1 else np.nan
        group[name] = np.exp(logs.mean()) if len(logs) else np.nan
        group |= {f"{name}_low": group[name] * np.exp(-half), f"{name}_high": group[name] * np.exp(half)}
        group |= {f"{name}_n": len(logs), f"{name}_n_excluded": group["n_excluded"]}
        if name.startswith("latency_p"):
            group[f"{name}_bucket_error_percent"] = 1.09
    of_gpus = {f"{name}{end}": np.nan for name in (*POWER_AND_ENERGY, *TOGETHER) for end in ("", "_low", "_high")}
    return group | of_gpus | {"tenants_that_fit": np.nan, "scrape_error_percent": np.nan}
