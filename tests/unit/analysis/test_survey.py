"""The survey on planted courses: which workloads leave their GPU empty, which fit together, and the written study."""

from typing import Any

import pytest
import yaml
from planted_gpus import H200_MIB, PROFILING, Planted, bursts, cluster, series, steady, whole_gpus
from snakemake.utils import update_config
from unit.studies import config_with

from sharebench.measure.cell.prometheus.usage import usages
from sharebench.model.config.load import load
from sharebench.model.records.usage import ObservedUsage
from sharebench.read.survey import text
from sharebench.read.survey.judge import GpuUse, Survey, group_table, judge_usage, workload_table
from sharebench.read.survey.limits import Limits
from sharebench.read.survey.study import OWN_CONTAINER
from sharebench.read.survey.study import study_config as study_of_survey
from sharebench.study.open_study import open_study


def survey_of(planted: list[Planted], without: tuple[str, ...] = (), minutes: int = 240, **changes: Any) -> Survey:
    found = usages(series(planted, minutes, without), {("team", "api-0"): "api:1"}, whole_gpus(planted))
    return judge_usage(ObservedUsage("Prometheus", 4.0, 60.0, found), Limits(**changes))


def verdicts(survey: Survey) -> dict[str, GpuUse]:
    return {each.name: each.verdict for each in survey.judged}


def groups(survey: Survey) -> list[set[str]]:
    return [{each.name.removeprefix("team/") for each in group.members} for group in survey.groups]


def said(survey: Survey) -> str:
    return " ".join(" ".join(text.lines(survey)).split())


def idle(name: str, **more: Any) -> Planted:
    return Planted(**{"gpu": name, "pod": name, "sm": steady(0.1), "memory_mib": 1000, **more})


def test_a_day_of_a_cluster() -> None:
    survey = survey_of(cluster())
    assert groups(survey) == [{"llm", "api", "notebook-0"}]
    assert [each.number for each in survey.judged] == [1, 1, 1, 0, 0, 0, 0]
    (group,) = group_table(survey).to_dict("records")
    assert group["gpus_freed"] == 2 and group["memory_max_mib"] == 99_000
    # The means are 15, 6 and 1.9; for nine tenths of the time at most one workload is active.
    assert group["activity_mean_percent"] == pytest.approx(22.9, abs=0.1)
    table = workload_table(survey).set_index("workload")
    assert table.loc["team/api", "idle_percent"] == pytest.approx(90)
    assert table.loc["team/api", "sm_active_p95_percent"] == 60
    assert text.lines(survey)[0].startswith("Prometheus, 4 h, 6 NVIDIA H200: 3 of 6 workloads leave their GPU empty")


def test_a_memory_bound_workload_does_not_leave_its_gpu_empty() -> None:
    assert verdicts(survey_of([idle("a", dram=steady(0.6))])) == {"team/a": GpuUse.BUSY}


def test_only_bursts_that_do_not_coincide_fit() -> None:
    # The sum is one and a half GPUs for a tenth of the time, or never.
    together = [idle(name, sm=bursts(0.75, 20, 2)) for name in ("a", "b")]
    apart = [idle(name, sm=bursts(0.75, 20, 2, shift)) for name, shift in (("a", 0), ("b", 10))]
    assert groups(survey_of(together)) == []
    assert groups(survey_of(apart)) == [{"a", "b"}]


@pytest.mark.parametrize(
    "planted, changes",
    [
        ([idle("a", memory_mib=100_000), idle("b", memory_mib=40_000)], {}),
        ([idle("a"), idle("b", product="NVIDIA A100")], {}),
        ([idle("a", sm=steady(0.3)), idle("b", sm=steady(0.3))], {"filled_percent": 50}),
        ([idle("a", dram=steady(0.3)), idle("b", dram=steady(0.3))], {"filled_percent": 50}),
    ],
    ids=["memory", "another product", "activity", "traffic"],
)
def test_workloads_that_do_not_fit_together(planted: list[Planted], changes: dict[str, Any]) -> None:
    survey = survey_of(planted, **changes)
    assert set(verdicts(survey).values()) == {GpuUse.CANDIDATE} and groups(survey) == []
    assert "no two fit on one" in said(survey)


