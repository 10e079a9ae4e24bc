"""The power of a design: against many draws, against a planted study, and as the design of edition two has it."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import power


@pytest.mark.parametrize(("count", "alpha"), [(5, 0.05), (3, 0.05), (5, 0.05 / 12)])
def test_the_smallest_ratio_is_found_four_times_in_five(count: int, alpha: float) -> None:
    ratio = power.detectable(0.02, count, alpha)
    draws = np.random.default_rng(1).normal(np.log(ratio), 0.02, (20_000, count))
    assert (stats.ttest_1samp(draws, 0, axis=1).pvalue < alpha).mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_so_it_is_by_the_means_of_devices(share: float) -> None:
    ratio, rng = power.on_devices(0.02, (2, 2, 1), share), np.random.default_rng(1)
    means = np.log(ratio) + rng.normal(0, 0.02 * np.sqrt(share), (20_000, 3))
    means += np.stack([rng.normal(0, 0.02 * np.sqrt((1 - share) / n), 20_000) for n in (2, 2, 1)], axis=1)
    assert (stats.ttest_1samp(means, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.02)


def test_scatter_is_that_of_ratios_within_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = []
    for block in range(1, 201):
        # What a block has in common is in no ratio; the baseline is the mean of both measurements.
        common = rng.normal(0, 0.3)
        logs = {"exclusive": 0.01, "exclusive-again": -0.01, "mps": 1 + rng.normal(0, 0.02), "time-slicing": 2.0}
        rows += [
            {
                "strategy": strategy,
                "workload": "w",
                "tenant_workload": "w",
                "replicas": 1 if strategy.startswith("exclusive") else 2,
                "device": f"device {block % 4}",
                "block": block,
                "valid": True,
                "count": 10,
                "latency_mean_seconds": np.exp(log + common),
            }
            for strategy, log in logs.items()
        ]
    for study, kept in (("several", rows), ("one", [row | {"device": "a"} for row in rows])):
        (tmp_path / study / "tables").mkdir(parents=True)
        pd.DataFrame(kept).to_csv(tmp_path / study / "tables" / "cells.csv")
    ratios = power.log_ratios(power.log_latencies(tmp_path))
    for is_one in (True, False):
        slowdown, contrast = (power.scatter(ratios, name, is_one) for name in ("slowdown", "contrast"))
        # That of time-slicing does not scatter at all.
        assert slowdown.deviation == pytest.approx(0.02 / np.sqrt(2), rel=0.15) and slowdown.degrees == 2 * 199
        assert contrast.deviation == pytest.approx(0.02, rel=0.15) and contrast.degrees == 199
    assert ratios[ratios["strategy"] == "time-slicing"]["slowdown"].to_numpy() == pytest.approx(2)


@pytest.mark.thorough
def test_the_design_has_the_table_of_edition_one() -> None:
    text = (power.PUBLISHED.parent / "edition-two" / "DESIGN.md").read_text(encoding="utf-8")
    assert "\n".join(power.table(power.log_ratios(power.log_latencies(power.PUBLISHED)))) in text
