"""A dashboard for Grafana, from the names of the metrics that tenants and dcgm-exporter show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sharebench.collect.dcgm import GAUGES
from sharebench.prometheus_cell import METRIC

Json = dict[str, Any]

# Of Grafana 11.
SCHEMA_VERSION = 39
SOURCE = {"type": "prometheus", "uid": "${source}"}
CELL = '{cell=~"$cell"}'
DEVICE = '{Hostname=~"$node"}'
WIDTH, HEIGHT = 12, 8
# Of a gauge of ours: what the panel is called, its unit in Grafana, and what to know when reading it.
SHOWN: Mapping[str, tuple[str, str, str]] = {
    "gr_engine_active_percent": ("Engine active (GR_ENGINE_ACTIVE)", "percent", "Of the device or MIG instance."),
    "sm_active_percent": ("SMs active (SM_ACTIVE)", "percent", "Off in the exporter's default list."),
    "dram_active_percent": ("Memory interface active (DRAM_ACTIVE)", "percent", "Of the device or MIG instance."),
    "gpu_util_percent": (
        "GPU_UTIL: misleading when a GPU is shared",
        "percent",
        "That any kernel ran: one busy tenant makes it 100 %, so it cannot tell strategies apart.",
    ),
    "power_watts": ("Power of the device", "watt", "Never of a pod: do not add it up."),
    "memory_used_mib": ("Memory in use on the device", "decmbytes", "In MiB. Never of a pod: do not add it up."),
}


def dashboard() -> Json:
    """The dashboard as Grafana imports it."""
    panels = []
    for number, (title, unit, note, queries) in enumerate(_panels()):
        place = {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT}
        targets = [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(queries)
        ]
        panels.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": title,
                "description": note,
                "datasource": SOURCE,
                "gridPos": place,
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": targets,
            }
        )
    return {
        "uid": "sharebench",
        "title": "sharebench: tenants of a shared GPU",
        "tags": ["sharebench", "gpu"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("cell", "Cell", f"label_values({METRIC}_count, cell)"),
                _variable("node", "Node", f"label_values({next(iter(GAUGES))}, Hostname)"),
            ]
        },
        "panels": panels,
    }


def expressions(board: Json) -> Iterator[str]:
    """Every query of the dashboard, with its variables as Grafana fills them in."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            filled = target["expr"].replace("$__rate_interval", "1m")
            yield filled.replace("$cell", ".*").replace("$node", ".*")


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
    }


def _rate(suffix: str) -> str:
    return f"rate({METRIC}_{suffix}{CELL}[$__rate_interval])"


def _panels() -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Title, unit, what to know, and queries with their legends."""
    wide = "From the histogram's wide buckets: a straight line within each. The study's records have the fine ones."
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        query = f"histogram_quantile({q}, sum by (cell, tenant, le) ({_rate('bucket')}))"
        yield f"Latency by tenant, {name}", "s", wide, [(query, "{{cell}} tenant {{tenant}}")]
    mean = f"sum by (cell, tenant) ({_rate('sum')}) / sum by (cell, tenant) ({_rate('count')})"
    yield "Mean latency by tenant", "s", "", [(mean, "{{cell}} tenant {{tenant}}")]
    rates = [
        (f"sum by (cell, tenant) ({_rate('count')})", "{{cell}} tenant {{tenant}}"),
        (f"sum by (cell) ({_rate('count')})", "{{cell}} all tenants"),
    ]
    yield "Iterations per second", "ops", "", rates
    errors = f"sum by (cell, tenant) (rate(sharebench_errors_total{CELL}[$__rate_interval]))"
    yield "Errors per second", "ops", "", [(errors, "{{cell}} tenant {{tenant}}")]
    yield "Warm tenants", "short", "", [(f"sum by (cell) (sharebench_ready{CELL})", "{{cell}}")]
    for gauge, (column, factor) in GAUGES.items():
        if column in SHOWN:
            title, unit, note = SHOWN[column]
            # The exporter may repeat the device's value for each pod: of these one is all.
            query = f"max by (Hostname, gpu, GPU_I_ID) ({gauge}{DEVICE})"
            query = query if factor == 1 else f"{factor:g} * {query}"
            yield title, unit, note, [(query, "{{Hostname}} GPU {{gpu}} {{GPU_I_ID}}")]
