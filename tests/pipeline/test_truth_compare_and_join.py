"""Studies with planted truth from config to tables; two studies compared, and two parts of a study joined."""

import json
import shutil

import pytest
from pipeline.harness import Checkout
from scipy import stats
from tables import rows

SEEDS = (1, 2)
ALONE = 0.002 + 0.5 / 108
STRAGGLERS = 1 + 0.005 * 3
# Latency: a + w/S alone, N (a + w/S) (1 + 0.1097) under time-slicing, a + N w/S under MPS; S = 108 SMs.
PLANTED = {
    "exclusive": ALONE,
    "exclusive-again": ALONE,
    "time-slicing": 3 * ALONE * 1.1097,
    "mps": 0.002 + 3 * 0.5 / 108,
}


@pytest.mark.thorough
def test_planted_truth_is_covered_and_equal_studies_do_not_differ(untouched: Checkout) -> None:
    hits = {"latency_mean_seconds": 0, "slowdown": 0}
    for seed in SEEDS:
        results = untouched.root / f"results/seed-{seed}"
        config = [f"seed={seed}", f"results=results/seed-{seed}"]
        result = untouched.run(study="planted.yaml", config=config, results=results).ok()
        assert len(result.cells) == 12
        summary = {row["strategy"]: row for row in rows(results / "tables/summary.csv")}
        assert list(summary) == list(PLANTED)
        for strategy, mean in PLANTED.items():
            truths = {"latency_mean_seconds": mean * STRAGGLERS, "slowdown": mean / ALONE}
            for metric, truth in truths.items():
                row = summary[strategy]
                hits[metric] += float(row[f"{metric}_low"]) <= truth <= float(row[f"{metric}_high"])
        assert summary["time-slicing"]["separable"] == summary["mps"]["separable"] == "yes"
        (contrast,) = rows(results / "tables/contrasts.csv")
        assert (contrast["strategy"], contrast["reference"], contrast["paired"]) == ("mps", "time-slicing", "True")
        assert float(contrast["ratio_high"]) < 1 and float(contrast["p_holm"]) < 0.05
    # A correct program has fewer hits once in a thousand runs.
    assert min(hits.values()) >= stats.binom.ppf(0.001, len(SEEDS) * len(PLANTED), 0.95)

    compared = untouched.ask("compare", "results/seed-1", "results/seed-2")
    made = untouched.root / "results/compare/seed-1-seed-2"
    assert {path.name for path in made.iterdir()} == {
        f"compare.{suffix}" for suffix in ("csv", "md", "svg", "pdf", "png")
    }
    means = [row for row in rows(made / "compare.csv") if row["metric"] == "latency_mean_seconds"]
    assert [row["strategy"] for row in means] == list(PLANTED)
    assert all(float(row["p_holm"]) > 0.001 for row in means)
    assert "0 longer and 0 shorter" in compared

    other = untouched.root / "results/other-window"
    shutil.copytree(untouched.root / "results/seed-1", other)
    for raw in other.glob("cells/mps/*/*/*/raw.json"):
        record = json.loads(raw.read_text())
        spec = json.loads(record["spec"]) | {"window_seconds": 9}
        start = record["window"]["start_monotonic_seconds"]
        longer = record["window"] | {"end_monotonic_seconds": start + 9}
        raw.write_text(json.dumps(record | {"spec": json.dumps(spec), "window": longer}))
    refused = untouched.ask("compare", "results/seed-1", "results/other-window", code=1)
    line = "not comparable: window_seconds of mps × 3, alpha is 3 in seed-1 and 9 in other-window; "
    assert line + "compare data sets that measured the same" in refused
    assert not (untouched.root / "results/compare/seed-1-other-window/compare.csv").exists()


def test_parts_measured_in_two_folders_are_joined(untouched: Checkout) -> None:
    small = ["strategies=[mps]", "workloads=alpha"]
    for repeat, other in {1: 2, 2: 1}.items():
        results = untouched.root / f"results/part{repeat}"
        config = [f'exclude=["*/*/*/r{other}"]', f"results=results/part{repeat}", *small]
        assert len(untouched.run("aggregate", config=config, results=results).ok().cells) == 3
    whole = untouched.root / "results/whole"
    study = [word for pair in ("results=results/whole", *small) for word in ("--config", pair)]
    study += ["--configfile", untouched.study]
    refused = untouched.ask("join", *study, "results/part1", code=1)
    assert "3 of the study's 6 cells are in none of the parts, such as " in refused
    assert not (whole / "cells").exists()

    joined = untouched.ask("join", *study, "results/part1", "results/part2")
    assert joined.rstrip().endswith("measured_elsewhere=true")
    made = untouched.run(config=["results=results/whole", *small], results=whole).ok()
    assert made.cells == set() and "aggregate" in made.jobs, "the joined cells only get tables"
    assert {row["n"] for row in rows(whole / "tables/summary.csv")} == {"2"}
    assert untouched.run(config=["results=results/whole", *small], results=whole).ok().jobs == {}

    again = untouched.ask("join", *study, "results/part1", "results/part2", code=1)
    assert again.startswith("results/whole has cells already")
    twice = untouched.ask("join", *study, "--config", "results=results/new", "results/part1", "results/whole", code=1)
    assert "both have cells/" in twice
