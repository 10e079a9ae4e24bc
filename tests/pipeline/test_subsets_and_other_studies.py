"""Parts of the matrix and other studies, as given on the command line."""

import itertools
import json
from pathlib import Path

import pytest
from pipeline.harness import Checkout, measuring_jobs, table_jobs

MIG_AND_MPS = {
    f"{strategy}/{workload}/{replicas}/{repeat}"
    for strategy, workload, replicas, repeat in itertools.product(("mig", "mps"), ("alpha", "beta"), (1, 2), (1, 2))
}
BASELINE = {f"exclusive/{workload}/1/{repeat}" for workload, repeat in itertools.product(("alpha", "beta"), (1, 2))}


def test_a_subset_and_the_whole_study_again_measure_nothing(finished: Checkout) -> None:
    summary = finished.results / "tables/summary.md"
    whole = summary.read_text()

    subset = finished.run(config=["strategies=[mps,mig]"]).ok()
    assert subset.jobs == table_jobs(set())
    assert "time-slicing |" not in summary.read_text()
    assert "| exclusive" in summary.read_text(), "the baseline stays"

    back = finished.run().ok()
    assert back.jobs == table_jobs(set())
    assert summary.read_text() == whole


def test_a_subset_measures_its_baseline_once(untouched: Checkout) -> None:
    config = ["strategies=[mig]", "replicas=[2]", "workloads=alpha", "repeats=1"]
    first = untouched.run(config=config).ok()
    assert first.cells == {"mig/alpha/2/1", "exclusive/alpha/1/1"}
    assert sorted(map(str, first.switches)) == ["exclusive block 1", "mig block 1"]

    # Another subset uses the same baseline, and re-measures it only when it is missing.
    def planned(*more: str) -> set[str]:
        return untouched.run(config=["strategies=[mps]", *config[1:], *more], options=["--dry-run"]).ok().cells

    assert planned() == {"mps/alpha/2/1"}
    untouched.delete_records("exclusive/alpha/1/1")
    assert planned() == {"mps/alpha/2/1", "exclusive/alpha/1/1"}
    assert planned("baseline=none") == {"mps/alpha/2/1"}


def test_another_results_folder_leaves_these_results_unchanged(finished: Checkout) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        paths = [path for path in finished.results.rglob("*") if path.is_file() and "other" not in path.parts]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    before = state()
    other = finished.root / "other.yaml"
    other.write_text(
        (finished.root / "simulated.yaml").read_text() + "results: results/other\nbaseline: none\nseed: 2\n"
    )
    config = ["strategies=[mig]", "replicas=[1]", "workloads=alpha", "repeats=1"]
    result = finished.run(study="other.yaml", config=config, results=finished.results / "other").ok()
    assert result.cells == {"mig/alpha/1/1"}
    assert result.switches == ["exclusive block 1", "mig block 1"]
    assert state() == before
    assert finished.run().ok().jobs == {}


def test_strategies_can_be_listed_in_several_notations(untouched: Checkout) -> None:
    for config in ("strategies=[mps,mig]", "strategies=[mps, mig]", 'strategies=["mps","mig"]', "strategies=mps,mig"):
        planned = untouched.run(config=[config], options=["--dry-run"]).ok()
        assert planned.cells == MIG_AND_MPS | BASELINE, config


def test_lists_and_numbers_can_be_given_on_the_command_line(untouched: Checkout) -> None:
    config = ["replicas=[1,4]", "workloads=alpha", "window_seconds=5", "strategies=mig", "repeats=1", "baseline=none"]
    planned = untouched.run(config=config, options=["--dry-run"]).ok()
    assert planned.jobs == {
        "characterise_node": {""},
        "calibrate": {"alpha"},
        "configure_node": {"mig"},
        **measuring_jobs({"mig/alpha/1/1", "mig/alpha/4/1"}),
    }
    untouched.run("results/calibration/alpha.json", config=config).ok()
    calibration = json.loads((untouched.results / "calibration/alpha.json").read_text())
    assert json.loads(calibration["spec"])["window_seconds"] == 5


@pytest.mark.thorough
def test_a_sweep_is_one_workload_per_value(untouched: Checkout) -> None:
    def sweep(*shares: float) -> list[str]:
        load = f"{{arrival: poisson, rate_of_capacity: {list(shares)}}}"
        return [f"workload_catalogue={{alpha: {{load: {load}}}}}", *others]

    others = ["workloads=alpha", "strategies=mps", "replicas=[2]", "repeats=1"]
    first = untouched.run(config=sweep(0.2, 0.5)).ok()
    names = [f"alpha-rate_of_capacity-{share}" for share in (0.2, 0.5, 0.8)]
    cells = {f"{cell}/1" for name in names for cell in (f"exclusive/{name}/1", f"mps/{name}/2")}
    assert first.cells == {cell for cell in cells if "0.8" not in cell}
    assert first.jobs["calibrate"] == set(names[:2])
    rates = [untouched.record(f"mps/{name}/2/1")["tenants"][0]["load"]["planned_rate_hz"] for name in names[:2]]
    assert rates[1] == pytest.approx(2.5 * rates[0], rel=0.1)

    planned = untouched.plan(*sweep(0.2, 0.5, 0.8))
    # One job measures all loads of a sweep, so a new one has those before re-measured.
    assert "6 of 6 cells to measure" in planned
    assert "alpha by rate_of_capacity: 0.2, 0.5, 0.8" in planned
    more = untouched.run(config=sweep(0.2, 0.5, 0.8)).ok()
    assert more.cells == cells
    assert more.jobs["calibrate"] == {names[2]}
    # One value of the sweep can be requested by its name.
    part = untouched.run(config=[*sweep(0.2, 0.5, 0.8), f"workloads={names[0]}"], options=["--dry-run"]).ok()
    assert part.cells == set()
