"""The figure of several servers over one at equal total load."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from unit.figures import serving
from unit.figures.test_pages import line_of

from sharebench.model.study_config import from_json
from sharebench.read.figures import catalogue, data, replicas

pytestmark = pytest.mark.usefixtures("themed")

ALONE, ACTIVE = 1000.0, 40.0
GAINS = {"time-slicing": 0.8, "mps": 1.5}
Cells = list[dict[str, Any]]


def config(**load: object) -> dict[str, Any]:
    """The config of servers with 4 and 16 requests in flight in all, or with another load."""
    made = serving.config()
    entry = made["workload_catalogue"]["llm-concurrency-4"]
    swept = {f"llm-concurrency_total-{n}": n for n in (4, 16)}
    made["workload_catalogue"] = {
        name: entry
        | {"load": entry["load"] | {"concurrency": None, "concurrency_total": n} | load}
        | {"sweep": {"of": "llm", "by": "concurrency_total", "value": n}}
        for name, n in swept.items()
    }
    return made | {"workloads": [*swept], "strategies": ["exclusive", *GAINS]}


def cells() -> Cells:
    """Rows of tenants: the gain grows by 10 % with each block, in which the one server's rate grows likewise."""
    rows = []
    for name in config()["workloads"]:
        for strategy, n in [("exclusive", 1), *((each, n) for each in GAINS for n in (2, 4))]:
            for block in (1, 2, 3):
                gain = GAINS.get(strategy, 1.0) * (1.1 ** (block - 2) if strategy in GAINS else 1.0)
                row = {"strategy": strategy, "workload": name, "replicas": n, "repeat": block, "block": block}
                row |= {"run_id": "one", "device": "d", "machine": "m", "status": "ok", "valid": True}
                row |= {"output_tokens_hz": ALONE * 2**block * gain / n, "sm_active_percent": ACTIVE}
                rows += [row] * n
    return rows


def drawn(study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch, rows: Cells) -> Any:
    monkeypatch.setattr(data.DrawnStudy, "table", lambda *_: pd.DataFrame(rows))
    return replicas.replicas(study)


def widest_interval(page: Any) -> float:
    """The upper over the lower end of a gain in the first panel."""
    ends = [ends for bar in page.axes[0].collections for ends in bar.get_segments() if ends[0][0] == ends[1][0]]
    return max(high / low for (_, low), (_, high) in ends)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> data.DrawnStudy:
    made = serving.study(tmp_path_factory.mktemp("replicas") / "results")
    return replace(made, config=from_json(config()))


def test_the_gain_is_that_of_pairs_in_a_block_over_the_activity_of_one(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = drawn(study, monkeypatch, cells())
    assert [ax.get_title(loc="left") for ax in page.axes] == ["llm, N = 2", "llm, N = 4"]
    for (name, gain), beside in zip(GAINS.items(), (-1, 1), strict=True):
        line = line_of(page.axes[1], name)
        assert line.get_xdata() == pytest.approx([ACTIVE + beside] * 2)
        assert line.get_ydata() == pytest.approx([gain, gain])
    # Student's t of three pairs, whose logs are 0.0953 apart; unpaired, the interval would span decades.
    assert widest_interval(page) == pytest.approx(1.6055, rel=1e-3)
    assert page.axes[0].get_xlabel() == "SMs active with one server (%)"
    assert [text.get_text() for text in page.axes[0].texts] == ["4", "16"]


def test_the_activity_reaches_from_the_least_to_the_largest_cell_of_one(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A 95 % interval of two cells would reach beyond 100 %.
    rows = [row | {"sm_active_percent": 30.0 + 10 * row["block"]} for row in cells() if row["block"] < 3]
    page = drawn(study, monkeypatch, rows)
    bars = [ends for bar in page.axes[0].collections for ends in bar.get_segments() if ends[0][1] == ends[1][1]]
    assert {(low, high) for (low, _), (high, _) in bars} == {(40.0, 50.0)}
    assert list(line_of(page.axes[0], "mps").get_xdata()) == pytest.approx([46, 46])


def test_where_the_activity_is_not_known_the_face_says_so(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = drawn(study, monkeypatch, [row | {"sm_active_percent": math.nan} for row in cells()])
    assert "SM activity is not known on this device" in page.alt_text
    assert page.axes[0].get_xlabel() == "Requests in flight in all"
    assert [text.get_text() for text in page.axes[0].get_xticklabels()] == ["4", "16"]
    assert line_of(page.axes[0], "mps").get_ydata() == pytest.approx([1.5, 1.5])


def test_what_is_excluded_is_named_and_leaves_no_point(study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_gone(row: dict[str, Any]) -> bool:
        return row["strategy"] == "mps" and row["workload"].endswith("16") and row["replicas"] == 4

    page = drawn(study, monkeypatch, [row | {"valid": not is_gone(row)} for row in cells()])
    assert "llm-concurrency_total-16: mps with 4 servers is excluded by a gate" in page.alt_text
    assert pd.notna(line_of(page.axes[1], "mps").get_ydata()).tolist() == [True, False]
    page = drawn(study, monkeypatch, [row | {"valid": row["replicas"] > 1} for row in cells()])
    assert [ax.texts[0].get_text() for ax in page.axes] == [f"llm, N = {n}: no valid measurement" for n in (2, 4)]


def test_blocks_of_several_devices_are_paired_within_a_device(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = [row | {"device": "e", "machine": "n", "output_tokens_hz": row["output_tokens_hz"] / 7} for row in cells()]
    page = drawn(study, monkeypatch, [row | {"run_id": row["strategy"]} for row in [*cells(), *slow]])
    assert line_of(page.axes[0], "mps").get_ydata() == pytest.approx([1.5, 1.5])
    assert widest_interval(page) < 2, "of pairs, though each strategy has a run of its own"


def test_the_control_counts_as_the_one_server(study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [
        row | {"strategy": "exclusive-again", "output_tokens_hz": 1.21 * row["output_tokens_hz"]}
        for row in cells()
        if row["strategy"] == "exclusive"
    ]
    page = drawn(study, monkeypatch, [*cells(), *twice])
    assert line_of(page.axes[0], "mps").get_ydata() == pytest.approx([1.5 / 1.1] * 2)


def test_a_sweep_for_each_tenant_has_the_figure_where_loads_are_equal(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = from_json(serving.config())
    rows = [row | {"workload": row["workload"].replace("_total", "")} for row in cells()]
    page = drawn(replace(study, config=each), monkeypatch, rows)
    assert [ax.get_title(loc="left") for ax in page.axes] == ["llm, N = 4"], "4 with 4 each against one with 16"
    assert "replicas" in catalogue.names_for(each, "cpu")


@pytest.mark.parametrize(
    "other",
    [
        {"replicas": [1]},
        {"baseline": "none"},
        config(arrival="poisson", rate_hz=3.0, rate_for="all"),
        config(concurrency=5, concurrency_total=None),
        serving.config() | {"replicas": [1, 3]},
    ],
)
def test_a_study_without_servers_at_equal_closed_loads_has_no_figure(other: dict[str, Any]) -> None:
    assert "replicas" in catalogue.names_for(from_json(config()), "cpu")
    assert "replicas" not in catalogue.names_for(from_json(config() | other), "cpu")
