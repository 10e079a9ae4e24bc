"""The summary of a GPU's window from given samples."""

from collections.abc import Sequence
from typing import Any

import pytest

from sharebench.measure.nodes.gpu_summary import summarise
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, to_csv
from tenant.contract.gpu import GpuSample

MIB = 1 << 20


def samples(changes: dict[str, Any] | None = None, period: float = 0.1) -> list[GpuSample]:
    """Samples from 99.55 s to beyond 102.4 s of a GPU at 300 W; `changes` are constants or functions of time."""
    found = []
    for number in range(30):
        at = 99.55 + number * period
        values: dict[str, Any] = {
            "t_seconds": at,
            "cpu_seconds": 0.03 * at,
            "energy_joules": 5000 + 300.0 * at,
            "power_watts": 300.0,
            "sm_clock_mhz": 1980,
            "memory_clock_mhz": 3201,
            "temperature_celsius": 50,
            "gpu_util_percent": 90,
            "memory_used_bytes": 2000 * MIB,
            "reasons": 0,
            "sm_active_seconds": 0.5 * at,
            "sm_occupancy_seconds": 0.25 * at,
            "dram_active_seconds": 0.125 * at,
        }
        for field, change in (changes or {}).items():
            values[field] = change(at) if callable(change) else change
        found.append(GpuSample(**values))
    return found


def process(
    kind: str = "compute",
    mib: float | None = 700,
    parents: tuple[int, ...] = (1,),
    use: Sequence[tuple[float, int, int]] = (),
) -> dict[str, Any]:
    """A process that was seen on the GPU."""
    readings = [] if mib is None else [[99.6, int(mib * MIB / 2)], [100.5, int(mib * MIB)], [101.5, int(mib * MIB)]]
    return {"kind": kind, "memory": readings, "ancestors": list(parents), "use": list(use)}


