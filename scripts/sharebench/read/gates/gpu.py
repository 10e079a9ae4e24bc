"""Gates of cells on a GPU, which apply to no other kind of node. gates.py has their severity."""

from collections.abc import Callable, Iterable
from functools import wraps

from sharebench.model.records.record import window_seconds
from sharebench.model.records.telemetry import SLOWDOWNS
from sharebench.model.records.types import CellRecord, TenantRecord
from sharebench.read.gates.verdict import (
    UNKNOWN,
    Verdict,
    at_most,
    at_most_if_known,
    load_of,
    telemetry_of,
)

# On a GPU node the tenants must not contend for the CPU.
RUN_QUEUE_RATIO = 0.01
# A GPU that hardware protection or heat slows down is another GPU; a single sample in a hundred may be transient.
SLOWDOWN_PERCENT = 1.0
# The power limit is a fact of the device that large models always meet, so it only marks the cell.
POWER_CAP_PERCENT = 1.0
# A clock that varies by more shows in every latency.
CLOCK_CV = 0.01
# Temperatures are in whole degrees: a rise of one may be rounding, and steady GPUs waver by one or two.
TEMPERATURE_RISE_CELSIUS = 2.0
# Peaks are the best of short measurements, which a longer or luckier one may exceed by a few percent.
PEAK_RATIO = 1.05
MEMORY_PEAKS = ("copy_bytes_per_second", "read_bytes_per_second")


def _on_gpus(check: Callable[[CellRecord], Verdict]) -> Callable[[CellRecord], Verdict | None]:
    @wraps(check)
    def check_on_gpus(record: CellRecord) -> Verdict | None:
        return check(record) if record["node"]["is_gpu"] else None

    return check_on_gpus


@_on_gpus
def cpu_contention(record: CellRecord) -> Verdict:
    """The longest time that a tenant was runnable without a CPU, as a share of the window."""
    waits = [tenant["cpu"]["run_queue_seconds"] for tenant in record["tenants"] if tenant["cpu"]]
    longest = max((wait / window_seconds(record) for wait in waits if wait is not None), default=None)
    # A tenant spins while it waits for the GPU, so that a limit of one CPU leaves its other threads none.
    of_pods = "; a CPU limit of its pod can do that: give none, or 2" * (record["node"]["kind"] == "kubernetes")
    return at_most_if_known(longest, RUN_QUEUE_RATIO, "a tenant waited for a CPU for {:.1%} of the window" + of_pods)


@_on_gpus
def gpu_slowdown(record: CellRecord) -> Verdict:
    return _throttled(record, SLOWDOWNS, SLOWDOWN_PERCENT, "heat or the hardware")


@_on_gpus
def power_cap(record: CellRecord) -> Verdict:
    return _throttled(record, ("sw_power_cap",), POWER_CAP_PERCENT, "the power limit")


def _throttled(record: CellRecord, names: Iterable[str], limit_percent: float, cause: str) -> Verdict:
    reasons = telemetry_of(record)["throttle_reasons"]
    if reasons is None:
        return Verdict(None, limit_percent, True, UNKNOWN)
    value, name = max((reasons.get(name, 0.0), name) for name in names)
    return at_most(value, limit_percent, f"in {value:.1f} % of the samples {cause} held the clock back ({name})")


@_on_gpus
def foreign_process(record: CellRecord) -> Verdict:
    processes = telemetry_of(record)["foreign_processes"]
    if processes is None:
        return Verdict(None, 0, True, UNKNOWN)
    counts = {"compute": processes["compute"], "graphics": processes["graphics"], "mps": processes["mps"]}
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return at_most(sum(counts.values()), 0, f"foreign processes on the GPU: {kinds}")


@_on_gpus
def clock_variation(record: CellRecord) -> Verdict:
    """Coefficient of variation of the SM clock."""
    message = "the SMs' clock varied by {:.1%} (standard deviation)"
    return at_most_if_known(telemetry_of(record)["sm_clock_cv"], CLOCK_CV, message)


@_on_gpus
def temperature_rising(record: CellRecord) -> Verdict:
    telemetry = telemetry_of(record)
    start, end = telemetry["temperature_start_celsius"], telemetry["temperature_end_celsius"]
    rise = None if start is None or end is None else end - start
    return at_most_if_known(rise, TEMPERATURE_RISE_CELSIUS, "the GPU became {:.0f} °C warmer in the window")


@_on_gpus
def speed_of_light(record: CellRecord) -> Verdict:
    """The declared work of all tenants per second, over peak FLOP/s or peak bandwidth.

    An iteration's traffic counts only beyond the size of the L2 cache, which may still hold that much from the
    iteration before. Peak bandwidth is the faster of copying and reading.
    """
    calibration = record["calibration"]
    roofs = calibration["roofs"] if calibration else None
    if roofs is None:
        return Verdict(None, PEAK_RATIO, True, UNKNOWN)
    memory = max((roofs[key] for key in MEMORY_PEAKS if key in roofs), default=None)
    reached: dict[str, float] = {}
    for tenant in record["tenants"]:
        work, rate_hz = tenant["work"], _minimum_rate_hz(tenant, window_seconds(record))
        if work is None:
            continue
        precision = str(work.get("precision"))
        if work["flop"] is not None and precision in roofs:
            reached[precision] = reached.get(precision, 0.0) + work["flop"] * rate_hz / roofs[precision]
        if work["bytes"] is not None and memory is not None and "l2_bytes" in roofs:
            moved = max(0.0, work["bytes"] - roofs["l2_bytes"])
            reached["memory"] = reached.get("memory", 0.0) + moved * rate_hz / memory
    if not reached:
        return Verdict(None, PEAK_RATIO, True, "no work is declared whose peak is known")
    value, name = max((value, name) for name, value in reached.items())
    return at_most(value, PEAK_RATIO, f"the tenants claim {value:.2f} times what the device can do ({name})")


def _minimum_rate_hz(tenant: TenantRecord, seconds: float) -> float:
    """Lower bound of the iterations per second, since some that were counted ended after the window.

    Under a closed load only the last one may have; under an open load all ended within the longest latency.
    """
    if load_of(tenant)["arrival"] == "closed":
        return float(max(0, tenant["count"] - 1) / seconds)
    return float(tenant["count"] / (seconds + (tenant["max_seconds"] or 0.0)))
