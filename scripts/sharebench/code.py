"""Which files make what: the lists behind the fingerprints that decide what is stale."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from sharebench.digests import KnownDigests
from sharebench.fingerprint import fingerprint

SCRIPTS = Path(__file__).resolve().parent.parent


def _all(folder: str, pattern: str = "*.py") -> list[str]:
    return sorted(f"{folder}/{path.name}" for path in (SCRIPTS / folder).glob(pattern))


# What measures a cell on any node: its story, its checks, and what a strategy means.
CORE = [
    "sharebench/calibration.py",
    "sharebench/cell.py",
    "sharebench/collect/rows.py",
    "sharebench/findings.py",
    "sharebench/gates.py",
    "sharebench/gates_drift.py",
    "sharebench/gates_gpu.py",
    "sharebench/gates_load.py",
    "sharebench/gates_programs.py",
    "sharebench/gates_prometheus.py",
    "sharebench/mixes.py",
    "sharebench/queueing.py",
    "sharebench/window.py",
    "sharebench/strategies.py",
]
# What measures cells in which a tenant goes wrong, besides what measures all.
FAULT_CELL = ["sharebench/fault_cell.py"]
# What of a tenant runs on a GPU only, and what is no tenant but the probe of time slices.
GPU_ONLY = {f"tenant/{name}.py" for name in ("cuda", "models", "nvml", "roofs", "telemetry", "torch_device")}
PROBE = {"tenant/spin.py"}
# What only programs of anyone's need (`kind: command` and `kind: http`).
PROGRAMS = [
    "sharebench/collect/metrics.py",
    "sharebench/collect/outside.py",
    "sharebench/collect/programs.py",
    "sharebench/tenants/programs.py",
    "tenant/door.py",
]
# What only cells need that a Prometheus watches.
WATCHED = [
    "sharebench/collect/__init__.py",
    "sharebench/collect/dcgm.py",
    "sharebench/collect/discovery.py",
    "sharebench/collect/prometheus.py",
    "sharebench/collect/series.py",
    "sharebench/prometheus_cell.py",
]
# What looks at a cluster before anything is measured.
PREFLIGHT = {f"sharebench/nodes/kubernetes/{name}.py" for name in ("parts", "preflight", "rights", "survey")}
TENANT = [file for file in _all("tenant") if file not in {*PROBE, *PROGRAMS}]
NODES = {
    "cpu": [
        *(file for file in TENANT if file not in GPU_ONLY),
        "sharebench/nodes/base.py",
        "sharebench/nodes/cpu.py",
        "sharebench/tenants/kinds.py",
        "sharebench/tenants/logs.py",
        "sharebench/tenants/orphans.py",
        "sharebench/tenants/processes.py",
        "sharebench/collect/scrape.py",
        "sharebench/collect/telemetry.py",
    ],
    "nvidia": [
        *TENANT,
        "sharebench/nodes/base.py",
        "sharebench/nodes/nvidia.py",
        "sharebench/nodes/nvidia_evidence.py",
        "sharebench/nodes/nvml.py",
        "sharebench/nodes/mps.py",
        "sharebench/nodes/mig.py",
        "sharebench/workload_modules.py",
        "sharebench/tenants/kinds.py",
        "sharebench/tenants/logs.py",
        "sharebench/tenants/orphans.py",
        "sharebench/tenants/processes.py",
        "sharebench/collect/scrape.py",
        "sharebench/collect/telemetry.py",
        "sharebench/collect/gpu_telemetry.py",
        "sharebench/collect/nvml_sampler.py",
    ],
    "kubernetes": [
        *TENANT,
        "sharebench/nodes/base.py",
        "sharebench/nodes/nvml.py",
        *(file for file in _all("sharebench/nodes/kubernetes") if file not in PREFLIGHT),
        "sharebench/tenants/__init__.py",
        "sharebench/tenants/bundle.py",
        "sharebench/tenants/kinds.py",
        "sharebench/tenants/logs.py",
        "sharebench/tenants/orphans.py",
        "sharebench/tenants/pod_endpoint.py",
        "sharebench/tenants/pod_forward.py",
        "sharebench/tenants/pod_spec.py",
        "sharebench/tenants/pod_status.py",
        "sharebench/tenants/pod_telemetry.py",
        "sharebench/tenants/pod_watch.py",
        "sharebench/tenants/pods.py",
        "sharebench/tenants/processes.py",
        "sharebench/collect/gpu_telemetry.py",
        "sharebench/collect/nvml_sampler.py",
        "sharebench/collect/scrape.py",
        "sharebench/collect/telemetry.py",
    ],
    "simulated": [
        "sharebench/nodes/base.py",
        "sharebench/nodes/simulated.py",
        "sharebench/tenants/simulated.py",
        "sharebench/tenants/simulated_load.py",
        "tenant/layout.py",
    ],
}
READING = [
    "sharebench/files.py",
    "sharebench/findings.py",
    "sharebench/gates.py",
    "sharebench/gates_drift.py",
    "sharebench/gates_gpu.py",
    "sharebench/gates_load.py",
    "sharebench/gates_programs.py",
    "sharebench/gates_prometheus.py",
    "sharebench/histogram.py",
    "sharebench/mixes.py",
    "sharebench/record.py",
    "tenant/layout.py",
]
# What derives a decision from the tables; the other modules of analysis/ make these tables.
MODEL = [f"sharebench/analysis/{name}.py" for name in ("known", "model", "scaling", "sharing", "verdicts")]
ADVICE = [f"sharebench/analysis/{name}.py" for name in ("advice", "advice_text", "capacity", "cost", "options")]
READER = "sharebench/analysis/tables.py"
DECIDING = [
    *("sharebench/decide.py", "sharebench/analysis/__init__.py"),
    *("sharebench/analysis/draws.py", "sharebench/analysis/statistics.py", READER),
    *MODEL,
    *ADVICE,
]
SUMMARISING = [
    *("sharebench/faults.py", "tenant/faults.py"),
    *(file for file in _all("sharebench/analysis") if file not in [*MODEL, *ADVICE, READER]),
]
DRAWING = [READER, "sharebench/collect/series.py", *_all("sharebench/figures")]
STAGES = {
    "export": ["export_histograms.py", "sharebench/analysis/export.py", *READING],
    "tables": ["sharebench/aggregate.py", "sharebench/archive.py", "sharebench/dataset.py", *READING, *SUMMARISING],
    "compare": ["compare.py", *READING, *SUMMARISING, *DRAWING],
    "decisions": DECIDING,
    "figures": ["sharebench/mixes.py", *DRAWING],
    "timeslice": ["sharebench/timeslice.py", "sharebench/turns.py", "tenant/spin.py", "tenant/cuda.py"],
    "archive": ["sharebench/archive.py", "sharebench/crate.py"],
    "together": [
        *_all("sharebench", "paper_*.py"),
        *("sharebench/report_words.py", "sharebench/analysis/statistics.py", "sharebench/analysis/across_devices.py"),
        *(READER, "sharebench/archive.py"),
        *_all("sharebench/figures"),
    ],
    "report": [
        *READING,
        *_all("sharebench", "report*.py"),
        *DRAWING,
    ],
}
TEMPLATES = SCRIPTS / "sharebench" / "templates"


@cache
def _digests() -> KnownDigests:
    return KnownDigests()


@cache
def _fingerprint(files: tuple[str, ...]) -> str:
    digests = _digests()
    whole = fingerprint((SCRIPTS / file for file in files), digests.digest_of)
    digests.keep()
    return whole


def of_node(kind: str) -> str:
    """Fingerprint of the code that sets up this kind of node."""
    return _fingerprint(tuple(CORE + NODES[kind]))


def of_cell(kind: str, *modules: str, has_programs: bool = False, is_watched: bool = False) -> str:
    """Fingerprint of the code that measures workloads (their files `modules`; none if simulated) on a kind of node."""
    own = [f"tenant/workloads/{module}.py" for module in ("__init__", *sorted(set(modules)))] if modules else []
    of_faults = FAULT_CELL if "fault" in modules else []
    more = (PROGRAMS if has_programs else []) + (WATCHED if is_watched else [])
    return _fingerprint(tuple(CORE + NODES[kind] + own + of_faults + more))


def of_stage(stage: str) -> str:
    """Labelled fingerprint of the code that makes exports, tables, figures or the report."""
    digest = _fingerprint(tuple(STAGES[stage]))
    if stage == "report":
        for template in sorted(path for path in TEMPLATES.rglob("*") if path.is_file()):
            digest = hashlib.sha256(digest.encode() + template.read_bytes()).hexdigest()[:16]
    return f"{stage} code {digest}"
