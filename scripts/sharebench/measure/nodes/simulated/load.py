"""The load of a simulated tenant in its window: iterations of a closed or open load, or of a job, with noise."""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sharebench.measure.nodes.contract import PlannedLoad, latency_bucket, own_load_report
from sharebench.model.strategy import GREEN_CONTEXTS, MECHANISMS, Mechanism, Strategy, slice_count
from sharebench.model.workload import Model
from tenant.contract import TIMELINE_SLOTS, CompletedJob, Environment, TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import Noise as PlantedNoise
    from sharebench.model.config_nodes import SimulatedOptions

# Enough for a queue at 85 % of its capacity; after 50, it is still 7 % short of its stationary latency.
LEAD_ITERATIONS = 200
AT_ONCE = ("mps", "streams")
NOT_SHARED = ("exclusive", "mig", "sequential")


def has_model(mechanism: Mechanism) -> bool:
    """Whether `iteration_seconds` knows how tenants that share by it disturb each other."""
    return MECHANISMS[mechanism].is_time_sliced or mechanism in (*AT_ONCE, *NOT_SHARED, GREEN_CONTEXTS)


def iteration_seconds(strategy: Strategy, active: int, node: "SimulatedOptions", work: Model, group: int = 0) -> float:
    """Mean latency of an iteration while `active` tenants share the `group` (the whole device, or an instance).

    `strategy` has the limits of the cell, `node` is the config's `simulated` section, `work` the workload's `simulated`
    parameters (`serial_seconds` a, `parallel_sm_seconds` w).
    """
    a, w, sms = work.serial_seconds, work.parallel_sm_seconds, node["sms"]
    if layout := strategy.layout(group + 1):
        sms = slice_count(layout[group]) * node["mig_slice_sms"]
    inner = strategy.mechanism[-1]
    if MECHANISMS[inner].is_time_sliced:
        overhead = node["time_slicing_overhead"] if active > 1 else 0.0
        return float(active * (a + w / sms) * (1 + overhead))
    limit = strategy.tenant_limits(active, 0).thread_percent
    floor = a + w / max(1, math.floor(sms * limit / 100)) if limit is not None else 0.0
    if inner == GREEN_CONTEXTS:
        return float(floor)
    if inner in AT_ONCE:
        return float(max(a + active * w / sms, floor))
    return float(a + w / sms)


def lognormal(draw: random.Random, cv: float) -> float:
    """A factor with mean 1 and coefficient of variation `cv`."""
    sigma = math.sqrt(math.log1p(cv * cv))
    return math.exp(draw.gauss(0.0, sigma) - sigma * sigma / 2) if cv > 0 else 1.0


class Noise:
    """Successive factors by which an iteration differs from the model.

    `planted` is the `noise` of the node: spread, its correlation from one iteration to the next (AR(1) of the logs),
    share and length of stragglers, and drift over the window, which makes the first iteration fast and the last slow.
    """

    def __init__(self, planted: "PlantedNoise", seconds: float, draw: random.Random) -> None:
        self.planted, self.draw = planted, draw
        self.sigma = math.sqrt(math.log1p(planted["iteration_cv"] ** 2))
        self.drift_per_second = planted["drift"] / seconds
        self.middle = seconds / 2
        self.last: float | None = None

    def factor(self, start_seconds: float) -> float:
        """The factor of an iteration that starts at this time in the window; 1 on average, without stragglers."""
        factor, correlation = 1.0, self.planted["autocorrelation"]
        if self.sigma > 0:
            shock = self.draw.gauss(0.0, 1.0)
            if correlation and self.last is not None:
                shock = correlation * self.last + math.sqrt(1 - correlation**2) * shock
            self.last = shock
            factor = math.exp(self.sigma * shock - self.sigma * self.sigma / 2)
        if (ratio := self.planted["straggler_ratio"]) and self.draw.random() < ratio:
            factor *= self.planted["straggler_factor"]
        if self.drift_per_second:
            factor *= 1 + self.drift_per_second * (start_seconds - self.middle)
        return factor


