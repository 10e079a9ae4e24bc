"""An SLO for each workload: it takes the place of the study's in goodput, capacity, cost and advice, and only asks."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.analysis.test_capacity import row
from unit.analysis.test_relative import STRATEGIES, option, summary
from unit.factories import record
from unit.studies import NO_SLO, W, config_with, refusal_line, study_with

from sharebench.model.config.load import load
from sharebench.model.question import Slo
from sharebench.model.strategy import Strategy
from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.decide.advice import Demand, Level, Option
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.capacity import capacity_table
from sharebench.read.decide.cost import cost_table
from sharebench.read.decide.documented import DOCUMENTED, Isolation
from sharebench.read.decide.options import measured_level
from sharebench.read.decide.relative import mix_answer
from sharebench.read.decide.rows import applying_limits, summary_rows
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.panels import slo_keys
from sharebench.read.slo import PART_LABELS, format_slo, limits_of, own_limits, slo_limits
from sharebench.read.statistics.intervals import Estimate

KEYS = [f"{part}_ms" for part in PART_LABELS]
NAMES = st.sampled_from(["matmul", "detector", "memcopy"])
LIMITS = st.fixed_dictionaries({key: st.none() | st.floats(0.1, 1e4) for key in KEYS})
SLOS = st.builds(lambda general, own: general | {"workloads": own}, LIMITS, st.dictionaries(NAMES, LIMITS))


def without_parts_of_streams(slo: dict[str, Any]) -> dict[str, Any]:
    own = {name: limits | dict.fromkeys(KEYS[1:]) for name, limits in slo["workloads"].items()}
    return slo | {"workloads": own}


def asked(general: Mapping[str, float], **own: Mapping[str, float]) -> Slo:
    none = {key: None for key in KEYS}
    return cast(Slo, NO_SLO | general | {"workloads": {name: none | each for name, each in own.items()}})


@given(SLOS, NAMES)
def test_own_limits_take_the_place_of_all_of_the_studys(slo: dict[str, Any], name: str) -> None:
    source = slo["workloads"].get(name, slo)
    expected = {part: source[f"{part}_ms"] / 1e3 for part in PART_LABELS if source[f"{part}_ms"] is not None}
    made = cast(Slo, slo)
    assert limits_of(made)(name) == slo_limits(made, name) == expected
    assert own_limits(made).get(name, slo_limits(made)) == expected
    assert bool(format_slo(made)) == bool(slo_limits(made) or any(own_limits(made).values()))
    older = {key: value for key, value in slo.items() if key != "workloads" and value is not None}
    assert slo_limits(cast(Slo, older), name) == slo_limits(made), "a config from before the key"


@settings(max_examples=15)
@given(SLOS.map(without_parts_of_streams))
def test_it_only_asks_and_a_loaded_config_loads_the_same(slo: dict[str, Any]) -> None:
    loaded = load(config_with({"slo": slo}))
    assert load(loaded) == loaded and loaded["slo"] == slo
    plain, held = study_with({}), study_with({"slo": slo})
    assert [held.spec(cell).text for cell in held.cells] == [plain.spec(cell).text for cell in plain.cells]
    assert {name: held.code(name) for name in held.workloads()} == {
        name: plain.code(name) for name in plain.workloads()
    }


def test_the_name_of_a_sweep_stands_for_all_its_workloads() -> None:
    swept = {f"{W}.matmul.load": {"arrival": "constant", "rate_hz": [1, 2, 3]}, "workloads": ["matmul"]}
    own = {"matmul": {"latency_ms": 50}, "matmul-rate_hz-2": {"latency_ms": 70}}
    for each in (own, dict(reversed(own.items()))):
        found = load(config_with(swept | {"slo": {"workloads": each}}))["slo"]["workloads"]
        assert {name: limits["latency_ms"] for name, limits in found.items()} == {
            "matmul-rate_hz-1": 50,
            "matmul-rate_hz-2": 70,
            "matmul-rate_hz-3": 50,
        }


@pytest.mark.parametrize(
    ("own", "parts"),
    [
        ({"matmull": {"latency_ms": 5}}, ["slo.workloads:", "'matmull'", "not in the catalogue", "'matmul'"]),
        ({"both": {"latency_ms": 5}}, ["slo.workloads.both:", "is a mix", "name the workloads of its tenants"]),
        ({"matmul": {"latency_ms": 0}}, ["slo.workloads.matmul.latency_ms:", "0", "not above 0"]),
        ({"matmul": {"latency": 5}}, ["slo.workloads.matmul", "latency", "latency_ms"]),
        ({"Mat Mul": {}}, ["slo.workloads", "Mat Mul", "cannot be a workload"]),
        ({"matmul": 5}, ["slo.workloads.matmul", "5", "mapping"]),
        (
            {"matmul": {"latency_ms": 5, "ttft_ms": 5}},
            ["slo.workloads.matmul.ttft_ms: 'matmul' does not stream, so it has none; give latency_ms"],
        ),
        (
            {"swept": {"tpot_ms": 5}},
            ["slo.workloads.swept.tpot_ms: 'swept' does", "latency_ms, or set workload_catalogue.swept.stream: true"],
        ),
    ],
)
def test_a_name_or_a_limit_that_is_none_is_refused_in_one_line(own: dict[str, Any], parts: list[str]) -> None:
    server = {"kind": "http", "url": "http://127.0.0.1:9", "request": {"path": "/"}, "load": {"concurrency": [1, 2]}}
    line = refusal_line({f"{W}.both.tenants": ["matmul", "detector"], f"{W}.swept": server, "slo.workloads": own})
    assert "\n" not in line and all(part in line for part in parts), line


def test_limits_of_a_workload_that_are_empty_are_no_slo() -> None:
    assert format_slo(asked({}, front={})) == ""
    assert format_slo(asked({"latency_ms": 5.0}, front={})) == "5 ms; front none"


def test_the_parts_of_a_stream_in_the_slo_of_the_study_are_of_the_workloads_that_have_them() -> None:
    assert load(config_with({"slo": {"ttft_ms": 5}, "workloads": ["matmul"]}))["slo"]["ttft_ms"] == 5


def test_goodput_holds_each_tenant_of_a_mix_to_its_own() -> None:
    made = record("mps", [np.full(400, 0.002), np.full(100, 0.05)], workload="both", tenants_run=["service", "large"])
    parts = {"latency_ms": 10.0}, {"latency_ms": 100.0}
    wrong, right = asked(parts[0]), asked(parts[0], large=parts[1])
    for slo, good in ((wrong, [True, False]), (right, [True, True])):
        cells = split_by_workload(made, reduce_record(made, limits=limits_of(slo)), limits_of(slo))
        assert [bool(cell.rows[0].goodput_hz) for cell in cells] == good


def test_capacity_and_cost_have_the_limits_of_their_workload() -> None:
    rows = [row("mps", n, 0.05 * n, throughput_total_hz=10.0, goodput_total_hz=8.0) for n in (1, 3, 5)]
    rows += [each | {"workload": "other"} for each in rows]
    found, limits = (
        summary_rows(pd.DataFrame(rows)),
        limits_of(asked({"latency_ms": 60.0}, other={"latency_ms": 200.0})),
    )
    table = capacity_table(found, limits, ["matmul", "other"])
    assert table["capacity_tenants"].tolist() == [1, 3] and table["slo_ms"].tolist() == [60, 200]
    assert cost_table(found, None, limits, ("slo",))["slo_ms"].tolist() == [60] * 3 + [200] * 3


@pytest.mark.parametrize(
    ("drawn", "labels"),
    [
        (["chat", "long"], ["SLO: TTFT 500 ms"]),
        (["chat", "other"], ["SLO of each workload"]),
        (["chat", "service"], ["SLO of each workload"]),
        (["service"], []),
    ],
)
def test_the_legend_has_a_limit_only_if_it_is_that_of_all_workloads(drawn: list[str], labels: list[str]) -> None:
    same = {"ttft_ms": 500.0}
    slo = asked({"latency_ms": 50.0}, chat=same, long=same, other={"ttft_ms": 900.0})
    study = SimpleNamespace(config={"slo": slo})
    made = cast(DrawnStudy, SimpleNamespace(slo_ms=lambda name: DrawnStudy.slo_ms(cast(DrawnStudy, study), name)))
    assert [each.get_label() for each in slo_keys(made, drawn, {"ttft": "TTFT"})] == labels


@pytest.mark.parametrize(
    ("limit", "strategy", "said"),
    [
        (30.0, "mps", "A plan must hold front 30 ms, by the percentiles that are known."),
        (15.0, "time-slicing", "front has p95 20 ms"),
        (5.0, "exclusive", "front has p95 10 ms"),
        (None, "mps", ""),
    ],
)
def test_a_plan_under_which_a_tenant_exceeds_its_limit_is_none(limit: float | None, strategy: str, said: str) -> None:
    seconds = {"mps": 0.02, "time-slicing": 0.01}
    rows = [each for each in summary() if each.replicas == 3]
    for each in rows:
        metrics = cast(dict[str, Estimate], each.metrics)
        metrics["latency_p95_seconds"] = Estimate(
            seconds[each.strategy] * (1 if each.tenant_workload == "front" else 9)
        )
    own = own_limits(asked({"latency_ms": 1.0}, front={"latency_ms": limit} if limit else {}))
    answer = mix_answer("lab", rows, STRATEGIES, option, Demand(3, limits={"latency": 0.001}), True, own)
    assert answer is not None and answer.strategy == strategy
    texts = " ".join([*(each.text for each in answer.reasons), *(each.verdict for each in answer.plans)])
    assert said in texts


@pytest.mark.parametrize(
    ("limit", "isolation", "headline"),
    [
        (15.0, "none", "no sharing that holds the limits of its tenants brings anything (mps: front has p95 20 ms, "),
        (15.0, "fault", "no sharing with fault isolation brings anything; take"),
        (30.0, "none", "take mps on 1 GPU"),
    ],
)
def test_sharing_that_gains_beyond_a_limit_is_not_said_to_bring_nothing(
    limit: float, isolation: str, headline: str
) -> None:
    rows = summary({("mps", 3): 2.5, ("time-slicing", 3): 0.9})
    for each in rows:
        cast(dict[str, Estimate], each.metrics)["latency_p95_seconds"] = Estimate(
            0.02 if each.strategy == "mps" else 0.01
        )

    def shared(strategy: Strategy, levels: Mapping[int, Level]) -> Option:
        return replace(option(strategy, levels), fault=Isolation(strategy.name != "mps", DOCUMENTED, ""))

    answer = mix_answer(
        "lab", rows, STRATEGIES, shared, Demand(3, isolation=isolation), True, {"front": {"latency": limit / 1e3}}
    )
    assert answer is not None and answer.headline.startswith(headline)
    assert limit > 20 or answer.strategy == "exclusive"
    late = "No plan with mps: front has p95 20 ms, more than 15 ms."
    assert (late in answer.texts("no plan")) == (limit < 20 and isolation == "none")


def test_a_plan_under_which_a_server_hardly_answers_is_none() -> None:
    """Under MPS the five answers that a percentile needs have not come; under time-slicing they have."""
    rows = [each for each in summary() if each.replicas == 3]
    for each in (each for each in rows if each.strategy == "time-slicing"):
        metrics = cast(dict[str, Estimate], each.metrics)
        metrics |= dict.fromkeys(("latency_p95_seconds", "ttft_p50_seconds"), Estimate(0.02))
    answer = mix_answer("lab", rows, STRATEGIES, option, Demand(3), True, {"front": {"ttft": 0.5}})
    assert answer is not None and answer.strategy == "time-slicing"
    assert answer.texts("no plan") == ["No plan with mps: front: no percentile is known."]


def test_tenants_that_exceed_their_limits_alone_have_no_plan() -> None:
    rows = [each for each in summary() if each.replicas == 3]
    late = {"latency_p95_seconds": Estimate(0.02)}
    for each in rows:
        cast(dict[str, Estimate], each.metrics).update(late)
    alone = [replace(rows[0], strategy="exclusive", workload="front", replicas=1, metrics=late)]
    for limit, headline in ((0.01, "no strategy that was measured serves 3 tenants"), (0.03, "take mps on 1 GPU")):
        answer = mix_answer("lab", rows, STRATEGIES, option, Demand(3), True, {"front": {"latency": limit}}, alone)
        assert answer is not None and answer.headline.startswith(headline)


def test_an_answer_without_a_plan_names_the_limits_and_what_did_not_enter() -> None:
    rows = summary({("mps", 3): 2.5, ("streams", 2): 2.0})
    late = {"latency_p95_seconds": Estimate(0.02)}
    for each in rows:
        cast(dict[str, Estimate], each.metrics).update(late)
    alone = [replace(rows[0], strategy="exclusive", workload="front", replicas=1, metrics=late)]
    demand = Demand(8, price_per_hour=4.0)
    answer = mix_answer("lab", rows, STRATEGIES, option, demand, True, {"front": {"latency": 0.01}}, alone)
    assert answer is not None
    assert answer.headline == "no strategy that was measured serves 3 tenants within front 10 ms"
    assert answer.texts("scope")[:-1] == [
        "For 3 tenants, as measured together, not for 8.",
        "streams has no valid cell with 3 tenants, but with other numbers.",
        "The price did not enter: what runs together is compared by its work.",
    ]


def test_a_stream_too_short_for_a_percentile_keeps_its_limits() -> None:
    (short,) = summary_rows(pd.DataFrame([row("mps", 2, 0.05, output_tokens_total_hz=7.5)]))
    (other,) = summary_rows(pd.DataFrame([row("mps", 2, 0.05)]))
    limits = {"latency": 1.0, "ttft": 0.1}
    assert applying_limits([short], limits) == limits and applying_limits([other], limits) == {"latency": 1.0}
    unknown = replace(option(STRATEGIES["mps"], {}), levels={2: measured_level(short)})
    answer = answer_question("chat", [unknown], Demand(2, limits))
    assert answer.headline.startswith("no strategy that was measured is known to serve 2 tenants within latency")
