"""Evidence on a GPU: every strategy's proof holds when it was in force, and breaks when another one was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import Grant
from sharebench.nodes.host.nvidia_evidence import collect
from sharebench.nodes.host.nvml import Occupant
from tenant.contract import device_digest

GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """A device of 132 SMs and 140 GiB."""

    uuid: str = "GPU-1"
    sm_count: int = 132
    memory_bytes: int = 140 * GIB


@dataclass
class Daemon:
    """What an MPS daemon would answer."""

    connected: list[int]
    threads: float = 100.0
    memory: str = ""
    is_serving: bool = field(default=True)

    def server(self) -> int | None:
        """Its server."""
        return 641 if self.is_serving else None

    def clients(self, server: int) -> list[int]:
        """Its clients."""
        return self.connected

    def thread_percent(self, server: int) -> float:
        """Its default share."""
        return self.threads

    def memory_limit(self, server: int) -> str:
        """Its default limit."""
        return self.memory


def strategy(*mechanisms: str, threads: str | None = None, memory: str | None = None) -> Strategy:
    """A strategy with these layers and limits."""
    return Strategy("own", mechanisms, "1g" if "mig" in mechanisms else None, 2, threads, memory, None)


def view(pid: int, **changes: Any) -> dict[str, Any]:
    """A tenant's record with its view of the whole device."""
    whole = {
        "pid": pid,
        "device": device_digest("GPU-1"),
        "sm_count": 132,
        "memory_free_bytes": 139 * GIB,
        "memory_total_bytes": 140 * GIB,
        "over_limit_refused": None,
    }
    return {"view": whole | changes}


def broken(evidence: list[dict[str, Any]]) -> set[str]:
    """Names of what does not hold."""
    return {item["name"] for item in evidence if not item["holds"]}


def grants(count: int, groups: int = 1, process: int | None = None) -> list[Grant]:
    """Tenants in turn over the groups."""
    return [Grant(index, index % groups, process=process) for index in range(count)]


def occupied(kind: str, *pids: int) -> list[Occupant]:
    """Processes of one kind on the GPU."""
    return [Occupant(pid, kind, GIB) for pid in pids]


def test_time_slicing_is_distinct_contexts_without_mps() -> None:
    found = collect(strategy("time-slicing"), [Gpu()], grants(2), [view(1), view(2)], occupied("compute", 1, 2), [])
    assert not broken(found)
    assert not any(isinstance(item["observed"], int) and item["observed"] in (1, 2) for item in found)


@pytest.mark.parametrize("kind", ["mps", "graphics"])
def test_time_slicing_breaks_when_a_tenant_is_something_else(kind: str) -> None:
    occupants = occupied("compute", 1) + occupied(kind, 2)
    assert broken(collect(strategy("time-slicing"), [Gpu()], grants(2), [view(1), view(2)], occupants, [])) == {
        "kinds of the tenants' contexts"
    }


def test_a_tenant_that_nvml_does_not_see_proves_nothing() -> None:
    found = collect(strategy("exclusive"), [Gpu()], grants(1), [view(1)], [], [])
    assert broken(found) == {"kinds of the tenants' contexts"}


def test_time_slicing_beside_a_daemon_of_ours_breaks() -> None:
    found = collect(strategy("time-slicing"), [Gpu()], grants(1), [view(1)], occupied("compute", 1), [Daemon([])])
    assert broken(found) == {"our MPS daemons"}


def test_mps_is_one_server_with_exactly_the_tenants() -> None:
    found = collect(strategy("mps"), [Gpu()], grants(2), [view(1), view(2)], occupied("mps", 1, 2), [Daemon([1, 2])])
    assert not broken(found)


@pytest.mark.parametrize(
    "daemon, name",
    [
        (Daemon([1]), "clients of the MPS server"),
        (Daemon([1, 2, 3]), "clients of the MPS server"),
        (Daemon([1, 2], threads=50.0), "share of the SMs by the MPS server, percent"),
        (Daemon([], is_serving=False), "MPS server"),
    ],
)
def test_mps_breaks(daemon: Daemon, name: str) -> None:
    found = collect(strategy("mps"), [Gpu()], grants(2), [view(1), view(2)], occupied("mps", 1, 2), [daemon])
    assert broken(found) == {name}


def test_mps_without_a_daemon_breaks() -> None:
    found = collect(strategy("mps"), [Gpu()], grants(1), [view(1)], occupied("compute", 1), [])
    assert broken(found) == {"MPS server", "kinds of the tenants' contexts"}


def limited(told: str = "35G", **changes: Any) -> list[dict[str, Any]]:
    """Four tenants under a quarter of SMs and memory each; `changes` of the last one's view."""
    fair = {"sm_count": 32, "memory_free_bytes": 34 * GIB, "over_limit_refused": True}
    records = [view(pid, **fair) for pid in (1, 2, 3)] + [view(4, **fair | changes)]
    daemon = Daemon([1, 2, 3, 4], threads=25.0, memory=told)
    shared = strategy("mps", threads="100/N", memory="100/N")
    return collect(shared, [Gpu()], grants(4), records, occupied("mps", 1, 2, 3, 4), [daemon])


@pytest.mark.parametrize("told", ["35G", "35840M"])
def test_limits_hold_from_inside_and_outside(told: str) -> None:
    assert not broken(limited(told))


