"""Telemetry: the csv text, and the summary of a window from given counters."""

import csv
import io
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest

from sharebench.measure.nodes.host import host_cpu
from sharebench.measure.nodes.host.host_cpu import HostCounters, cpu_seconds
from sharebench.model.records.telemetry import COLUMNS, to_csv

# As psutil has them on Linux: seconds in each state since boot.
Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")
ZERO = Times(*[0.0] * 10)


def test_the_csv_has_all_columns_and_blanks_for_unknown_values() -> None:
    rows = list(csv.reader(io.StringIO(to_csv([{"t_seconds": 0.5, "memory_used_mib": 12.0, "power_watts": None}]))))
    assert rows[0] == list(COLUMNS)
    assert dict(zip(*rows, strict=True)) == dict.fromkeys(COLUMNS, "") | {"t_seconds": "0.5", "memory_used_mib": "12.0"}
    assert to_csv([]) == ",".join(COLUMNS) + "\n"


class Counters:
    """The kernel's counters of a host with three cores, as the sampler reads them."""

    def __init__(self) -> None:
        self.cores: dict[int, Times] = dict.fromkeys(range(3), ZERO)
        self.tenants: dict[int, float] = {7: 0.0, 8: 0.0}
        self.throttled: int | None = 0
        self.monotonic = 100.0

    def spend(self, core: int, **seconds: float) -> None:
        """Let a core pass this time in these states."""
        known = self.cores[core]
        self.cores[core] = known._replace(**{state: getattr(known, state) + more for state, more in seconds.items()})

    def cpu_times(self, percpu: bool = False) -> Any:
        """psutil.cpu_times"""
        if percpu:
            return list(self.cores.values())
        return Times(*map(sum, zip(*self.cores.values(), strict=True)))


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counters:
    """The counters, in place of this host's."""
    fake = Counters()

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def cpu_times(self) -> Any:
            return namedtuple("Spent", "user system children_user children_system")(fake.tenants[self.pid], 0, 0, 0)

        def children(self, recursive: bool) -> list[Any]:
            return []

    monkeypatch.setattr(psutil, "Process", Process)
    monkeypatch.setattr(psutil, "cpu_times", fake.cpu_times)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "stat").write_text("cpu  3 0 0 0\ncpu0 1 0 0 0\ncpu1 1 0 0 0\ncpu2 1 0 0 0\n")
    monkeypatch.setattr(host_cpu, "_throttled_usec", lambda: fake.throttled)
    monkeypatch.setattr(time, "monotonic", lambda: fake.monotonic)
    return fake


def busy_window(counters: Counters) -> HostCounters:
    """Counters of cores 0 and 1 that have begun; ten seconds pass, in which core 0 is busy for nine."""
    host = HostCounters([0, 1], [7, 8])
    host.start()
    counters.monotonic += 10
    counters.spend(0, user=5, nice=1, system=3, idle=1)
    counters.spend(1, idle=8, iowait=2)
    counters.spend(2, user=10)
    counters.tenants = {7: 5.0, 8: 3.0}
    return host


def test_the_summary_is_the_difference_of_the_counters(counters: Counters) -> None:
    host = busy_window(counters)
    counters.spend(2, steal=0.6)
    counters.throttled = 250_000
    summary = host.stop()
    # 9 s busy on our cores, 8 s of them the tenants'; of 20 s on our cores.
    assert summary["foreign_cpu_percent"] == pytest.approx(100 * 1 / 20)
    assert summary["host_steal_percent"] == pytest.approx(100 * 0.6 / 30.6)
    assert summary["host_throttled_percent"] == pytest.approx(100 * 0.25 / 10)


@pytest.mark.parametrize(
    "stat, cores, busy_seconds",
    [
        ("cpu  9 0 0 0\ncpu0 1 0 0 0\ncpu2 1 0 0 0\ncpu5 1 0 0 0\nintr 7 cpu9\n", [2, 5], 3.0 + 5.0),
        ("cpu  9 0 0 0\ncpu4 1 0 0 0\ncpu5 1 0 0 0\ncpu6 1 0 0 0\n", [4, 7], 1.0),
    ],
    ids=["holes", "one is offline"],
)
def test_a_core_is_found_by_its_number_where_numbers_have_holes(
    counters: Counters, tmp_path: Path, stat: str, cores: list[int], busy_seconds: float
) -> None:
    (tmp_path / "stat").write_text(stat)
    for position, seconds in enumerate((1.0, 3.0, 5.0)):
        counters.spend(position, user=seconds)
    assert HostCounters(cores, []).busy() == (busy_seconds, busy_seconds)


def test_guests_are_not_counted_twice(counters: Counters) -> None:
    host = busy_window(counters)
    # Linux has a virtual machine's time in user too.
    counters.spend(1, user=4, guest=4)
    assert host.stop()["foreign_cpu_percent"] == pytest.approx(100 * 5 / 24)


def test_tenants_that_outrun_the_clock_tick_leave_nothing_foreign(counters: Counters) -> None:
    host = busy_window(counters)
    counters.tenants[7] += 2
    assert host.stop()["foreign_cpu_percent"] == 0


def test_a_host_without_control_groups_reports_no_throttling(counters: Counters) -> None:
    counters.throttled = None
    assert busy_window(counters).stop()["host_throttled_percent"] is None


BURNS = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
STARTS = f"""
import subprocess, sys
input()
subprocess.run([sys.executable, "-c", {BURNS!r}])
worker = subprocess.Popen([sys.executable, "-c", {BURNS!r} + "\\nprint(flush=True); input()"], stdin=subprocess.PIPE)
input()
worker.communicate()
"""


def test_processes_that_a_tenant_starts_in_the_window_are_not_foreign() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        # One that has ended by now is not missed.
        host = HostCounters([0], [server.pid, 2**22 + 1])
        host.start()
        server.stdin.write(b"\n")
        server.stdin.flush()
        server.stdout.readline()
        host.stop()
        server_alone, with_workers = cpu_seconds([psutil.Process(server.pid)]), cpu_seconds(host.processes)
        assert len(host.processes) == 2
        # The one that has ended counts for the server, the other one for itself; clocks tick every 10 ms.
        assert server_alone >= 0.25
        assert with_workers >= server_alone + 0.25
        server.communicate(b"\n")


@pytest.mark.parametrize(
    "own, stat, usec",
    [
        ("0::/user.slice/job\n", "usage_usec 5\nthrottled_usec 1234\n", 1234),
        ("1:cpu:/old\n0::/user.slice/job\n", "throttled_usec 7\n", 7),
        ("0::/user.slice/job\n", "usage_usec 5\n", None),
        ("0::/elsewhere\n", "throttled_usec 7\n", None),
    ],
)
def test_throttling_is_read_from_our_own_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, stat: str, usec: int | None
) -> None:
    group = tmp_path / "sys/fs/cgroup/user.slice/job"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text(stat)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    monkeypatch.setattr(host_cpu, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    assert host_cpu._throttled_usec() == usec
