"""The made-up study as one of servers: streams under a sweep of the load, an SLO, and a device with counters."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
from unit.edited import edited_json
from unit.figures import fabricated

from sharebench.read.figures import data

SWEEP = {"llm-concurrency-1": 1, "llm-concurrency-4": 4, "llm-concurrency-16": 16}
SLO = {"latency_ms": None, "ttft_ms": 300.0, "itl_ms": None, "tpot_ms": 40.0}
FACTORS = {"exclusive": 1.0, "time-slicing": 1.0, "mps": 0.7, "mig": 0.9}
ACTIVITY = dict(zip(fabricated.ACTIVITY, (60.0, 22.0, 45.0), strict=True))


def _metrics(strategy: str, in_flight: int, replicas: int) -> dict[str, float]:
    shared = 1 + (replicas - 1) * FACTORS[strategy]
    tpot = 0.006 * shared * (1 + in_flight / 16)
    ttft = 0.03 * shared * (1 + in_flight / 6)
    values = {"ttft_p50_seconds": ttft, "ttft_p99_seconds": 2.2 * ttft, "itl_p50_seconds": tpot}
    values |= {"itl_p99_seconds": 4 * tpot, "tpot_p50_seconds": tpot, "tpot_p99_seconds": 1.4 * tpot}
    latency = ttft + 100 * tpot
    total = replicas * in_flight / latency
    values |= {f"latency_{what}_seconds": latency for what in ("mean", "p50")}
    values |= {"latency_p95_seconds": 1.2 * latency, "latency_p99_seconds": 1.3 * latency}
    values |= {"throughput_total_hz": total, "throughput_per_tenant_hz": total / replicas}
    values |= {"output_tokens_total_hz": 100 * total, "goodput_total_hz": 0.8 * total, "slowdown": shared}
    return values | {"cost_per_million_tokens": 1.5} | {name: min(99.0, v * shared) for name, v in ACTIVITY.items()}


def write(root: Path, with_activity: bool = True) -> Path:
    """Turn the made-up study at `root` into this one: its tables, and its config; cells are those of matmul."""
    path = root / "tables" / "summary.csv"
    summary = pd.read_csv(path).query("workload == 'matmul'")
    rows: list[dict[str, Any]] = []
    for workload, in_flight in SWEEP.items():
        for row in summary.to_dict("records"):
            own: dict[str, Any] = {str(name): value for name, value in row.items()}
            own |= {"workload": workload, "tenant_workload": workload}
            for name, value in _metrics(own["strategy"], in_flight, own["replicas"]).items():
                known = value if own["n"] else float("nan")
                own |= {name: known, f"{name}_low": 0.95 * known, f"{name}_high": 1.06 * known}
            rows.append(own)
    table = pd.DataFrame(rows)
    gone = [] if with_activity else [name for name in table if str(name).startswith((*ACTIVITY,))]
    table.drop(columns=gone).to_csv(path, index=False)
    cells = pd.read_csv(root / "tables" / "cells.csv").query("workload == 'matmul'")
    renamed = [cells.assign(workload=name, tenant_workload=name) for name in SWEEP]
    pd.concat(renamed).to_csv(root / "tables" / "cells.csv", index=False)
    for raw in list(root.glob("cells/*/matmul/**/raw.json")):
        for name in SWEEP:
            made = Path(str(raw).replace("matmul", name))
            made.parent.mkdir(parents=True)
            made.write_text(re.sub(r'((?:workload|name)\\?": ?\\?")matmul', rf"\g<1>{name}", raw.read_text()))
    with edited_json(root / "manifest.json") as manifest:
        manifest["config"] |= config()
    fabricated.decide_again(root, latency_ms=2500.0)
    return root


def config() -> dict[str, Any]:
    """The config of the study."""
    made = fabricated.config()
    entry = made["workload_catalogue"]["matmul"] | {"description": "An LLM server.", "kind": "http", "stream": True}
    made["workload_catalogue"] = {
        name: entry
        | {"load": entry["load"] | {"concurrency": value}}
        | {"sweep": {"of": "llm", "by": "concurrency", "value": value}}
        for name, value in SWEEP.items()
    }
    return made | {"workloads": list(SWEEP), "slo": SLO}


def study(root: Path) -> data.DrawnStudy:
    """The study at `root`, written and loaded."""
    write(fabricated.write(root))
    return data.load_study(root, root)