def summary_of(
    changes: dict[str, Any] | None = None,
    processes: dict[str, Any] | None = None,
    tenants: tuple[int | tuple[int, ...], ...] = (10, 11),
    servers: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The summary of the window from 100 s to 102 s."""
    seen = {int(pid): entry for pid, entry in (processes or {}).items()}
    families = [tenant if isinstance(tenant, tuple) else (tenant,) for tenant in tenants]
    return summarise(samples(changes), seen, families, servers, 100.0, 102.0)[1]


def test_rows_are_those_of_the_window_and_fit_the_csv() -> None:
    changes = {"reasons": lambda at: 0x44 if at > 101 else 0, "power_watts": lambda at: 200 + at, "sm_clock_mhz": None}
    rows, summary = summarise(samples(changes), {}, [(10,)], (), 100.0, 102.0)
    assert summary["samples"] == len(rows) == 20
    assert (rows[0]["t_seconds"], rows[-1]["t_seconds"]) == (0.05, 1.95)
    lines = to_csv(rows).splitlines()
    assert lines[1] == "0.05,90,2000.0,300.05,,50,"
    assert lines[20] == "1.95,90,2000.0,301.95,,50,sw_power_cap;hw_thermal_slowdown"


def test_means_and_extremes_are_of_the_window_alone() -> None:
    inside = lambda at, within, beyond: within if 100 <= at <= 102 else beyond  # noqa: E731
    summary = summary_of(
        {
            "power_watts": lambda at: inside(at, 300.0, 9000.0),
            "sm_clock_mhz": lambda at: inside(at, 1900 if at < 101 else 2100, 100),
            "temperature_celsius": lambda at: inside(at, 60 if 101 < at < 101.1 else int(at - 60), 99),
            "memory_used_bytes": lambda at: inside(at, 1000 * MIB, 9000 * MIB),
            "gpu_util_percent": lambda at: inside(at, 80, 0),
            "reasons": lambda at: inside(at, 0x4 if at < 100.2 else 0x1, 0x8),
        }
    )
    assert set(summary) == set(UNKNOWN_TELEMETRY)
    assert summary["power_mean_watts"] == 300
    assert (summary["sm_clock_mean_mhz"], summary["sm_clock_cv"]) == (2000, pytest.approx(0.05))
    assert summary["memory_clock_mean_mhz"] == 3201
    temperatures = [summary[f"temperature_{what}_celsius"] for what in ("start", "end", "max")]
    assert temperatures == [40, 41, 60]
    assert (summary["memory_used_max_mib"], summary["utilisation_mean_percent"]) == (1000, 80)
    assert summary["throttle_reasons"] == {"sw_power_cap": 10, "gpu_idle": 90}


def test_the_energy_is_counted_between_the_exact_ends_of_the_window() -> None:
    # The power changes beyond the window, so only interpolated ends give what was used in it.
    summary = summary_of({"energy_joules": lambda at: 300 * min(max(at, 100.05), 101.95), "power_watts": 300.0})
    assert summary["energy_joules"] == pytest.approx(300 * 1.9)
    assert summary_of()["energy_joules"] == pytest.approx(600)
    assert summary_of()["sampler_cpu_percent"] == pytest.approx(3)


def test_activity_is_the_mean_between_the_exact_ends_of_the_window() -> None:
    busy_within = lambda at: min(max(at, 100.0), 102.0) if round((at - 99.55) * 10) % 2 else None  # noqa: E731
    summary = summary_of({"sm_active_seconds": busy_within})
    # It was read every 0.2 s, and in the two such times that an end of the window cuts it is taken as steady.
    assert summary["sm_active_mean_percent"] == pytest.approx(96.25)
    active = [summary[f"{what}_mean_percent"] for what in ("sm_occupancy", "dram_active")]
    assert active == pytest.approx([25, 12.5])


@pytest.mark.parametrize("renewal_seconds", [0.02, 0.1, 0.25])
def test_the_energy_error_bounds_a_counter_that_is_renewed_in_steps(renewal_seconds: float) -> None:
    stale = lambda at: 300 * (at // renewal_seconds) * renewal_seconds  # noqa: E731
    summary = summary_of({"energy_joules": stale})
    assert abs(summary["energy_joules"] - 600) <= summary["energy_error_joules"] + 1e-6
    assert summary["energy_error_joules"] == pytest.approx(300 * max(0.1, renewal_seconds), abs=300 * 0.11)


def test_without_a_counter_the_energy_comes_from_the_power_samples() -> None:
    summary = summary_of({"energy_joules": None, "power_watts": lambda at: 200 if at < 101 else 400})
    assert (summary["energy_joules"], summary["energy_error_joules"]) == (pytest.approx(600), None)


def test_quantities_that_the_gpu_does_not_report_are_null() -> None:
    unknown = dict.fromkeys(GpuSample._fields[2:])
    summary = summary_of(unknown)
    told = {key for key, value in summary.items() if value is not None}
    assert (
        summary_of(unknown | {"dram_active_seconds": lambda at: at if at < 101.9 else None})["dram_active_mean_percent"]
        is None
    )
    assert told == {"source", "samples", "sampler_cpu_percent"}
    assert summary_of({"temperature_celsius": None})["power_mean_watts"] == 300


def test_memory_is_reported_by_tenant_and_for_the_mps_servers() -> None:
    seen = {"5": process("compute", 66), "11": process("mps", 700), "10": process("mps", 800)}
    summary = summary_of(processes=seen, servers=(5,))
    assert summary["tenant_memory_mib"] == [800, 700]
    assert summary["server_memory_mib"] == 66
    assert summary["foreign_processes"] == {"compute": 0, "graphics": 0, "mps": 0}


def test_streams_share_the_memory_of_their_process() -> None:
    summary = summary_of(processes={"10": process(mib=900)}, tenants=(10, 10, 10))
    assert summary["tenant_memory_mib"] == [300, 300, 300]
    assert summary["server_memory_mib"] is None


def test_memory_that_nvml_hides_is_null_for_that_tenant() -> None:
    seen = {"10": process(mib=None), "11": process(mib=700)}
    assert summary_of(processes=seen)["tenant_memory_mib"] == [None, 700]


def test_foreign_processes_are_counted_by_kind() -> None:
    seen = {
        "10": process(),
        "11": process(),
        "20": process("compute"),
        "21": process("compute", parents=(20, 1)),
        "22": process("mps"),
        "23": process("graphics"),
        "30": process("compute", parents=(11, 1)),
        "31": process("compute", parents=(30, 11, 1)),
    }
    assert summary_of(processes=seen)["foreign_processes"] == {"compute": 2, "graphics": 1, "mps": 1}


def test_the_workers_of_a_tenant_are_not_foreign_and_their_memory_is_the_tenants() -> None:
    # A server that does not use the GPU itself, with a worker that it had when the window began and a later one.
    seen = {
        "12": process("compute", 300, parents=(10, 1)),
        "13": process("compute", 500, parents=(10, 1)),
        "11": process("compute", 700),
        "20": process("compute", 900),
    }
    summary = summary_of(processes=seen, tenants=((10, 12), 11))
    assert summary["foreign_processes"] == {"compute": 1, "graphics": 0, "mps": 0}
    assert summary["tenant_memory_mib"] == [800, 700]


def test_pids_of_another_namespace_give_no_memory_and_no_foreign_processes() -> None:
    summary = summary_of(processes={"4711": process()})
    assert summary["foreign_processes"] is summary["tenant_memory_mib"] is None


def test_memory_taken_after_the_window_does_not_count() -> None:
    tenant = process(mib=2338)
    tenant["memory"].append([102.1, 6434 * MIB])
    assert summary_of(processes={"10": tenant}, tenants=(10,))["tenant_memory_mib"] == [2338]
    too_late = {"kind": "compute", "memory": [[102.1, MIB]], "ancestors": [1], "use": []}
    assert summary_of(processes={"10": too_late}, tenants=(10,))["tenant_memory_mib"] == [None]


def test_the_use_of_each_tenant_is_its_mean_over_the_window() -> None:
    # Readings every half second; in the third NVML lists only the second tenant.
    one = process(use=[(100.5, 40, 10), (101.0, 60, 30), (102.0, 20, 0), (103.0, 100, 100)])
    child = process(parents=(11, 1), use=[(100.5, 50, 0), (101.0, 30, 8), (101.5, 90, 8), (102.0, 10, 0)])
    summary = summary_of(processes={"10": one, "211": child})
    assert summary["tenant_sm_percent"] == [
        pytest.approx((40 + 60 + 0 + 20) / 4),
        pytest.approx((50 + 30 + 90 + 10) / 4),
    ]
    assert summary["tenant_memory_busy_percent"] == [pytest.approx(10), pytest.approx(4)]


def test_a_gap_in_which_nothing_was_listed_is_idle() -> None:
    burst = process(use=[(100.2, 80, 8), (102.0, 80, 8)])
    assert summary_of(processes={"10": burst}, tenants=(10,))["tenant_sm_percent"] == [pytest.approx(80 * 1.2 / 2)]


def test_streams_share_the_use_of_their_process() -> None:
    whole = process(use=[(101.0, 100, 50), (102.0, 100, 50)])
    assert summary_of(processes={"10": whole}, tenants=(10, 10))["tenant_sm_percent"] == [50, 50]


def test_the_use_of_a_tenant_that_nvml_never_lists_is_not_known() -> None:
    listed = process(use=[(101.0, 100, 50), (102.0, 100, 50)])
    assert summary_of(processes={"10": listed, "11": process()})["tenant_sm_percent"] == [100, None]
    assert summary_of(processes={"10": process()})["tenant_sm_percent"] is None
