"""Time series of workloads, from Prometheus's answers about dcgm-exporter's GPUs."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from planted_gpus import Planted, Series, cluster, series, steady

from sharebench.measure.cell.prometheus.server import PrometheusUnavailable, Server
from sharebench.measure.cell.prometheus.usage import gpu_usage, usages, workload_name
from sharebench.model.records.usage import DRAM, MEMORY, SM, UTIL, ObservedUsage, Usage
from sharebench.read.survey.judge import judge_usage
from sharebench.read.survey.limits import Limits


def by_workload(found: Series) -> dict[str | None, Usage]:
    courses = usages(found, {}, {})
    assert len({each.workload for each in courses}) == len(courses)
    return {each.workload: each for each in courses}


def relabelled(found: Series, **labels: str | None) -> Series:
    """The series with other labels, each a format of the old ones; None removes a label."""

    def changed(old: dict[str, str]) -> dict[str, str]:
        new = {name: None if text is None else text.format(**old) for name, text in labels.items()}
        return {name: text for name, text in (old | new).items() if text is not None}

    return {metric: [(changed(old), samples) for old, samples in each] for metric, each in found.items()}


@pytest.mark.parametrize(
    "pod, workload",
    [
        ("api-6d4cf56db6-x2x5k", "api"),
        ("exporter-x2x5k", "exporter"),
        ("train-0", "train-0"),
        ("web", "web"),
        ("two-words", "two-words"),
    ],
)
def test_a_workload_is_named_after_its_pods(pod: str, workload: str) -> None:
    assert workload_name(pod) == workload


def test_each_workload_on_each_gpu_has_a_time_series() -> None:
    found = by_workload(series(cluster()))
    assert set(found) == {f"team/{n}" for n in ("api", "notebook-0", "llm", "train-0", "left-0", "right-0")} | {None}
    train = found["team/train-0"]
    assert (train.place.node, train.place.gpu, train.place.product) == ("node-a", "3", "NVIDIA H200")
    assert train.place.memory_mib == 143_771
    assert train.series[SM].mean() == pytest.approx(93) and train.series[DRAM].mean() == pytest.approx(40)
    assert train.series[UTIL].mean() == 100 and train.series[MEMORY].max() == 120_000
    assert {name for name, each in found.items() if each.is_shared} == {"team/left-0", "team/right-0"}


def test_pods_are_read_from_renamed_labels() -> None:
    """Without honor_labels, Prometheus renames the exporter's pod labels to exported_*."""
    exporter = {"namespace": "monitoring", "pod": "dcgm-exporter-abcde", "container": "exporter"}
    named = relabelled(
        series([Planted("0", "api-6d4cf56db6-x2x5k", steady(0.5))]),
        exported_pod="{pod}",
        exported_namespace="{namespace}",
        **exporter,
    )
    nameless = relabelled(series([Planted("1")]), **exporter)
    found = by_workload({metric: named[metric] + nameless[metric] for metric in named})
    assert set(found) == {"team/api", None}


def test_the_pod_of_the_exporter_is_not_a_workload() -> None:
    busy = series([Planted("0", "api-0", steady(0.5))])
    idle = relabelled(series([Planted("1")]), namespace="monitoring", pod="dcgm-exporter-abcde")
    assert set(by_workload({metric: busy[metric] + idle[metric] for metric in busy})) == {"team/api-0", None}


def test_without_pods_a_workload_is_named_after_its_gpu() -> None:
    found = by_workload(series([Planted("0"), Planted("1", node="node-b")]))
    assert set(found) == {"GPU 0 of node-a", "GPU 1 of node-b"}


def test_pods_of_one_deployment_that_follow_one_another_are_one_workload() -> None:
    pods = [Planted("0", f"api-6d4cf56db6-{drawn}", steady(0.5)) for drawn in ("x2x5k", "bbbbb")]
    first, second = (series([pod]) for pod in pods)
    both = {
        metric: [(labels, samples[:120]) for labels, samples in first[metric]]
        + [(labels, samples[118:]) for labels, samples in second[metric]]
        for metric in first
    }
    (found,) = by_workload(both).values()
    assert found.workload == "team/api" and not found.is_shared and len(found.series) == 240


def test_each_instance_is_a_place_and_blank_values_are_dropped() -> None:
    one = relabelled(series([Planted("0", "a-0", steady(0.5))]), GPU_I_ID="1", GPU_I_PROFILE="3g.71gb")
    other = relabelled(series([Planted("0", "b-0", steady(9.2e18))]), GPU_I_ID="2", GPU_I_PROFILE="3g.71gb")
    found = by_workload({metric: one[metric] + other[metric] for metric in one})
    assert (found["team/a-0"].place.instance, found["team/a-0"].place.profile) == ("1", "3g.71gb")
    assert not found["team/a-0"].is_shared and not found["team/b-0"].is_shared
    assert found["team/b-0"].series[SM].isna().all()


