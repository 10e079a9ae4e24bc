"""The Grafana dashboard queries metrics that exist, and never adds up values of a device."""

import json
import re

from grafana import BOARD, expressions

from sharebench.measure.cell.prometheus.usage import METRICS
from tenant.exposition import exposition
from tenant.recorder import Tally


def test_every_queried_metric_is_exported_by_tenants_or_exporters() -> None:
    text = exposition(Tally(), 0, True, "w", 0).decode()
    shown = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} | set(METRICS)
    asked = {name for each in expressions() for name in re.findall(r"\b(?:sharebench|DCGM)_\w+", each)}
    assert asked <= shown
    assert {"sharebench_iteration_seconds_bucket", "sharebench_errors_total", "DCGM_FI_PROF_SM_ACTIVE"} <= asked


def test_variables_of_the_dashboard_are_those_that_its_panels_use() -> None:
    names = {each["name"] for each in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"]))) - {"__rate_interval"}
    assert used == names


def test_values_of_the_device_are_never_added_up_and_gpu_util_is_flagged() -> None:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            if "DCGM" in target["expr"]:
                assert "sum" not in target["expr"] and "max by (Hostname, gpu, GPU_I_ID)" in target["expr"]
            if "GPU_UTIL" in target["expr"]:
                assert "misleading" in panel["title"]
