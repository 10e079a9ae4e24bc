"""Cost and accuracy of the recorder: `python benchmarks/recorder.py`, about a minute and a half.

Costs are per iteration, beyond the work itself, and compared with prometheus_client in interleaved rounds of the same
run. The rate of a loop of 12 µs iterations, the fastest that is published, is compared with and without the recorder,
in windows that are long enough for several foldings of a full list. Times are CPU times of this process, which other
processes on the machine affect less. Exit code 1 if a limit is exceeded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import numpy as np
from prometheus_client import CollectorRegistry, Histogram

from tenant.contract import QUANTILE_ERROR_RATIO, SteadinessRule
from tenant.load import Load
from tenant.loop import CAPACITY, ClosedLoop
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.recorder import Recorder, Tally, Window, quantile_seconds
from tenant.workload import Work, Workload

Step = Callable[[], None]

ROUNDS = 31
PAIRS = 40
# Full lists per window, each of which is folded within it; a shorter window would not include the cost of folding.
FOLDINGS = 3
LEAD_NS = 60_000_000
ITERATION_SECONDS = 12e-6
SAMPLES = 200_000
QUANTILES = np.arange(1, 901) / 901
LIMIT_NS = 150.0
# Includes the effect of the recorder's memory on the caches of the work.
LIMIT_RATE_NS = 200.0
LIMIT_QUANTILE_PERCENT = 1.1


def empty_step() -> None: ...


def bare_loop(step: Step, iterations: int) -> None:
    """Run a loop without a recorder."""
    for _ in range(iterations):
        step()


def prometheus_loop(histogram: Histogram) -> Callable[[], None]:
    """The usual way: two clock readings and an `observe` per iteration."""
    clock, observe = time.perf_counter, histogram.observe

    def run() -> None:
        for _ in range(CAPACITY):
            begin = clock()
            empty_step()
            observe(clock() - begin)

    return run


def recorder_loop() -> Callable[[], None]:
    """Our loop for one full list within a window, and its folding."""
    loop = ClosedLoop(empty_step)
    now_ns = time.monotonic_ns()
    recorder = Recorder(Window(now_ns, now_ns + 60 * 10**9))

    def run() -> None:
        loop.run(1 << 62)
        recorder.fold(loop.rows())
        loop.clear()

    return run


def prometheus(bounds: int) -> Callable[[], None]:
    """A loop with prometheus_client's histogram of this number of finite bounds from 1 ns to 10 µs."""
    buckets = np.geomspace(1e-9, 1e-5, bounds).tolist()
    return prometheus_loop(Histogram("latency", "Latency.", buckets=buckets, registry=CollectorRegistry()))