class SimulatedTenant:
    """One tenant's part of the window: (intended start, end) pairs in seconds since its start."""

    def __init__(self, load: PlannedLoad, window_seconds: float) -> None:
        self.load = load
        self.window_seconds = window_seconds
        self.requests: list[tuple[float, float]] = []
        self.delays: list[float] = []
        self.in_flight_seconds = 0.0

    def report(self, index: int, workload: str, start_seconds: float, iterations: int | None) -> TenantReport:
        """The report of a real tenant for this window; with `iterations` it ran a job."""
        seconds, completed = self.window_seconds, len(self.requests)
        latencies = [end - start for start, end in self.requests]
        slots: list[list[float]] = [[] for _ in range(TIMELINE_SLOTS)]
        for (start, _), latency in zip(self.requests, latencies, strict=True):
            slots[min(TIMELINE_SLOTS - 1, int(start * TIMELINE_SLOTS / seconds))].append(latency)
        no_packages: Environment = {"python": "none", "platform": "simulated", "packages": {}}
        report = own_load_report(index, workload, completed / seconds if seconds else 0.0, no_packages)
        assert report["load"] is not None
        job: CompletedJob | None = None
        if iterations is not None:
            job = {
                "iterations": iterations,
                "completed": completed,
                "start_delay_seconds": 0.0,
                "completion_seconds": seconds if completed == iterations else None,
            }
        return {
            **report,
            "startup": {
                "process_seconds": 0.0,
                "import_seconds": 0.0,
                "context_seconds": 0.0,
                "load_seconds": 0.0,
                "warmup_seconds": start_seconds,
                "first_iteration_seconds": None,
            },
            "count": completed,
            "sum_seconds": sum(latencies),
            "sum_squares_seconds2": sum(latency * latency for latency in latencies),
            "min_seconds": min(latencies, default=None),
            "max_seconds": max(latencies, default=None),
            "histogram": {str(key): count for key, count in sorted(Counter(map(latency_bucket, latencies)).items())},
            "timeline": {
                "slot_seconds": seconds / TIMELINE_SLOTS,
                "count": list(map(len, slots)),
                "sum_seconds": list(map(sum, slots)),
                "max_seconds": [max(slot, default=0.0) for slot in slots],
            },
            "load": {
                **report["load"],
                "arrival": self.load["arrival"],
                "planned_rate_hz": self.load.get("rate_hz"),
                "delay_p99_seconds": sorted(self.delays)[math.ceil(0.99 * completed) - 1] if self.delays else None,
                "in_flight_mean": self.in_flight_seconds / seconds if seconds else 0.0,
            },
            "job": job,
        }


def run_closed(
    tenants: Sequence[SimulatedTenant], means_seconds: Sequence[float], planted: "PlantedNoise", draw: random.Random
) -> None:
    """Every tenant is always active, so each iteration takes the tenant's mean times its noise."""
    seconds = tenants[0].window_seconds
    for tenant, mean_seconds in zip(tenants, means_seconds, strict=True):
        # The window opens somewhere inside an iteration; only iterations that start in it count.
        tenant.in_flight_seconds = seconds
        noise = Noise(planted, seconds, draw)
        start = draw.random() * mean_seconds
        while start < seconds:
            end = start + mean_seconds * noise.factor(start)
            tenant.requests.append((start, end))
            start = end


def run_jobs(
    tenants: Sequence[SimulatedTenant],
    iterations: Sequence[int],
    models: Sequence[Callable[[int], float]],
    cv: float,
    draw: random.Random,
) -> None:
    """Each tenant runs its iterations back to back; the number of running jobs at its start sets an iteration's length.

    `models` give a tenant's mean seconds by the number of active tenants. A tenant's window shrinks to its own run.
    """
    deadline_seconds = tenants[0].window_seconds
    means = [[model(active) for active in range(1, len(tenants) + 1)] for model in models]
    begins = [(0.0, index) for index in range(len(tenants))]
    while begins:
        start, index = begins[0]
        tenant = tenants[index]
        if len(tenant.requests) == iterations[index] or start >= deadline_seconds:
            heapq.heappop(begins)
            is_done = len(tenant.requests) == iterations[index]
            tenant.window_seconds = start if is_done else deadline_seconds
            tenant.in_flight_seconds = tenant.window_seconds
            continue
        end = start + means[index][len(begins) - 1] * lognormal(draw, cv)
        tenant.requests.append((start, end))
        heapq.heapreplace(begins, (end, index))


def run_open(
    tenants: Sequence[SimulatedTenant], per_active: Sequence[float], planted: "PlantedNoise", draw: random.Random
) -> None:
    """First come, first served in each tenant; active tenants share the device, at a speed set by their number.

    Discrete events: the next arrival or the next completion. `per_active[k - 1]` is the duration of an iteration while
    k tenants are active. The load begins early enough for the queue to be stationary when the window opens, and
    continues until all requests of the window are served.
    """
    rate, poisson = tenants[0].load["rate_hz"], tenants[0].load["arrival"] == "poisson"
    seconds = tenants[0].window_seconds
    now = -LEAD_ITERATIONS * max(1 / rate, per_active[-1])
    arrivals = [(now + draw.random() / rate, index) for index in range(len(tenants))]
    heapq.heapify(arrivals)
    queues: list[deque[float]] = [deque() for _ in tenants]
    noise = [Noise(planted, seconds, draw) for _ in tenants]
    left: dict[int, float] = {}
    begun: dict[int, float] = {}
    unserved = 0
    while now < seconds or unserved:
        speed = 1.0 / per_active[len(left) - 1] if left else 0.0
        next_arrival = arrivals[0][0]
        first = min(left, key=lambda index: left[index], default=-1)
        next_end = now + left[first] / speed if left else math.inf
        after = min(next_arrival, next_end)
        left = {index: work - (after - now) * speed for index, work in left.items()}
        now = after
        if next_arrival <= next_end:
            index = arrivals[0][1]
            heapq.heapreplace(arrivals, (now + (draw.expovariate(rate) if poisson else 1.0 / rate), index))
            queues[index].append(now)
            unserved += now < seconds
        else:
            index = first
            intended = queues[index].popleft()
            unserved -= intended < seconds
            del left[index]
            tenants[index].in_flight_seconds += max(0.0, min(now, seconds) - max(intended, 0.0))
            if 0 <= intended < seconds:
                tenants[index].requests.append((intended, now))
                tenants[index].delays.append(begun[index] - intended)
        if queues[index] and index not in left:
            left[index] = noise[index].factor(min(max(now, 0.0), seconds))
            begun[index] = now
