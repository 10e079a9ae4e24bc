"""tables/conformance.csv: one breach of each promise, planted in the records of a strategy that otherwise keeps all."""

import copy
import math
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from unit import factories

from sharebench.model.promises import closing_line, promises
from sharebench.model.strategy import Strategy
from sharebench.read.tables.conformance import MEASURES, conformance_table, junit
from tenant.contract import BUCKET_COUNT

GIB = 1 << 30
LIMITED = Strategy(name="mps-limited", mechanism=("mps",), thread_percent="100/N", memory_percent="100/N")
EXCLUSIVE = Strategy(name="exclusive", mechanism=("exclusive",))
TIME_SLICING = Strategy(name="time-slicing", mechanism=("time-slicing",))
MIG = Strategy(name="mig", mechanism=("mig",), profile="1g")
ANSWERS = {"checked": 532, "wrong": [], "largest_error": {}, "skipped": {}, "versions": {}}


def record(strategy: Strategy, tenants: int, count: int) -> Any:
    """The record of a conformance cell in which each tenant had that number of iterations in 2 s."""
    cell = factories.record(strategy.name, [[2 / count] * count] * tenants, workload="conformance", is_gpu=True)
    spec = factories.spec({"name": "conformance"}, strategy=strategy.spec(), replicas=tenants).text
    node = cell["node"] | {"units": 132, "memory_bytes": 80 * GIB}
    window = {
        "seconds": 1.0,
        "tenants": [{"count": count // 2, "sum_seconds": 1.0, "histogram": {"500": 100}}] * tenants,
    }
    windows = {f"alone-{index}": window for index in range(tenants)} | {"light-alone": window}
    largest = 80 * GIB // tenants if strategy is LIMITED else 79 * GIB
    each = range(tenants)
    tasks = {
        "largest_allocation": [{"tenant": index, "largest_bytes": largest} for index in each],
        "answers": [{"tenant": index, **ANSWERS} for index in each],
    }
    if tenants > 1:
        windows["light-next-to-busy"] = window
        tasks |= {name: [{"tenant": 0, "found_bytes": 0}] for name in ("look_after_free", "look_after_end")}
        tasks["look_shared"] = [{"tenant": 0, "shared_found_bytes": 0}]
    visible = [{"memory_bytes": GIB, "utilisation_percent": 100 / tenants}] * tenants
    found = {"granted": [], "visible": visible, "windows": windows, "tasks": tasks, "failure": None}
    for tenant in cell["tenants"]:
        tenant["view"] = {"sm_count": 44 if strategy is MIG else 132}
    changed = {"spec": spec, "node": node, "limits": strategy.limits(tenants), "promises": found}
    return copy.deepcopy(cell | changed)


def rows(changed: Any) -> Any:
    """The rows of that record, by promise, next to a tenant alone."""
    table = conformance_table([record(EXCLUSIVE, 1, 600), changed])
    return table[table["strategy"] == changed["cell"]["strategy"]].set_index("promise")


def test_a_light_tenant_is_judged_by_as_many_iterations_as_its_percentile_needs() -> None:
    changed = record(TIME_SLICING, 3, 200)
    windows = changed["promises"]["windows"]
    windows["light-next-to-busy"] = {"seconds": 1.0, "tenants": [{"histogram": {"500": 55, "540": 4}}]}
    assert rows(changed).loc["light", "measured"] > 1.1
    windows["light-next-to-busy"]["tenants"] = [{"histogram": {"500": 54, "540": 4}}]
    light = rows(changed).loc["light"]
    assert math.isnan(light["measured"]) and light["reason"] == "the light tenant had fewer than 59 iterations"
    windows["light-next-to-busy"]["tenants"] = [{"histogram": {str(BUCKET_COUNT - 1): 100}}]
    assert rows(changed).loc["light", "reason"] == "the light tenant has a p95 beyond the buckets"


def test_results_and_bytes_have_the_number_of_those_that_were_looked_at() -> None:
    changed = record(LIMITED, 3, 200)
    changed["promises"]["tasks"]["look_after_end"] = [{"tenant": 0, "found_bytes": 0, "looked_bytes": GIB}]
    changed["promises"]["tasks"]["look_shared"] = [{"tenant": 0, "shared_found_bytes": 0, "shared_looked_bytes": 64}]
    assert rows(changed)["of"].dropna().to_dict() == {"answers": 3 * 532, "bytes": GIB + 64}


def test_a_tenant_that_gets_nothing_breaks_fair_shares() -> None:
    changed = record(LIMITED, 3, 200)
    changed["tenants"][1]["count"] = 0
    assert rows(changed).loc["fair", ["measured", "verdict"]].to_list() == [math.inf, "broken"]


def test_the_reason_names_who_does_not_know_the_processes() -> None:
    changed = record(LIMITED, 3, 200)
    changed["promises"]["visible"] = [{"memory_bytes": GIB, "utilisation_percent": None}] * 3
    assert rows(changed).loc["utilisation", "reason"] == "the driver gives no utilisation of its tenants"
    changed["promises"]["visible"] = []
    changed["node"]["kind"] = "simulated"
    assert rows(changed).loc["visible", "reason"].startswith("simulated lists no processes of a GPU; ")


def test_a_strategy_that_keeps_all_its_promises() -> None:
    table = rows(record(LIMITED, 3, 200))
    assert list(table.index) == list(MEASURES)
    verdicts = table["verdict"].to_dict()
    assert {name for name, verdict in verdicts.items() if verdict != "kept"} == {
        *("share-idle", "bytes", "light", "utilisation")
    }
    assert table.loc["share", "measured"] == pytest.approx(100)
    assert table.loc["memory", "measured"] == pytest.approx(100)
    assert table.loc["share", ["unit", "limit"]].to_list() == ["percent of the share", "90 to 110"]
    assert "MPS" in table.loc["share", "source"]
    assert table.loc["utilisation", "measured"] == pytest.approx(0)


def wrong(found: dict[str, Any]) -> None:
    found["tasks"]["answers"][2]["wrong"] = [{"kind": "linear", "precision": "fp16", "error": None}]


def leak(name: str, key: str) -> Callable[[dict[str, Any]], None]:
    def plant(found: dict[str, Any]) -> None:
        found["tasks"][name][0][key] = 4096

    return plant


def invisible(found: dict[str, Any]) -> None:
    found["visible"] = [*found["visible"][1:], None]


def oversized(found: dict[str, Any]) -> None:
    found["tasks"]["largest_allocation"][1]["largest_bytes"] = 28 * GIB


@pytest.mark.parametrize(
    ("strategy", "plant", "promise", "measured"),
    [
        (LIMITED, wrong, "answers", 1),
        (LIMITED, invisible, "visible", 200 / 3),
        (LIMITED, oversized, "memory", 100 * 28 * 3 / 80),
        (MIG, leak("look_after_free", "found_bytes"), "bytes", 4096),
        (MIG, leak("look_after_end", "found_bytes"), "bytes", 4096),
        (MIG, leak("look_shared", "shared_found_bytes"), "bytes", 4096),
    ],
)
def test_one_planted_breach_is_found(
    strategy: Strategy, plant: Callable[[dict[str, Any]], None], promise: str, measured: float
) -> None:
    breaks = record(strategy, 3, 200)
    assert rows(breaks).loc[promise, "verdict"] == "kept"
    plant(breaks["promises"])
    table = rows(breaks)
    assert table.loc[promise, ["verdict", "promised"]].to_list() == ["broken", True]
    assert table.loc[promise, "measured"] == pytest.approx(measured)
    assert list(table["verdict"]).count("broken") == 1


def test_a_tenant_without_its_share_breaks_share_and_fairness() -> None:
    starved = record(LIMITED, 3, 200)
    starved["tenants"][1]["count"] = 150
    table = rows(starved)
    assert set(table[table["verdict"] == "broken"].index) == {"share", "fair"}
    assert table.loc["share", "measured"] == pytest.approx(75)
    assert table.loc["fair", "measured"] == pytest.approx(200 / 150)


def test_a_tenant_that_never_started_breaks_only_that() -> None:
    failed = record(LIMITED, 3, 200) | {"status": "crashed", "reason": "1 of 3 tenants crashed", "promises": None}
    table = rows(failed)
    assert table.loc["start", "verdict"] == "broken"
    assert set(table.drop("start")["verdict"]) <= {"not measured", "not promised"}
    assert table.loc["answers", "reason"] == "1 of 3 tenants crashed"


def test_what_a_mechanism_does_not_promise_is_a_number() -> None:
    sliced = record(TIME_SLICING, 3, 60)
    sliced["promises"]["tasks"]["look_shared"][0]["shared_found_bytes"] = 8
    table = rows(sliced)
    assert table.loc[["share", "memory", "bytes"], "verdict"].to_list() == ["not promised"] * 3
    assert table.loc["share", "measured"] == pytest.approx(30)
    assert table.loc["bytes", "measured"] == 8
    assert "no memory or fault isolation" in table.loc["memory", "source"]


TIMED = {"share", "share-idle", "fair", "light", "utilisation"}
WAITED = "a tenant waited for a CPU for 10.0% of the window"


def contended(strategy: Strategy, tenants: int, count: int) -> Any:
    """A record as above, in which the first tenant waited for a CPU, and had fewer iterations."""
    spoiled = record(strategy, tenants, count)
    spoiled["tenants"][0]["count"] -= count // 4
    spoiled["tenants"][0]["cpu"]["run_queue_seconds"] = 0.2
    return spoiled


@pytest.mark.parametrize("status", ["ok", "crashed"])
def test_a_machine_that_is_not_fit_spoils_what_time_shows_and_nothing_else(status: str) -> None:
    spoiled = contended(LIMITED, 3, 200) | {"status": status}
    wrong(spoiled["promises"])
    table = rows(spoiled)
    assert set(table[table["measured"].isna()].index) == TIMED
    assert set(table.loc[list(TIMED), "reason"]) == {WAITED}
    assert set(table.loc[["share", "fair"], "verdict"]) == {"not measured"}
    verdicts = {"light": "not promised", "memory": "kept", "answers": "broken", "visible": "kept", "start": "kept"}
    assert table.loc[list(verdicts), "verdict"].to_dict() == verdicts
    warned = record(LIMITED, 3, 200)
    warned["telemetry"]["temperature_end_celsius"] = 90.0
    assert rows(warned).loc["share", "verdict"] == "kept"


def test_a_tenant_alone_on_a_machine_that_is_not_fit_gives_no_shares() -> None:
    shared, unfit = record(LIMITED, 3, 200), contended(EXCLUSIVE, 1, 600)
    table = conformance_table([unfit, shared]).set_index(["strategy", "promise"])
    assert table.loc[("mps-limited", "share"), "reason"] == f"of one tenant that has the device: {WAITED}"
    assert table.loc[("exclusive", "share"), "reason"] == WAITED
    assert table.loc[("mps-limited", "fair"), "verdict"] == "kept"
    again = record(EXCLUSIVE, 1, 600)
    table = conformance_table([unfit, again, shared]).set_index(["strategy", "promise"])
    assert table.loc[("mps-limited", "share"), "measured"] == pytest.approx(100), "another repeat will do"


def test_the_reason_says_what_is_missing() -> None:
    in_pods = record(LIMITED, 3, 200)
    in_pods["promises"]["visible"] = None
    assert "with node: nvidia" in rows(in_pods).loc["visible", "reason"]
    alone = conformance_table([record(EXCLUSIVE, 1, 600)]).set_index("promise")
    assert set(alone.loc[["bytes", "fair", "light"], "reason"]) == {"one tenant has no neighbour"}


def test_a_limit_that_is_not_set_is_not_promised() -> None:
    unlimited = Strategy(name="mps", mechanism=("mps",))
    assert rows(record(unlimited, 3, 200)).loc[["share", "memory", "fair"], "verdict"].to_list() == ["not promised"] * 3


@pytest.mark.parametrize(
    ("changes", "harmed"),
    [({}, 0), ({"status": "crashed"}, 1), ({"output_digest": [1.5, -2.5]}, 1), ({"output_digest": None}, 1)],
)
def test_a_fault_that_harms_a_neighbour_breaks_its_promise(changes: dict[str, Any], harmed: int) -> None:
    cell = record(MIG, 2, 200)
    workload = {"name": "conformance", "output_tolerance": 1e-6}
    spec = factories.spec(
        {"name": "f", "tenants": [workload, workload]}, strategy={"mechanism": ["mig"], "profile": "1g"}
    )
    right = {"conformance": {"output_digest": [1.5, -2.0], "capacity_hz": None}}
    cell |= {
        "spec": spec.text,
        "fault": {"kind": "illegal-address", "aggressor": 1, "happened": True},
        "calibration": {"workloads": right},
        "promises": None,
    }
    cell["tenants"][0] |= {"output_digest": [1.5, -2.0], **changes}
    table = rows(cell)
    assert table.loc["fault illegal-address", "measured"] == harmed
    assert table.loc["fault illegal-address", "verdict"] == ("broken" if harmed else "kept")


def test_junit_has_a_failure_for_each_broken_promise() -> None:
    breaks = record(LIMITED, 3, 200)
    wrong(breaks["promises"])
    table = conformance_table([record(EXCLUSIVE, 1, 600), breaks])
    root = ElementTree.fromstring(junit(table))
    assert root.get("failures") == "1" and root.get("tests") == str(len(table))
    assert [suite.get("name") for suite in root] == ["exclusive", "mps-limited"]
    (failed,) = (case for case in root.iter("testcase") if case.find("failure") is not None)
    assert failed.get("name") == "answers, 3 tenants, repeat 1"
    assert failed.find("failure").get("message") == "1 wrong results, promised: at most 0"  # type: ignore[union-attr]
    assert {case.find("skipped") is not None for case in root.iter("testcase") if "light" in str(case.get("name"))} == {
        True
    }


def test_the_closing_line_counts() -> None:
    assert closing_line(["kept", "broken", "not promised"]) == "1 promise broken, 1 kept, 1 not promised"
    assert closing_line(["kept", "not measured"]) == "0 promises broken, 1 not measured, 1 kept"


def test_every_promise_is_measured_and_has_a_source() -> None:
    assert {*MEASURES, "fault"} == set(promises())
    assert all(statement.source for promise in promises().values() for statement in promise.mechanisms.values())


def test_each_source_that_is_a_document_has_a_link() -> None:
    statements = [each for promise in promises().values() for each in promise.mechanisms.values()]
    without = {each.source for each in statements if each.link is None}
    assert without == {"one tenant has the device", "what sharing is for"}
    links = {(each.source.partition(":")[0].partition(",")[0], each.link) for each in statements if each.link}
    assert len(links) == len({document for document, _ in links}), "a document has one address"
