"""Data sets of any study as its jobs would write them, for every kind of node and tenant."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from unit import factories

from sharebench.core.files import write_json
from sharebench.model import faults
from sharebench.model.records.types import CellRecord
from sharebench.read.gates import gates
from sharebench.read.tables.histograms import export_histograms
from sharebench.study.cells import Cell
from sharebench.study.study import Study

Json = dict[str, Any]
BASELINE_SECONDS = 0.005
VIEW: Json = {
    "pid": 7,
    "device": "0123456789abcdef",
    "sm_count": 132,
    "memory_free_bytes": 70 << 30,
    "memory_total_bytes": 80 << 30,
    "over_limit_refused": True,
}
POD_VIEW: Json = {"mps_pipe": "/mps", "is_mig": False, "variables": {"SHARE": "1"}, "nodes": ["nvidia0"]}


def node_facts(study: Study) -> Json:
    """Facts of the study's node."""
    kind = study.node_kind
    is_gpu = kind == "nvidia" or (kind == "kubernetes" and study.config["kubernetes"]["device"] == "cuda")
    return {
        "kind": kind,
        "device": "device-1",
        "product": "NVIDIA H200" if is_gpu else "A CPU",
        "units": None if is_gpu and kind == "kubernetes" else 132 if is_gpu else 4,
        "units_name": "cores" if kind == "cpu" or (kind == "kubernetes" and not is_gpu) else "SMs",
        "memory_bytes": 80 << 30,
        "is_gpu": is_gpu,
        "label": "" if is_gpu else "not a GPU",
        "details": {"driver": "580.1"},
    }


def _timed(count: int) -> Json:
    return {"count": count, "sum_seconds": count * 0.004, "histogram": {"766": count}}


def _tenant(study: Study, cell: Cell, index: int, name: str, is_gpu: bool) -> Json:
    rng = np.random.default_rng([len(cell.strategy), len(name), cell.replicas, cell.repeat, index])
    mean = BASELINE_SECONDS * (cell.replicas if cell.strategy == "time-slicing" else 1.05) * rng.normal(1, 0.01)
    entry, window_seconds = study.config["workload_catalogue"].get(name), study.config["window_seconds"]
    if entry is None or entry.load.arrival == "closed":
        load = factories.closed_load(rng, mean, 0.1, window_seconds)
    else:
        load = factories.poisson_load(rng, mean, 0.1, window_seconds, 0.5)
    tenant = factories.tenant(index, load, window_seconds, name)
    tenant["exit"] = {"code": 0, "reason": "ended", "log_tail": ""}
    kind = entry.kind if entry else None
    if kind == "http":
        return factories.served(tenant) | {"stages": {"first_token": _timed(tenant["count"])}}
    if kind == "command":
        half = tenant["count"] // 2
        buckets = [tenant["sum_seconds"] / tenant["count"], 0.01 * cell.replicas, None]
        scraped = factories.scraped(tenant, buckets, [half, tenant["count"] - half, 0])
        scraped["scrape"] |= {"longest_seconds": 0.01}
        return scraped
    if is_gpu:
        in_a_pod = POD_VIEW if study.node_kind == "kubernetes" else {}
        tenant |= {"view": VIEW | in_a_pod, "device_histogram": _timed(tenant["count"])}
    if kind == "job":
        count = tenant["count"]
        job = {"iterations": count, "completed": count, "start_delay_seconds": 0.0, "completion_seconds": 1.5}
        tenant["job"] = job
    return tenant


def fault_outcome(cell: Cell) -> Json:
    return {
        **{"kind": faults.fault_kind(cell.workload), "aggressor": cell.replicas - 1, "at_seconds": 0.8},
        **{"happened": True, "ended_seconds": [0.9] * cell.replicas, "new_tenant_seconds": 1.5},
        **{"recovery_seconds": 2.5, "set_up_again": False, "refused_tenants": 0},
    }


def cell_record(study: Study, cell: Cell, change: Callable[[Json], Json] = lambda made: made) -> Json:
    """The record of a successful cell after `change`, with its gates evaluated."""
    node, names = node_facts(study), study.workloads_of(cell)
    tenants = [_tenant(study, cell, index, name, node["is_gpu"]) for index, name in enumerate(names)]
    is_mix = len(study.components(cell)) > 1
    made = factories.record(
        cell.strategy,
        workload=cell.workload,
        repeat=cell.repeat,
        block=study.block(cell),
        window_seconds=study.config["window_seconds"],
        is_gpu=node["is_gpu"],
        tenants=tenants,
        tenants_run=names if is_mix else None,
        replicas=cell.replicas,
    )
    made |= {
        "spec": study.spec(cell).text,
        "node": node,
        "switch": {"from": None, "out_seconds": 0.1, "in_seconds": 0.2},
    }
    if cell.workload in study.faults:
        made["tenants"][-1] = factories.absent_tenant(cell.replicas - 1, "killed", names[-1])
        made["fault"] = fault_outcome(cell)
    if study.strategies[cell.strategy].is_queue:
        starts = [100.0 + 2.0 * index for index in range(cell.replicas)]
        made["window"] |= {"turns": [[start, start + 1.5] for start in starts]}
        made["window"] |= {"end_monotonic_seconds": starts[-1] + 1.5}
    if "prometheus" in json.loads(made["spec"]):
        made = factories.with_prometheus(made)
    made = change(made)
    return made | {"gates": gates.evaluate(cast(CellRecord, made))}


def _calibrations(study: Study, node: Json, change: Callable[[Json], Json]) -> Iterator[tuple[str, Json]]:
    used = change(factories.record(is_gpu=node["is_gpu"]))
    known = used["calibration"] or dict.fromkeys(("output_digest", "capacity_hz", "roofs", "idle_power_watts"))
    for workload in study.calibrated_workloads():
        yield (
            workload,
            {
                "workload": workload,
                "spec": study.calibration_spec(workload).text,
                "code": factories.CODE,
                "strategy": None,
                "switch": None,
                **{key: known[key] for key in ("output_digest", "capacity_hz", "roofs", "idle_power_watts")},
                "work": None,
                "node": node,
                "provenance": used["provenance"],
            },
        )


def write_data_set(root: Path, study: Study, change: Callable[[Json], Json] = lambda made: made) -> Mapping[str, Any]:
    """Write cells/, calibration/ and nodes/ of the study under `root`; returns the facts of its run."""
    node = change(factories.record() | {"node": node_facts(study)})["node"]
    for cell in study.cells:
        write_json(root / cell.raw, cell_record(study, cell, change))
    for strategy, workload in study.strategy_workload_pairs():
        folder = root / "cells" / strategy / workload
        export_histograms(sorted(folder.glob("*/*/raw.json")), folder / "histograms.csv")
    for workload, calibration in _calibrations(study, node, change):
        write_json(root / "calibration" / f"{workload}.json", calibration)
    write_json(root / "nodes/device.json", {"node": node, "roofs": None, "idle_power_watts": None})
    return {"not_shown": "", "git_commit": None, "git_dirty": None, "argv": ["snakemake"], "run_id": "run-1"}