def spread(values: list[float]) -> str:
    """Median and quartiles as text."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:9.1f}   {low:.1f} to {high:.1f}"


def costs_ns() -> dict[str, list[float]]:
    """Nanoseconds per iteration beyond the bare loop, one value per round."""
    runs: dict[str, Callable[[], None]] = {
        "this recorder, folding included": recorder_loop(),
        "prometheus_client, 18 buckets": prometheus(17),
        "prometheus_client, 283 buckets": prometheus(282),
        "bare": lambda: bare_loop(empty_step, CAPACITY),
    }
    times_ns: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            begin_ns = time.process_time_ns()
            run()
            times_ns[name].append((time.process_time_ns() - begin_ns) / CAPACITY)
    bare = times_ns.pop("bare")
    return {name: [a - b for a, b in zip(values, bare, strict=True)] for name, values in times_ns.items()}


def quantile_errors_percent() -> dict[str, float]:
    """Largest error of 900 quantiles, by distribution of latencies within 1 µs to 1000 s."""
    generator = np.random.default_rng(1)
    half = SAMPLES // 2
    samples = {
        "lognormal": 0.03 * np.exp(generator.normal(0, 3, SAMPLES)),
        "uniform": generator.uniform(1e-6, 1000, SAMPLES),
        "log-uniform": 10 ** generator.uniform(-6, 3, SAMPLES),
        "bimodal": np.concatenate(
            [50e-6 * np.exp(generator.normal(0, 0.2, half)), 5 * np.exp(generator.normal(0, 0.5, half))]
        ),
    }
    errors = {}
    for name, seconds in samples.items():
        latencies_ns = (np.clip(seconds, 1.001e-6, 1000) * 1e9).astype(np.int64)
        tally = Tally()
        tally.add(latencies_ns)
        exact = np.quantile(latencies_ns, QUANTILES, method="inverted_cdf") / 1e9
        ours = np.array([quantile_seconds(tally.counts, q) for q in QUANTILES])
        errors[name] = float(100 * np.max(np.abs(ours / exact - 1)))
    return errors


class HashWorkload(Workload):
    """Hashes a buffer: about ITERATION_SECONDS of steady work outside the interpreter."""

    work = Work(None, None, 1)

    def __init__(self) -> None:
        probe = bytes(1 << 20)
        fastest = min(self._hash_seconds(probe) for _ in range(20))
        self._buffer = bytes(int(len(probe) * ITERATION_SECONDS / fastest))

    @staticmethod
    def _hash_seconds(probe: bytes) -> float:
        begin = time.perf_counter()
        hashlib.sha256(probe)
        return time.perf_counter() - begin

    def step(self) -> None:
        hashlib.sha256(self._buffer)

    def output_digest(self) -> list[float]:
        return [1.0]


class Rates(NamedTuple):
    """Rate without the recorder, and per window its change with the recorder and the share of time for folding."""

    base_hz: float
    changes_percent: list[float]
    folding_percent: list[float]

    def cost_ns(self) -> float:
        """Cost of the recorder per iteration, from the median change."""
        return 1e9 / self.base_hz * (1 / (1 + statistics.median(self.changes_percent) / 100) - 1)


def rates() -> Rates:
    """Measure windows with the recorder, alternating with runs without it."""
    workload = HashWorkload()
    identity = Identity(0, "digest", 0.0, 0.0, 0.0)
    measurement = Measurement(workload, identity, Load(), SteadinessRule(max_seconds=0.5))
    measurement.warm_up()
    # The last list is not full when the window ends.
    iterations = int((FOLDINGS + 0.5) * CAPACITY)
    window_ns = int(iterations * ITERATION_SECONDS * 1e9)
    folding: list[float] = []

    def without_hz() -> float:
        begin_ns = time.process_time_ns()
        bare_loop(workload.step, iterations)
        return iterations / (time.process_time_ns() - begin_ns) * 1e9

    def with_hz() -> float:
        start_ns = time.monotonic_ns() + LEAD_NS
        end_ns = start_ns + window_ns
        measurement.set_window(start_ns, end_ns)
        while time.monotonic_ns() < end_ns:
            measurement.run_chunk()
        record = measurement.wait_record(0)
        folding.append(100 * (1 - record["coverage_ratio"]))
        assert record["cpu"] is not None
        return float(record["count"] / record["cpu"]["cpu_seconds"])

    bases, changes = [without_hz()], []
    for _ in range(PAIRS):
        rate = with_hz()
        bases.append(without_hz())
        changes.append(100 * (2 * rate / (bases[-2] + bases[-1]) - 1))
    return Rates(statistics.median(bases), changes, folding)


def facts() -> str:
    """The machine in one line."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return (
        f"{model or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, "
        f"Python {platform.python_version()}, numpy {version('numpy')}, "
        f"prometheus_client {version('prometheus_client')}"
    )


def main() -> None:
    """Print the tables; exits with 1 if a limit is exceeded."""
    print(facts())
    costs = costs_ns()
    ours = next(iter(costs.values()))
    print(f"\nCost of an iteration beyond the work, ns: median and middle half of {ROUNDS} interleaved rounds")
    for name, values in costs.items():
        ratio = statistics.median(value / own for value, own in zip(values, ours, strict=True))
        print(f"  {name:34}{spread(values):32} {ratio:5.1f} times ours")
    print(f"  limit: {LIMIT_NS:g} ns, a median")
    print(f"\nLargest error of {len(QUANTILES)} quantiles, {SAMPLES} samples within 1 µs to 1000 s, percent")
    errors = quantile_errors_percent()
    for name, error in errors.items():
        print(f"  {name:34}{error:9.3f}")
    bound = 100 * QUANTILE_ERROR_RATIO
    print(f"  limit: {LIMIT_QUANTILE_PERCENT}; any value within the bucket is within {bound:.3f}")
    result = rates()
    changes = result.changes_percent
    error = statistics.stdev(changes) / len(changes) ** 0.5
    print(f"\nChange of the rate of a loop of {result.base_hz:.0f} iterations a second, percent, {PAIRS} windows")
    print(f"  median {statistics.median(changes):+.3f}, mean {statistics.mean(changes):+.3f} ± {2 * error:.3f}")
    print(f"  folding within the window: median {statistics.median(result.folding_percent):.3f} of its time")
    print(f"  per iteration: {result.cost_ns():.0f} ns; limit: {LIMIT_RATE_NS:g} ns")
    exceeded = {
        "cost of an iteration": statistics.median(ours) > LIMIT_NS,
        "error of a quantile": max(errors.values()) > LIMIT_QUANTILE_PERCENT,
        "change of the rate": result.cost_ns() > LIMIT_RATE_NS,
    }
    if any(exceeded.values()):
        sys.exit("above the limit: " + ", ".join(name for name, is_above in exceeded.items() if is_above))


if __name__ == "__main__":
    main()