@dataclass
class FakeServer:
    """A server that answers every query from the same series, and records the queries."""

    found: Series
    asked: list[str] = field(default_factory=list)

    def time_series(self, query: str, hours: float, step_seconds: float, at: float) -> list[Any]:
        self.asked.append(query)
        return next((each for metric, each in self.found.items() if f"({metric}{{" in query), [])

    def vector(self, query: str, at: float | None = None) -> list[Any]:
        self.asked.append(query)
        if "allocatable" in query:
            return [({"node": "node-a", "resource": f"nvidia_com_{name}"}, 3.0) for name in ("gpu", "gpu_shared")]
        return [({"namespace": "team", "pod": "train-0", "image": "trainer:2"}, 1.0)]


def asked(found: Series, labels: dict[str, str] | None = None) -> tuple[list[str], list[Usage]]:
    server = FakeServer(found)
    answer = gpu_usage(cast(Server, server), labels or {}, 48.0, 14_400.0)
    assert answer.step_seconds == 120
    return server.asked, answer.usages


def test_queries_ask_for_means_over_a_step_of_the_chosen_series() -> None:
    questions, found = asked(series(cluster()), {"cluster": "eu-1"})
    assert 'avg_over_time(DCGM_FI_PROF_SM_ACTIVE{cluster="eu-1"}[120000ms])' in questions
    assert {each.image for each in found if each.workload == "team/train-0"} == {"trainer:2"}
    assert {each.place.node for each in found if each.may_be_shared} == {"node-a", "node-b"}
    assert any('kube_node_status_allocatable{resource=~"nvidia_com_gpu.*"}[172800000ms]' in each for each in questions)


@pytest.mark.parametrize("found", [{}, series([replace(cluster()[0])], minutes=0)], ids=["no series", "empty ones"])
def test_missing_metrics_of_the_exporter_are_reported_in_one_line(found: Series) -> None:
    with pytest.raises(PrometheusUnavailable, match=r"no metric of dcgm-exporter in the last 48 h with cluster=eu-1"):
        asked({metric: [each for each in own if each[1]] for metric, own in found.items()}, {"cluster": "eu-1"})


def verdicts(found: Series, units: dict[str, float]) -> dict[str, str]:
    judged = judge_usage(ObservedUsage("Prometheus", 4, 60, usages(found, {}, units)), Limits()).judged
    return {each.name: each.verdict.value for each in judged}


ONE_OF_THREE = series([Planted("0", "a-0", steady(0.3), steady(0.1))])
NAMELESS = relabelled(
    series([Planted("0", "", steady(0.3), steady(0.1))]), namespace="monitoring", pod="dcgm-exporter-abcde"
)
OTHER = relabelled(series([Planted("1", "b-0", steady(0.9))]), Hostname="node-b")
ALL_OF_THREE = series([Planted("0", f"a-{number}", steady(0.3), steady(0.1)) for number in range(3)])
RESERVED = series([Planted("0", "gpu-reservation-x", steady(0.3), namespace="kai-resource-reservation")])
MAYBE, EMPTY = "may share its GPU already", "leaves its GPU empty"


@pytest.mark.parametrize(
    ("found", "units", "verdict"),
    [
        (ONE_OF_THREE, {"node-a": 1}, {"team/a-0": EMPTY}),
        (ONE_OF_THREE, {"node-a": 3}, {"team/a-0": MAYBE}),
        (ONE_OF_THREE, {"node-a": 0}, {"team/a-0": MAYBE}),
        (ONE_OF_THREE, {"node-b": 1}, {"team/a-0": MAYBE}),
        (ONE_OF_THREE, {}, {"team/a-0": MAYBE}),
        (ALL_OF_THREE, {"node-a": 3}, {f"team/a-{number}": "shares its GPU already" for number in range(3)}),
        (NAMELESS, {"node-a": 3}, {"GPU 0 of node-a": MAYBE}),
        (NAMELESS, {}, {"GPU 0 of node-a": MAYBE}),
        (
            {metric: NAMELESS[metric] + OTHER[metric] for metric in OTHER},
            {"node-a": 3, "node-b": 1},
            {"GPU 0 of node-a": MAYBE, "team/b-0": "uses its GPU"},
        ),
        (RESERVED, {"node-a": 1}, {"kai-resource-reservation/gpu-reservation-x": MAYBE}),
        (series([Planted("0", "", steady(0.3))]), {}, {"GPU 0 of node-a": EMPTY}),
        (
            series([Planted("0"), Planted("1", "b-0", steady(0.9))]),
            {},
            {"GPU 0 of node-a": "no workload", "team/b-0": "uses its GPU"},
        ),
    ],
)
def test_a_gpu_that_pods_may_share_is_never_empty(
    found: Series, units: dict[str, float], verdict: dict[str, str]
) -> None:
    """The exporter names one pod of those that share a GPU, or none where the resource is renamed."""
    assert verdicts(found, units) == verdict