@pytest.mark.parametrize("told", ["", "34G", "36G", "35839M", "35840", "all"])
def test_another_memory_limit_of_the_server_breaks(told: str) -> None:
    assert broken(limited(told)) == {"memory limit by the MPS server"}


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"sm_count": 132}, "SMs"),
        ({"sm_count": 34}, "SMs"),
        ({"sm_count": 16}, "SMs"),
        ({"memory_free_bytes": 36 * GIB}, "free memory in bytes"),
        ({"over_limit_refused": False}, "allocation beyond the limit refused"),
        ({"over_limit_refused": None}, "allocation beyond the limit refused"),
        ({"device": device_digest("GPU-2")}, "device"),
    ],
)
def test_limits_break(changes: dict[str, Any], name: str) -> None:
    assert broken(limited(**changes)) == {name}


def test_a_share_of_seven_may_be_rounded_down() -> None:
    shared = strategy("mps", threads="100/N")
    records = [view(pid, sm_count=18) for pid in range(1, 8)]
    daemon = Daemon(list(range(1, 8)), threads=14.3)
    assert not broken(collect(shared, [Gpu()], grants(7), records, occupied("mps", *range(1, 8)), [daemon]))


def test_mig_gives_each_tenant_its_instance() -> None:
    instances = [Gpu("MIG-1", 16, 16 * GIB), Gpu("MIG-2", 32, 32 * GIB)]
    records = [
        view(1, device=device_digest("MIG-1"), sm_count=16),
        view(2, device=device_digest("MIG-2"), sm_count=32),
    ]
    occupants = occupied("compute", 1, 2)
    assert not broken(collect(strategy("mig"), instances, grants(2, 2), records, occupants, []))
    assert broken(collect(strategy("mig"), instances, grants(2, 2), records[::-1], occupants, [])) == {"device", "SMs"}


def test_mps_inside_mig_has_a_daemon_for_each_instance() -> None:
    instances = [Gpu("MIG-1", 60, 70 * GIB), Gpu("MIG-2", 60, 70 * GIB)]
    records = [view(pid, device=device_digest(f"MIG-{1 + (pid - 1) % 2}"), sm_count=60) for pid in (1, 2, 3)]
    daemons = [Daemon([1, 3]), Daemon([2])]
    layered = strategy("mig", "mps")
    occupants = occupied("mps", 1, 2, 3)
    assert not broken(collect(layered, instances, grants(3, 2), records, occupants, daemons))
    assert broken(collect(layered, instances, grants(3, 2), records, occupants, daemons[::-1]))


def test_streams_share_one_context() -> None:
    records = [view(1), view(1)]
    both = grants(2, process=0)
    assert not broken(collect(strategy("streams"), [Gpu()], both, records, occupied("compute", 1), []))
    two = collect(strategy("streams"), [Gpu()], both, [view(1), view(2)], occupied("compute", 1, 2), [])
    assert broken(two) == {"kinds of the tenants' contexts"}


def test_a_tenant_without_a_view_proves_nothing() -> None:
    found = collect(strategy("exclusive"), [Gpu()], grants(1), [{"view": None}], occupied("compute", 1), [])
    assert broken(found) == {"device", "SMs", "kinds of the tenants' contexts"}


def program(*pids: int, visible: str | None = "GPU-1") -> dict[str, Any]:
    """The record of a user program, as its host sees it."""
    return {"measured_by": "scrape", "view": None, "outside": {"pids": list(pids), "visible_devices": visible}}


def test_a_program_is_found_on_the_gpu_by_whichever_of_its_processes_is_there() -> None:
    both = [program(1, 11), program(2, 21, 22)]
    found = collect(strategy("time-slicing"), [Gpu()], grants(2), both, occupied("compute", 11, 22), [])
    assert not broken(found)
    assert {item["source"] for item in found} == {"node"}
    absent = collect(strategy("time-slicing"), [Gpu()], grants(2), both, occupied("compute", 11), [])
    assert broken(absent) == {"kinds of the tenants' contexts"}


def test_a_program_that_was_shown_another_gpu_or_all_is_no_evidence() -> None:
    for visible in ("GPU-2", None):
        found = collect(
            strategy("exclusive"), [Gpu()], grants(1), [program(1, visible=visible)], occupied("compute", 1), []
        )
        assert broken(found) == {"device by its environment"}


def test_a_program_under_mps_is_a_client_of_our_server() -> None:
    daemon = Daemon(connected=[11])
    found = collect(strategy("mps"), [Gpu()], grants(1), [program(1, 11)], occupied("mps", 11), [daemon])
    assert not broken(found)
    outside = collect(strategy("mps"), [Gpu()], grants(1), [program(1, 12)], occupied("compute", 12), [daemon])
    assert broken(outside) == {"kinds of the tenants' contexts", "clients of the MPS server"}


def test_the_workers_of_a_program_are_clients_of_one_tenant() -> None:
    both, on_gpu = [program(1, 11, 12), program(2, 21)], occupied("mps", 11, 12, 21)
    found = collect(strategy("mps"), [Gpu()], grants(2), both, on_gpu, [Daemon([11, 12, 21])])
    assert not broken(found)
    other = collect(strategy("mps"), [Gpu()], grants(2), both, on_gpu, [Daemon([11, 12, 21, 31])])
    assert broken(other) == {"clients of the MPS server"}
    one_missed_it = occupied("mps", 11, 21) + occupied("compute", 12)
    mixed = collect(strategy("mps"), [Gpu()], grants(2), both, one_missed_it, [Daemon([11, 21])])
    assert broken(mixed) == {"kinds of the tenants' contexts"}


def test_a_server_that_is_not_ours_is_not_looked_for() -> None:
    elsewhere = {"measured_by": "client", "view": None, "outside": None}
    found = collect(strategy("time-slicing"), [Gpu()], grants(2), [view(1), elsewhere], occupied("compute", 1), [])
    assert not broken(found)
