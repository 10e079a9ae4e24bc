"""The dashboard for Grafana asks for metrics that there are, and adds up none that must not be."""

import json
import re

from grafana import BOARD, expressions

from sharebench.cell.prometheus.usage import METRICS
from tenant.exposition import exposition
from tenant.recorder import Tally


def test_every_metric_that_is_asked_for_is_one_that_somebody_shows() -> None:
    text = exposition(Tally(), 0, True, "w", 0).decode()
    shown = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} | set(METRICS)
    asked = {name for each in expressions() for name in re.findall(r"\b(?:sharebench|DCGM)_\w+", each)}
    assert asked <= shown
    assert {"sharebench_iteration_seconds_bucket", "sharebench_errors_total", "DCGM_FI_PROF_SM_ACTIVE"} <= asked


def test_every_variable_is_used_and_every_one_used_is_there() -> None:
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
