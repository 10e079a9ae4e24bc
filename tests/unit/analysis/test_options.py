"""What advice knows of a strategy: what was measured, what is predicted, and what cannot be done."""

import pandas as pd
import pytest
from unit.analysis.test_scaling import A100, strategy

from sharebench.analysis.decide.options import options
from sharebench.analysis.decide.rows import PREDICTED, predicted_rows, summary_rows

MIG_MPS = strategy("mig-mps", "mig", "mps", profile="3g", instances=2)
REFUSED = "the device plugin refuses MPS on MIG instances"


def row(replicas: int, status: str) -> dict[str, object]:
    named = {"strategy": "mig-mps", "workload": "w", "replicas": replicas, "tenants_that_fit": None}
    is_ok = status == "ok"
    values = {"latency_mean_seconds": 0.01 if is_ok else float("nan"), "throughput_total_hz": 100.0}
    spans = {f"{name}{end}": float("nan") for name in values for end in ("_low", "_high")}
    return named | values | spans | {"n": int(is_ok), "status": status, "reason": "" if is_ok else REFUSED}


def infeasible(*measured: tuple[int, str]) -> dict[int, str]:
    predictions = pd.DataFrame(
        [
            {"strategy": "mig-mps", "workload": "w", "replicas": n, "basis": PREDICTED}
            | {f"predicted_mean_seconds{end}": 0.01 for end in ("", "_low", "_high")}
            for n in range(1, 6)
        ]
    )
    summary = pd.DataFrame([row(*each) for each in measured])
    (option,) = options("w", summary_rows(summary), predicted_rows(predictions), {"mig-mps": MIG_MPS}, A100, {})
    return {n: reason for n, reason in option.infeasible.items() if reason == REFUSED}


@pytest.mark.parametrize("is_open_load", [True, False])
def test_latency_counts_where_throughput_is_what_was_asked_for(is_open_load: bool) -> None:
    mean = {"latency_mean_seconds_low": 0.008, "latency_mean_seconds_high": 0.0125}
    unknown = {f"latency_{name}_seconds": float("nan") for name in ("p99", "p95", "p50")}
    counts = {"latency_mean_seconds_n": 1, "throughput_total_hz_n": 1}
    summary = pd.DataFrame([row(2, "ok") | mean | unknown | counts])
    (option,) = options("w", summary_rows(summary), [], {"mig-mps": MIG_MPS}, A100, {}, is_open_load)
    merit = option.levels[2].merit
    assert merit is not None
    assert (merit.value, merit.low, merit.high) == ((100, 80, 125) if is_open_load else (100, None, None))
    assert (option.levels[2].promptness is not None) == is_open_load


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # what is refused to one tenant and to four is not predicted for two
        (((1, "infeasible"), (4, "infeasible")), {1, 2, 3, 4}),
        # too many for the node: fewer may do
        (((4, "infeasible"),), {4}),
        (((1, "infeasible"), (4, "failed")), {1, 4}),
        (((1, "not-measured"), (4, "not-measured")), {1, 2, 3, 4}),
    ],
)
def test_what_lies_between_two_that_are_infeasible_is_not_predicted(
    measured: tuple[tuple[int, str], ...], expected: set[int]
) -> None:
    assert set(infeasible(*measured)) == expected
