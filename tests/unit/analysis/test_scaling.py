"""The scaling model: against published tables, against the formulas that the simulated node has, and its limits."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharebench.analysis.decide import scaling
from sharebench.analysis.decide.scaling import PARALLEL, SERIAL, SWITCHING, Fit, Point
from sharebench.analysis.decide.shares import MIG_UNITS, Device, device_of, parts
from sharebench.core.strategies import Strategy
from sharebench.nodes.simulated.load import iteration_seconds

LITERATURE = Path(__file__).parents[3] / "published" / "literature.csv"
A100 = Device("nvidia", 108, MIG_UNITS["A100"], 7)
UNKNOWN = device_of({"kind": "kubernetes", "product": "NVIDIA H200"}, {}, None)
SIMULATED = Device("simulated", 108, {f"{n}g": 14 * n for n in range(1, 8)}, 7)


def strategy(name: str, *mechanisms: str, **more: Any) -> Strategy:
    options = {"profile": None, "instances": None, "thread_percent": None, "memory_percent": None, "replicas": None}
    return Strategy(name, mechanisms or (name,), **options | more)


STRATEGIES = [
    strategy("exclusive", replicas=(1,)),
    strategy("time-slicing"),
    strategy("mps"),
    strategy("mps-limited", "mps", thread_percent="100/N"),
    strategy("mig", profile="1g"),
    strategy("mig-large", "mig", profile="3g"),
    strategy("mig-time-slicing", "mig", "time-slicing", profile="3g", instances=2),
    strategy("mig-mps", "mig", "mps", profile="3g", instances=2),
    strategy("streams"),
]
BY_NAME = {each.name: each for each in STRATEGIES}


def published(source: str, workload: str = "") -> Iterator[tuple[str, int, float]]:
    with LITERATURE.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["source"].startswith(source) and row["workload"].startswith(workload):
                yield row["strategy"], int(row["replicas"]), float(row["value"])


def nos() -> list[Point]:
    known = {"time-slicing": "time-slicing", "mps": "mps", "mig 1g": "mig"}
    return [
        Point(known[name], n, parts(BY_NAME[known[name]], n, A100) or (), seconds)
        for name, n, seconds in published("nos")
    ]


def residuals_percent(fit: Fit, points: list[Point]) -> list[float]:
    return [100 * ((fit.seconds(point.parts) or math.nan) / point.seconds - 1) for point in points]


def test_the_nos_table_from_three_fitted_numbers() -> None:
    points = nos()
    assert len(points) == 12
    choice = scaling.choose(points)
    assert choice is not None and choice.fit.shape == "affine"
    assert set(choice.fit.parameters) == {SERIAL, PARALLEL, SWITCHING}
    assert max(map(abs, residuals_percent(choice.fit, points))) <= 1.2
    # Solved by hand from s = 0.08806 s, the MIG mean 0.34331 s at 14 of 108 SMs, and time-slicing with three tenants.
    assert choice.fit.parameters[PARALLEL] == pytest.approx(4.106, rel=0.01)
    assert choice.fit.parameters[SERIAL] == pytest.approx(0.05004, rel=0.01)
    assert choice.fit.parameters[SWITCHING] == pytest.approx(0.1097, rel=0.02)


def test_mps_of_nos_from_mig_and_time_slicing_alone() -> None:
    errors = scaling.left_out_strategies(nos())
    of_mps = [100 * math.expm1(error) for (name, _), error in errors.items() if name == "mps" and error is not None]
    assert len(of_mps) == 4
    assert max(map(abs, of_mps)) <= 1.2
    # No other strategy determines what a switch costs.
    assert [errors["time-slicing", n] for n in (3, 5, 7)] == [None] * 3


def mig_series(workload: str) -> list[Point]:
    points = []
    for name, _, per_time in published("NJIT", workload):
        kind = strategy("exclusive") if name == "exclusive" else strategy("mig", profile=name.split()[1])
        points.append(Point(name, 1, parts(kind, 1, A100) or (), 1 / per_time))
    assert len(points) == 4
    return points


def test_a_published_kernel_with_a_floor_is_no_affine_one() -> None:
    """GROMACS by NJIT: linear up to 42 SMs, then flat. The line through its ends misses the middle by 16 and 27 %."""
    choice = scaling.choose(mig_series("GROMACS"))
    assert choice is not None and choice.fit.shape == "floor"
    assert max(map(abs, residuals_percent(choice.fit, mig_series("GROMACS")))) < 7
    affine = scaling.fit(mig_series("GROMACS"), "affine")
    assert affine is not None
    assert max(map(abs, residuals_percent(affine, mig_series("GROMACS")))) > 10


@pytest.mark.parametrize("device", ["H100", "L40S"])
def test_published_contention_bends_the_line(device: str) -> None:
    """GROMACS under MPS with 1, 2 and 4 tenants: a parabola goes through three points, a line does not."""
    with LITERATURE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"].startswith("matched") and device in row["device"]]
    points = [
        Point("mps", n, parts(BY_NAME["mps"], n, A100) or (), n / float(row["value"]))
        for row in rows
        if row["strategy"] == "mps" and (n := int(row["replicas"]))
    ]
    worst = {
        shape: max(map(abs, residuals_percent(fitted, points)))
        for shape in ("affine", "curved")
        if (fitted := scaling.fit(points, shape))
    }
    assert worst["curved"] < worst["affine"] < 10
    assert worst["curved"] < 1


def planted(a: float, w: float, eps: float, sizes: tuple[int, ...] = (1, 3, 5, 7)) -> list[Point]:
    """Cells as the simulated node has them, by its own formulas."""
    node = {"sms": 108, "mig_slice_sms": 14, "time_slicing_overhead": eps}
    work = {"serial_seconds": a, "parallel_sm_seconds": w}
    points = []
    for each in STRATEGIES:
        for n in sizes if each.replicas is None else each.replicas:
            if SIMULATED.infeasible(each, n):
                continue
            spec = {"mechanisms": list(each.mechanisms), "profile": each.profile, "limits": each.limits(n)}
            groups = each.groups(n)
            members = [n // groups + (index < n % groups) for index in range(groups)]
            each_seconds = [iteration_seconds(spec, size, node, work) for size in members for _ in range(size)]
            # The mean over all iterations weighs a tenant by its rate.
            points.append(Point(each.name, n, parts(each, n, SIMULATED) or (), n / sum(1 / s for s in each_seconds)))
    return points


@pytest.mark.parametrize(
    "a, w, eps", [(0.05, 4.1, 0.11), (1e-6, 0.02, 0.0005), (0.2, 0.5, 3.0), (0.001, 5.0, 0.0), (1e-5, 1e-5, 12.0)]
)
def test_what_was_planted_is_found(a: float, w: float, eps: float) -> None:
    points = planted(a, w, eps)
    assert {"mig-large", "mps-limited", "mig-time-slicing"} <= {point.strategy for point in points}
    choice = scaling.choose(points)
    assert choice is not None
    assert max(map(abs, residuals_percent(choice.fit, points))) < 1e-3
    assert choice.fit.parameters[SWITCHING] == pytest.approx(eps, abs=1e-5 + 1e-5 * eps)
    assert choice.fit.parameters[PARALLEL] == pytest.approx(w, rel=1e-4)
    assert choice.fit.parameters[SERIAL] == pytest.approx(a, rel=1e-3)
    errors = scaling.left_out_strategies(points)
    assert all(abs(error) < 1e-4 for error in errors.values() if error is not None)


def test_cores_that_play_sms_have_a_floor() -> None:
    """The stand-in: a tenant fills one core at most, tenants beyond the cores share them."""
    cores, alone = 4, 0.004
    device = device_of({"kind": "cpu", "product": "a CPU"}, {}, cores)
    points = []
    for name in ("exclusive", "time-slicing", "mps", "mig"):
        for n in (1,) if name == "exclusive" else (1, 2, 4, 8):
            if device.infeasible(BY_NAME[name], n):
                assert (name, n) == ("mig", 8)
                continue
            factor = {"time-slicing": n, "mps": max(1, n / cores)}.get(name, 1)
            points.append(Point(name, n, parts(BY_NAME[name], n, device) or (), alone * factor))
    choice = scaling.choose(points)
    assert choice is not None and choice.fit.shape == "floor"
    assert max(map(abs, residuals_percent(choice.fit, points))) < 0.1


def test_what_the_points_do_not_tell_is_not_predicted() -> None:
    points = [point for point in planted(0.05, 4.1, 0.11) if point.strategy in ("exclusive", "time-slicing")]
    choice = scaling.choose(points)
    assert choice is not None
    assert choice.fit.seconds(parts(BY_NAME["time-slicing"], 6, SIMULATED) or ()) == pytest.approx(
        6 * (0.05 + 4.1 / 108) * 1.11
    )
    for name in ("mps", "mig", "mps-limited"):
        assert choice.fit.seconds(parts(BY_NAME[name], 3, SIMULATED) or ()) is None
    alone = scaling.choose(points[:1])
    assert alone is not None
    assert alone.fit.seconds(parts(BY_NAME["time-slicing"], 2, SIMULATED) or ()) is None
    assert scaling.choose([]) is None


@pytest.mark.parametrize(
    ("each", "replicas", "device", "shares"),
    [
        # Another scheduler's library delays the turns besides.
        (strategy("hami", "time-slicing", thread_percent="100//N"), 3, A100, None),
        (strategy("time-slicing"), 3, A100, [1 / 108]),
        (BY_NAME["mig"], 2, device_of({"kind": "nvidia", "product": "NVIDIA L40S"}, {}, 142), None),
        (BY_NAME["mig-large"], 1, device_of({"kind": "nvidia", "product": "NVIDIA H200"}, {}, 132), [1 / 60]),
        # A Kubernetes node does not report how many SMs its GPU has.
        *((BY_NAME[name], 1, UNKNOWN, None) for name in ("exclusive", "time-slicing", "mps", "mps-limited")),
        (BY_NAME["mig-large"], 1, UNKNOWN, [1 / 60]),
        (BY_NAME["mps"], 2, device_of({"kind": "cpu", "product": "a CPU"}, {}, None), None),
        (strategy("mig-unequal", "mig", profiles=("3g", "2g", "1g.5gb")), 3, A100, [1 / 42, 1 / 28, 1 / 14]),
        (strategy("mig-unequal", "mig", profiles=("3g", "2g", "1g.5gb")), 1, A100, [1 / 42]),
    ],
)
def test_parts_of_a_device(each: Strategy, replicas: int, device: Device, shares: list[float] | None) -> None:
    found = parts(each, replicas, device)
    assert (found and [part.share for part in found]) == (shares and pytest.approx(shares))


def test_limits_of_a_gpu_are_rounded_as_it_was_seen_to_do() -> None:
    """On an H200 a tenant under 100/N saw 132, 42, 26 and 18 SMs (docs/strategies/mps.md)."""
    h200 = Device("nvidia", 132, MIG_UNITS["H200"], 7)
    for n, seen in {1: 132, 3: 42, 5: 26, 7: 18}.items():
        [part] = parts(BY_NAME["mps-limited"], n, h200) or ()
        assert part.share == pytest.approx(max(n / 132, 1 / seen))


@pytest.mark.parametrize("shape", scaling.SHAPES)
def test_slopes_are_the_derivatives(shape: str) -> None:
    design = scaling._Design([point.parts for point in planted(0.05, 4.1, 0.11)])
    values = {SERIAL: 0.05, PARALLEL: 1.3, scaling.CONTENTION: 0.002, SWITCHING: 0.3}

    def logs(at: Any) -> Any:
        moved = np.exp(at) - [0, 0, 0, 1]
        return np.log(design.seconds(shape, dict(zip(values, moved, strict=True))))

    at = np.log(np.add(list(values.values()), [0, 0, 0, 1]))
    step = 1e-5 * np.eye(4)
    numeric = [(logs(at + each) - logs(at - each)) / 2e-5 for each in step]
    assert design.slopes(shape, values) == pytest.approx(np.column_stack(numeric), abs=1e-6)


def test_refits_follow_their_data() -> None:
    points = planted(0.05, 4.1, 0.11)
    fitted = scaling.fit(points, "affine")
    assert fitted is not None
    seconds = np.array([point.seconds for point in points])
    same, doubled = scaling.refit(fitted, points, np.array([seconds, 2 * seconds]))
    assert same.parameters == pytest.approx(fitted.parameters, rel=1e-5)
    assert doubled.parameters[SERIAL] == pytest.approx(0.1, rel=1e-4)
    assert doubled.parameters[PARALLEL] == pytest.approx(8.2, rel=1e-4)
    assert doubled.parameters[SWITCHING] == pytest.approx(0.11, rel=1e-3)


def test_an_unequal_layout_has_its_limits_and_its_turns() -> None:
    assert A100.infeasible(strategy("mig-unequal", "mig", profiles=("3g", "2g", "1g.5gb")), 4) is not None
    layered = strategy("layered", "mig", "time-slicing", profiles=("3g", "1g"))
    assert [part.turns for part in parts(layered, 3, A100) or ()] == [2, 1]
