"""Templates of pods for other schedulers: what they become for a number of tenants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.studies import study

from sharebench.config.load import load
from sharebench.core import pod_template
from sharebench.core.pod_template import PodTemplate
from sharebench.core.strategies import WHOLE_GPU, Strategy, by_template, catalogue

EMPTY = {**WHOLE_GPU, "resources": {}}


def strategy(thread_percent: Any = "100/N", memory_percent: Any = "100/N", **pod: Any) -> Strategy:
    made = Strategy(
        "own", ("time-slicing",), None, None, thread_percent, memory_percent, None, access="static", pod=EMPTY | pod
    )
    return by_template(made)


def filled(made: Strategy, replicas: int, memory_mib: int | None = None) -> PodTemplate:
    return pod_template.filled(made.pod or {}, replicas, made.limits(replicas), memory_mib)


@pytest.mark.parametrize(
    ("replicas", "percent", "fraction", "mib"),
    [(1, "100", "1.00", "40960"), (3, "33", "0.33", "13516"), (7, "14", "0.14", "5734")],
)
def test_shares_are_rounded_down_so_that_all_tenants_fit(replicas: int, percent: str, fraction: str, mib: str) -> None:
    """33 % of 40960 MiB are 13516.8, 14 % are 5734.4."""
    resources = {"a.b/cores": "$thread_percent", "a.b/mem": "$memory_mib", "a.b/gpu": "1"}
    annotations = {"share": "$fraction", "of": "$replicas tenants"}
    made = filled(strategy(resources=resources, annotations=annotations), replicas, 40960)
    assert made.resources == {"a.b/cores": percent, "a.b/mem": mib, "a.b/gpu": "1"}
    assert made.annotations == {"share": fraction, "of": f"{replicas} tenants"}
    assert int(percent) * replicas <= 100
    assert float(fraction) * replicas <= 1


def test_an_oversubscribed_share_stops_at_the_whole_device() -> None:
    made = strategy(thread_percent="200/N", resources={"a.b/cores": "$thread_percent"})
    assert [filled(made, n).resources["a.b/cores"] for n in (1, 3)] == ["100", "66"]


def test_only_mib_need_the_size_of_the_memory() -> None:
    in_percent = strategy(resources={"a.b/mem": "$memory_percent"})
    assert not pod_template.needs_memory(in_percent.pod or {})
    assert filled(in_percent, 4).resources == {"a.b/mem": "25"}
    assert pod_template.needs_memory(strategy(resources={"a.b/mem": "$memory_mib"}).pod or {})


def test_the_limits_of_the_record_are_what_the_pods_ask_for() -> None:
    """In whole percent, as resources of Kubernetes are whole numbers."""
    assert strategy("100/N", 12.5).limits(7) == {"thread_percent": 14.0, "memory_percent": 12.0}
    assert strategy(None, None).limits(7) == {"thread_percent": None, "memory_percent": None}


def test_the_node_is_set_once_for_all_numbers() -> None:
    assert not strategy().depends_on_replicas


def test_a_template_of_the_config_reaches_the_strategy() -> None:
    entry = {"mechanism": "time-slicing", "access": "static", "pod": {"resources": {"nvidia.com/gpu": 1}}}
    known = catalogue(load(study({"strategy_catalogue.own": entry})))
    assert known["own"].pod == WHOLE_GPU
    assert known["mps"].pod is None
    assert by_template(replace(known["exclusive"], access="static")).pod == WHOLE_GPU
    assert by_template(replace(known["exclusive"], access="device-plugin")).pod is None