def test_a_pod_with_several_gpus_is_not_grouped() -> None:
    survey = survey_of([idle("0", pod="a"), idle("1", pod="a"), idle("2", pod="b-0"), idle("3", pod="b-1")])
    assert verdicts(survey)["team/a"] is GpuUse.SPREAD and groups(survey) == [{"b-0", "b-1"}]
    assert "has several GPUs: 2" in said(survey)


def test_a_group_has_at_most_the_configured_tenants() -> None:
    assert sorted(map(len, groups(survey_of([idle(str(i)) for i in range(7)], tenants=3)))) == [3, 3]


def test_a_workload_with_unknown_memory_does_not_fit() -> None:
    for memory_mib in (1000, 0):
        planted = [idle(name, memory_mib=memory_mib) for name in "ab"]
        assert groups(survey_of(planted, without=("DCGM_FI_DEV_FB_FREE",))) == []


def test_a_short_course_is_not_judged() -> None:
    assert verdicts(survey_of([idle("a"), idle("b")], minutes=19)) == dict.fromkeys(("team/a", "team/b"), GpuUse.SHORT)


def test_only_the_configured_namespaces_are_judged() -> None:
    survey = survey_of([idle("a"), idle("b", namespace="other"), Planted("2")], namespaces=("other",))
    assert verdicts(survey) == {"other/b": GpuUse.CANDIDATE, "GPU 2 of node-a": GpuUse.NOBODY}


def test_a_survey_without_sm_activity_warns() -> None:
    survey = survey_of(cluster(), without=PROFILING)
    assert "6 of 6 are judged by gpu_util, without SM activity" in said(survey)


def opened(planted: list[Planted], **changes: Any) -> tuple[str, Any]:
    """The written study, as text and as the pipeline expands it on the CPU stand-in."""
    written = study_of_survey(survey_of(planted, **changes), "results/survey/study.yaml", "results/survey-study")
    config = config_with({})
    update_config(config, yaml.safe_load(written))
    return written, open_study(config | {"node": "cpu"})


def test_the_written_study_runs_standins_next_to_each_other() -> None:
    written, found = opened(cluster())
    assert "It measures STAND-INS, not your workloads" in written
    assert found.config["results"] == "results/survey-study"
    shared = {(cell.workload, cell.replicas) for cell in found.cells if cell.strategy == "mps"}
    assert shared == {("survey-group-1", 3)}
    entries = {name: found.config["workload_catalogue"][name] for name in ("survey-1", "survey-2")}
    # The language model's traffic is high while it is at work, half of the time; the other fills the SMs.
    assert entries["survey-1"].module == "memcopy" and entries["survey-1"].load.rate_of_capacity == 0.5
    assert entries["survey-2"].params["size"] == 4096


def test_each_group_is_measured_at_its_own_size() -> None:
    big = [idle(f"big-{i}", memory_mib=H200_MIB // 3) for i in range(2)]
    small = [idle(f"small-{i}", product="NVIDIA A100") for i in range(3)]
    _, found = opened([*big, *small])
    shared = {(cell.workload, cell.replicas) for cell in found.cells if cell.strategy == "mps"}
    assert shared == {("survey-group-1", 3), ("survey-group-2", 2)}


def test_foreign_names_stay_in_comments() -> None:
    written, found = opened([idle("a", pod="a\nworkloads: [x]"), idle("b", pod="api-0")])
    assert "team/a?workloads: [x]" in written and "image: api:1" in written
    assert "team" not in str(yaml.safe_load(written)) and found.config["workloads"] == ["survey-group-1"]


def test_the_commented_container_is_a_valid_workload_of_a_cluster() -> None:
    comment = OWN_CONTAINER.format(image="api:1").splitlines()[1:]
    entry = yaml.safe_load("\n".join(line.removeprefix("  #   ") for line in comment))
    own = {"workload_catalogue.mine": entry, "workloads": ["mine"], "strategies": ["exclusive", "mps"]}
    config = load(config_with({"node": "kubernetes", **own}))
    assert config["workload_catalogue"]["mine"].image == "api:1"
