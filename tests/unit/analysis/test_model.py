"""The model of a study's tables: repeats, bands, residuals, flags, and what has no model."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from unit.analysis.test_scaling import BY_NAME, SIMULATED, planted

from sharebench.analysis.decide import model
from sharebench.analysis.decide.rows import SummaryRow, summary_rows
from sharebench.analysis.statistics.intervals import log_interval

A, W, EPS = 0.05, 4.1, 0.11
LOAD = {"arrival": "closed", "rate_hz": None, "rate_of_capacity": None}


def config(**entry: Any) -> dict[str, Any]:
    return {"workload_catalogue": {"yolos": {"kind": "loop", "tenants": None, "load": LOAD} | entry}}


def study(
    cv: float, repeats: int, seed: int = 1, broken: float = 1.0, only: tuple[str, ...] = ()
) -> tuple[list[SummaryRow], pd.DataFrame]:
    """Summary and cells of a study of the planted model; `broken` is a factor on MPS with five tenants."""
    rng = np.random.default_rng(seed)
    rows, cells = [], []
    for point in planted(A, W, EPS):
        if only and point.strategy not in only:
            continue
        factor = broken if (point.strategy, point.replicas) == ("mps", 5) else 1.0
        values = list(factor * point.seconds * rng.lognormal(0, cv, repeats))
        estimate = log_interval(values)
        key = {"strategy": point.strategy, "workload": "yolos", "replicas": point.replicas}
        rows.append(
            {**key, "status": "ok", "reason": "", "n": repeats, model.MEAN: estimate.value}
            | {f"{model.MEAN}_low": estimate.low or math.nan, f"{model.MEAN}_high": estimate.high or math.nan}
        )
        # Two tenants, one with thrice the iterations: the mean of the cell is that of all iterations.
        for repeat, value in enumerate(values, start=1):
            for tenant, (count, ratio) in enumerate(((300, 0.9), (100, 1.3))):
                cell = {"repeat": repeat, "tenant": tenant, "valid": True, "count": count, model.MEAN: ratio * value}
                cells.append(key | cell)
    return summary_rows(pd.DataFrame(rows)), pd.DataFrame(cells)


def fitted(tables: tuple[list[SummaryRow], pd.DataFrame], **entry: Any) -> model.Model:
    summary, cells = tables
    return model.models(summary, cells, config(**entry), BY_NAME, SIMULATED)["yolos"]


def predictions(tables: tuple[list[SummaryRow], pd.DataFrame]) -> pd.DataFrame:
    table = model.prediction_table({"yolos": fitted(tables)}, tables[0], BY_NAME, SIMULATED)
    return table.set_index(["strategy", "replicas"])


def test_the_mean_of_a_cell_is_that_of_all_its_iterations() -> None:
    cells = pd.DataFrame(
        [
            {
                "strategy": "mps",
                "workload": "w",
                "replicas": 2,
                "repeat": repeat,
                "valid": valid,
                "count": count,
                "s": s,
            }
            for repeat, valid, count, s in (
                (1, True, 300, 1.0),
                (1, True, 100, 2.0),
                (2, True, 10, 5.0),
                (3, False, 10, 9.0),
                (4, True, 0, math.nan),
            )
        ]
    ).rename(columns={"s": model.MEAN})
    assert model.repeat_means(cells) == {("mps", "w", 2): {1: pytest.approx(1.25), 2: pytest.approx(5.0)}}


def test_parameters_have_intervals_that_hold_what_was_planted() -> None:
    """Of eight intervals of 95 %, four or more miss once in 2700 times."""
    missed = dict.fromkeys(("serial_seconds", "parallel_unit_seconds", "switching"), 0)
    truth = dict(zip(missed, (A, W, EPS), strict=True))
    for seed in range(8):
        table = model.model_table(
            {"yolos": fitted(study(0.01, 5, seed=seed, only=("exclusive", "time-slicing", "mps", "mig")))}
        )
        chosen = table[table["chosen"] & table["parameter"].notna()]
        for row in chosen.to_dict("records"):
            if row["parameter"] in missed:
                missed[row["parameter"]] += not row["low"] <= truth[row["parameter"]] <= row["high"]
                assert row["high"] - row["low"] < 0.5 * truth[row["parameter"]]
    assert max(missed.values()) <= 3, missed


def test_cells_that_break_the_model_are_flagged() -> None:
    found = predictions(study(0.002, 5, broken=1.25))
    flagged = found[found["flagged"].fillna(False).astype(bool)]
    assert list(flagged.index) == [("mps", 5)]
    assert flagged["residual_percent"].iloc[0] == pytest.approx(100 * (1 / 1.25 - 1), abs=3)
    sound = predictions(study(0.002, 5))
    assert not sound["flagged"].fillna(False).any()
    assert sound["residual_percent"].abs().max() < 1


def test_what_was_not_measured_is_predicted_and_says_so() -> None:
    found = predictions(study(0.004, 5, only=("exclusive", "time-slicing", "mps")))
    assert set(found.loc["mig", "basis"]) == {"predicted, not measured"}
    truth = A + W / 14
    assert found.loc[("mig", 3), "predicted_mean_seconds"] == pytest.approx(truth, rel=0.05)
    low, high = found.loc[("mig", 3), ["predicted_mean_seconds_low", "predicted_mean_seconds_high"]]
    assert low < truth < high
    assert found.loc[("mps", 4), "basis"] == "predicted, not measured"
    assert found.loc[("mps", 5), "basis"] == "measured"
    # Seven slices: eight tenants of MIG are not possible, fourteen under MPS are.
    assert ("mig", 7) in found.index and ("mig", 8) not in found.index
    assert ("mps", 14) in found.index and ("mps", 15) not in found.index
    assert ("exclusive", 2) not in found.index


def test_one_repeat_has_a_band_from_the_models_error_and_no_intervals() -> None:
    tables = study(0.02, 1)
    found = predictions(tables)
    assert found["measured_mean_seconds_low"].isna().all()
    width = found["predicted_mean_seconds_high"] / found["predicted_mean_seconds_low"]
    assert width.notna().all() and (width > 1).all()
    table = model.model_table({"yolos": fitted(tables)})
    assert table[["low", "high"]].isna().all().all() and table["chosen"].any()


@pytest.mark.parametrize(
    "entry, reason",
    [
        ({"load": LOAD | {"arrival": "poisson"}}, "an open load"),
        ({"kind": "job"}, "kind job"),
        ({"tenants": ["a", "b"]}, "a mix"),
    ],
)
def test_what_has_no_model_says_why(entry: dict[str, Any], reason: str) -> None:
    tables = study(0.002, 2)
    found = fitted(tables, **entry)
    assert found.choice is None and reason in found.reason
    [row] = model.model_table({"yolos": found}).to_dict("records")
    assert reason in row["reason"] and not row["chosen"]
    rows = model.prediction_table({"yolos": found}, tables[0], BY_NAME, SIMULATED)
    assert set(rows["basis"]) == {"measured"} and rows["predicted_mean_seconds"].isna().all()


def test_a_prediction_without_bounds_is_still_a_number_to_judge_by(monkeypatch: pytest.MonkeyPatch) -> None:
    # as where a parameter's interval reaches what makes a draw infinite, and no other row has bounds
    unbounded = model.Prediction(0.2, np.array([0.1, math.inf]))
    monkeypatch.setattr(model.Model, "predict", lambda _, asked, __: [unbounded] * len(asked))
    tables = study(0.0, 1)
    table = model.prediction_table({"yolos": fitted(tables)}, tables[0], BY_NAME, SIMULATED)
    assert set(table["predicted_mean_seconds"]) == {0.2}
    bounds = [row[f"predicted_mean_seconds{end}"] for row in table.to_dict("records") for end in ("_low", "_high")]
    assert all(isinstance(bound, float) and math.isnan(bound) for bound in bounds)
