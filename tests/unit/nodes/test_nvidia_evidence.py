"""Evidence on a GPU: it holds when the strategy was active, and fails when another one was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest

from sharebench.measure.nodes.contract import Grant
from sharebench.measure.nodes.host import mps
from sharebench.measure.nodes.host.nvidia_evidence import collect_evidence
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.measure.nodes.limits import PRIORITY_VARIABLE as PRIORITY
from sharebench.model.strategy import Strategy
from tenant.contract import device_digest

GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """A device with 132 SMs and 140 GiB."""

    uuid: str = "GPU-1"
    sm_count: int = 132
    memory_bytes: int = 140 * GIB


@dataclass
class Daemon:
    """A fake MPS daemon with fixed answers."""

    connected: list[int]
    threads: float = 100.0
    memory: str = ""
    is_serving: bool = True

    def server(self) -> int | None:
        return 641 if self.is_serving else None

    def clients(self, server: int) -> list[int]:
        return self.connected

    def thread_percent(self, server: int) -> float:
        return self.threads

    def memory_limit(self, server: int) -> str:
        return self.memory


def view(pid: int, uuid: str = "GPU-1", **changes: Any) -> dict[str, Any]:
    """A tenant's record with its view of the whole device."""
    whole = {
        "pid": pid,
        "device": device_digest(uuid),
        "sm_count": 132,
        "memory_free_bytes": 139 * GIB,
        "memory_total_bytes": 140 * GIB,
        "over_limit_refused": None,
    }
    return {"view": whole | changes}


def program(*pids: int, visible: str | None = "GPU-1") -> dict[str, Any]:
    """The record of a user program, from its host's view."""
    return {
        "measured_by": "scrape",
        "view": None,
        "outside": {"pids": list(pids), "names": [f"p{pid}" for pid in pids], "visible_devices": visible},
    }


def evidence(
    mechanisms: str,
    records: list[dict[str, Any]],
    on_gpu: dict[str, list[int]],
    daemons: Sequence[Daemon] = (),
    devices: Sequence[Gpu] = (Gpu(),),
    sampled: dict[int, dict[str, Any]] | None = None,
    **limits: str,
) -> list[dict[str, Any]]:
    """Evidence for tenants, one after another over the devices; `on_gpu` are the processes by kind."""
    layers = tuple(mechanisms.split("/"))
    profile = "1g" if "mig" in layers else None
    strategy = Strategy.model_construct(
        name="own",
        mechanism=layers,
        profile=profile,
        instances=2,
        thread_percent=limits.get("threads"),
        memory_percent=limits.get("memory"),
    )
    process = 0 if strategy.is_one_process else None
    sms = 44 if mechanisms == "green-contexts" else None
    grants = [Grant(index, index % len(devices), process=process, sm_count=sms) for index in range(len(records))]
    occupants = [Occupant(pid, kind, GIB) for kind, pids in on_gpu.items() for pid in pids]
    return collect_evidence(strategy, devices, grants, records, occupants, daemons, cast(Any, sampled or {}))


def exited(*pids: int) -> list[dict[str, Any]]:
    """The records of programs that have exited."""
    return [program(pid) | {"measured_by": "exit"} for pid in pids]


def saw(kind: str, *pids: int) -> dict[int, dict[str, Any]]:
    """The sampler's processes: a worker of each of these processes, with that kind of context."""
    return {pid + 100: {"kind": kind, "memory": [], "ancestors": [pid, 1], "use": []} for pid in pids}


def case(*given: Any, **limits: Any) -> Callable[[], list[dict[str, Any]]]:
    """A function that collects that evidence."""
    return partial(evidence, *given, **limits)


def thread_on(first: int, seen: int, sm_count: int | None = None, uuid: str = "GPU-1") -> dict[str, Any]:
    """The record of a thread of process 1 whose kernels ran on that number of SMs, from `first`."""
    return view(1, uuid, sm_count=seen if sm_count is None else sm_count, sm_ids=[*range(first, first + seen)])


def broken(found: list[dict[str, Any]]) -> set[str]:
    """Names of the items that do not hold."""
    return {item["name"] for item in found if not item["holds"]}


ONE, TWO = [view(1)], [view(1), view(2)]
CONTEXTS, CLIENTS = "kinds of the tenants' contexts", "clients of the MPS server"
SHARE = "share of the SMs by the MPS server, percent"
SIZES = [Gpu("MIG-1", 16, 16 * GIB), Gpu("MIG-2", 32, 32 * GIB)]
ON_SIZES = [view(1, "MIG-1", sm_count=16), view(2, "MIG-2", sm_count=32)]
HALVES = [Gpu("MIG-1", 60, 70 * GIB), Gpu("MIG-2", 60, 70 * GIB)]
ON_HALVES = [view(pid, f"MIG-{1 + (pid - 1) % 2}", sm_count=60) for pid in (1, 2, 3)]
PROGRAMS, WORKERS = [program(1, 11), program(2, 21, 22)], [program(1, 11, 12), program(2, 21)]
EXTERNAL_SERVER = {"measured_by": "client", "view": None, "outside": None}
CASES: dict[str, tuple[Callable[[], list[dict[str, Any]]], set[str]]] = {
    "distinct contexts without MPS": (case("time-slicing", TWO, {"compute": [1, 2]}), set()),
    "a client of a server": (case("time-slicing", TWO, {"compute": [1], "mps": [2]}), {CONTEXTS}),
    "a context for graphics": (case("time-slicing", TWO, {"compute": [1], "graphics": [2]}), {CONTEXTS}),
    "programs that have exited": (case("time-slicing", exited(1, 2), {}, sampled=saw("compute", 1, 2)), set()),
    "a program that has exited and computed itself": (
        case("exclusive", exited(1), {}, sampled={1: {"kind": "compute", "memory": [], "ancestors": [9], "use": []}}),
        set(),
    ),
    "a program that has exited as a client": (case("exclusive", exited(1), {}, sampled=saw("mps", 1)), {CONTEXTS}),
    "programs that have exited under MPS": (
        case("mps", exited(1, 2), {}, [Daemon([])], sampled=saw("mps", 1, 2)),
        set(),
    ),
    "one that has exited outside of MPS": (
        case("mps", exited(1, 2), {}, [Daemon([])], sampled=saw("mps", 1) | saw("compute", 2)),
        {CONTEXTS, CLIENTS},
    ),
    "a tenant with a loop that only the sampler saw under MPS": (
        case(
            "mps",
            TWO,
            {"mps": [1, 2]},
            [Daemon([1])],
            sampled={2: {"kind": "mps", "memory": [], "ancestors": [], "use": []}},
        ),
        {CLIENTS},
    ),
    "a tenant that NVML does not see": (case("exclusive", ONE, {}), {CONTEXTS}),
    "a daemon next to time-slicing": (case("time-slicing", ONE, {"compute": [1]}, [Daemon([])]), {"our MPS daemons"}),
    "a tenant without a view": (case("exclusive", [{"view": None}], {"compute": [1]}), {"device", "SMs", CONTEXTS}),
    "one server with exactly the tenants": (case("mps", TWO, {"mps": [1, 2]}, [Daemon([1, 2])]), set()),
    "a client that is missing": (case("mps", TWO, {"mps": [1, 2]}, [Daemon([1])]), {CLIENTS}),
    "a client too many": (case("mps", TWO, {"mps": [1, 2]}, [Daemon([1, 2, 3])]), {CLIENTS}),
    "half the SMs": (case("mps", TWO, {"mps": [1, 2]}, [Daemon([1, 2], threads=50.0)]), {SHARE}),
    "no server": (case("mps", TWO, {"mps": [1, 2]}, [Daemon([], is_serving=False)]), {"MPS server"}),
    "no daemon": (case("mps", ONE, {"compute": [1]}), {"MPS server", CONTEXTS}),
    "a share of seven, rounded down": (
        case(
            "mps",
            [view(pid, sm_count=18) for pid in range(1, 8)],
            {"mps": list(range(1, 8))},
            [Daemon(list(range(1, 8)), threads=14.3)],
            threads="100/N",
        ),
        set(),
    ),
    "an instance each": (case("mig", ON_SIZES, {"compute": [1, 2]}, devices=SIZES), set()),
    "each other's instance": (case("mig", ON_SIZES[::-1], {"compute": [1, 2]}, devices=SIZES), {"device", "SMs"}),
    "a daemon for each instance": (
        case("mig/mps", ON_HALVES, {"mps": [1, 2, 3]}, [Daemon([1, 3]), Daemon([2])], HALVES),
        set(),
    ),
    "each other's daemon": (
        case("mig/mps", ON_HALVES, {"mps": [1, 2, 3]}, [Daemon([2]), Daemon([1, 3])], HALVES),
        {CLIENTS},
    ),
    "streams in one context": (case("streams", [view(1), view(1)], {"compute": [1]}), set()),
    "green contexts": (
        case("green-contexts", [thread_on(0, 40), thread_on(40, 40)], {"compute": [1]}, threads="100/N"),
        set(),
    ),
    "green contexts that overlap": (
        case("green-contexts", [thread_on(0, 40), thread_on(39, 40)], {"compute": [1]}, threads="100/N"),
        {"SMs of more than one tenant"},
    ),
    "green contexts of all SMs": (
        case("green-contexts", [thread_on(0, 132), thread_on(0, 132)], {"compute": [1]}, threads="100/N"),
        {"SMs of the green context", "SMs of more than one tenant"},
    ),
    "green contexts of exactly their share": (
        case("green-contexts", [thread_on(0, 44), thread_on(44, 44)], {"compute": [1]}, threads="100/N"),
        set(),
    ),
    "a green context that was not seen": (
        case("green-contexts", [thread_on(0, 40), view(1, sm_count=40)], {"compute": [1]}, threads="100/N"),
        {"SMs that its kernels ran on", "SMs of more than one tenant"},
    ),
    "a green context without a view": (
        case("green-contexts", [thread_on(0, 40), {"view": None}], {"compute": [1]}, threads="100/N"),
        {"device", "SMs of the green context", "SMs of more than one tenant", CONTEXTS},
    ),
    "green contexts of no SMs": (
        case("green-contexts", [thread_on(0, 0)] * 2, {"compute": [1]}, threads="100/N"),
        {"SMs of the green context", "SMs of more than one tenant"},
    ),
    "a green context on another GPU": (
        case("green-contexts", [thread_on(0, 40), thread_on(40, 40, uuid="GPU-2")], {"compute": [1]}, threads="100/N"),
        {"device"},
    ),
    "a green context of no SMs": (
        case("green-contexts", [thread_on(0, 40), thread_on(40, 0, 0)], {"compute": [1]}, threads="100/N"),
        {"SMs of the green context"},
    ),
    "a green context that its kernels leave": (
        case("green-contexts", [thread_on(0, 40), thread_on(40, 44, 40)], {"compute": [1]}, threads="100/N"),
        {"SMs that its kernels ran on"},
    ),
    "green contexts that nothing was seen of": (
        case("green-contexts", [view(1, sm_count=40)] * 2, {"compute": [1]}, threads="100/N"),
        {"SMs that its kernels ran on", "SMs of more than one tenant"},
    ),
    "streams in two": (case("streams", TWO, {"compute": [1, 2]}), {CONTEXTS}),
    "programs by whichever of their processes": (case("time-slicing", PROGRAMS, {"compute": [11, 22]}), set()),
    "a program that is not there": (
        case("time-slicing", PROGRAMS, {"compute": [11]}),
        {CONTEXTS, "processes of tenant 1 on the GPU"},
    ),
    "a program that was shown another GPU": (
        case("exclusive", [program(1, visible="GPU-2")], {"compute": [1]}),
        {"device by its environment"},
    ),
    "a program that was shown all GPUs": (
        case("exclusive", [program(1, visible=None)], {"compute": [1]}),
        {"device by its environment"},
    ),
    "a program as our client": (case("mps", [program(1, 11)], {"mps": [11]}, [Daemon([11])]), set()),
    "a program outside of it": (case("mps", [program(1, 12)], {"compute": [12]}, [Daemon([11])]), {CONTEXTS, CLIENTS}),
    "workers of one tenant": (case("mps", WORKERS, {"mps": [11, 12, 21]}, [Daemon([11, 12, 21])]), set()),
    "one more than these": (case("mps", WORKERS, {"mps": [11, 12, 21]}, [Daemon([11, 12, 21, 31])]), {CLIENTS}),
    "a worker outside": (case("mps", WORKERS, {"mps": [11, 21], "compute": [12]}, [Daemon([11, 21])]), {CONTEXTS}),
    "a server that runs elsewhere": (case("time-slicing", [view(1), EXTERNAL_SERVER], {"compute": [1]}), set()),
}


@pytest.mark.parametrize("collected, names", CASES.values(), ids=CASES.keys())
def test_evidence_fails_where_the_strategy_was_not_active(
    collected: Callable[[], list[dict[str, Any]]], names: set[str]
) -> None:
    assert broken(collected()) == names


def test_a_program_that_runs_without_the_gpu_contradicts_the_strategy_and_is_not_missing() -> None:
    found = CASES["a program that is not there"][0]()
    assert [item["observed"] for item in found if item["name"] == "processes of tenant 1 on the GPU"] == ["none"]


def test_evidence_names_no_process_and_its_source() -> None:
    found = CASES["distinct contexts without MPS"][0]()
    assert not any(isinstance(item["observed"], int) and item["observed"] in (1, 2) for item in found)
    assert {item["source"] for item in found} == {"tenant 0", "tenant 1", "node"}
    assert {item["source"] for item in CASES["programs by whichever of their processes"][0]()} == {"node"}


@pytest.mark.parametrize(
    "answer, changes, names",
    [
        ("35G", {}, set()),
        ("35840M", {}, set()),
        ("36700160K", {}, set()),
        *(
            (answer, {}, {"memory limit by the MPS server"})
            for answer in ("", "34G", "36G", "35839M", "35840", "all", "35.0G")
        ),
        *(("35G", {"sm_count": count}, {"SMs"}) for count in (132, 34, 16)),
        ("35G", {"memory_free_bytes": 36 * GIB}, {"free memory in bytes"}),
        *(("35G", {"over_limit_refused": seen}, {"allocation beyond the limit refused"}) for seen in (False, None)),
        ("35G", {"device": device_digest("GPU-2")}, {"device"}),
    ],
)
def test_limits_hold_in_tenants_and_at_the_daemon(answer: str, changes: dict[str, Any], names: set[str]) -> None:
    """Four tenants under a quarter of SMs and memory each; `changes` of the last one's view."""
    fair = {"sm_count": 32, "memory_free_bytes": 34 * GIB, "over_limit_refused": True}
    records = [view(pid) for pid in (1, 2, 3, 4)]
    for record, more in zip(records, ({}, {}, {}, changes), strict=True):
        record["view"] |= fair | more
    daemon = Daemon([1, 2, 3, 4], threads=25.0, memory=answer)
    found = evidence("mps", records, {"mps": [1, 2, 3, 4]}, [daemon], threads="100/N", memory="100/N")
    assert broken(found) == names


UNEQUAL = Strategy(
    name="own", mechanism=("mps",), thread_percent=(60.0, 20.0), memory_limit=("70Gi", "20Gi"), priority=(0, 1)
)


@pytest.mark.parametrize(
    "changes, started, names",
    [
        ({}, {}, set()),
        ({"sm_count": 78}, {}, {"SMs"}),
        ({"memory_free_bytes": 21 * GIB}, {}, {"free memory in bytes"}),
        ({"over_limit_refused": False}, {}, {"allocation beyond the limit refused"}),
        ({}, {22: {"CUDA_MPS_CLIENT_PRIORITY": "0"}}, {"MPS variables of tenant 1"}),
        ({}, {22: {}}, {"MPS variables of tenant 1"}),
    ],
)
def test_the_limits_of_each_tenant_are_proven(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], started: dict[int, dict[str, str]], names: set[str]
) -> None:
    """Two tenants, `changes` being of the second one's view, and `started` what processes were started with instead."""
    variables = [
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": share, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit} | {PRIORITY: priority}
        for share, limit, priority in (("60", "0=71680M", "0"), ("20", "0=20480M", "1"))
    ]
    seen = dict(enumerate(variables, 21)) | started
    monkeypatch.setattr(mps, "process_variables", lambda pid, names: seen[pid])
    grants = [Grant(index, 0, environment=own | {"OTHER": "1"}) for index, own in enumerate(variables)]
    first = view(21, sm_count=78, memory_free_bytes=69 * GIB, over_limit_refused=True)
    second = view(22, **{"sm_count": 26, "memory_free_bytes": 19 * GIB, "over_limit_refused": True} | changes)
    occupants = [Occupant(pid, "mps", GIB) for pid in (21, 22)]
    found = collect_evidence(UNEQUAL, [Gpu()], grants, [first, second], occupants, [Daemon([21, 22])])
    assert broken(found) == names
    clients = [item for item in found if item["name"].startswith("MPS variables of tenant")]
    assert [item["expected"] for item in clients] == variables
    assert {item["source"] for item in clients} == {"node"}


@pytest.mark.parametrize("second, has_limits", [({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60"}, True), ({}, False)])
def test_every_client_of_a_tenant_has_its_limits(
    monkeypatch: pytest.MonkeyPatch, second: dict[str, str], has_limits: bool
) -> None:
    """The first tenant is a server of two processes that are clients of MPS, started with these variables."""
    limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60"}
    seen = {21: limits, 22: second, 31: limits}
    monkeypatch.setattr(mps, "process_variables", lambda pid, names: seen[pid])
    strategy = Strategy(name="own", mechanism=("mps",), thread_percent=(60.0, 60.0), priority=(0, 1))
    grants = [Grant(index, 0, environment=limits) for index in range(2)]
    occupants = [Occupant(pid, "mps", GIB) for pid in seen]
    records = [program(21, 22), program(31)]
    found = collect_evidence(strategy, [Gpu()], grants, records, occupants, [Daemon([*seen])])
    (item,) = (each for each in found if each["name"] == "MPS variables of tenant 0")
    assert (item["holds"], item["observed"]) == (has_limits, second)


def test_a_tenant_that_is_no_client_has_no_proven_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "process_variables", lambda pid, names: {})
    grants = [Grant(index, 0, environment={}) for index in range(2)]
    found = collect_evidence(UNEQUAL, [Gpu()], grants, [view(21), view(22)], [], [Daemon([21])])
    limits = [item["holds"] for item in found if item["name"].startswith("MPS variables of tenant")]
    assert limits == [True, False]


@pytest.mark.parametrize("mechanism", ["time-slicing", "mps"])
def test_a_program_that_ended_before_it_was_sampled_gives_no_evidence(mechanism: str) -> None:
    """The missing observation excludes the cell and contradicts nothing."""
    daemons = [Daemon([])] if mechanism == "mps" else []
    found = evidence(mechanism, exited(1, 2), {}, daemons, sampled=saw("compute", 1))
    unseen = [item for item in found if not item["holds"]]
    assert {item["name"] for item in unseen} == {
        CONTEXTS,
        "processes of tenant 1 on the GPU",
        *([CLIENTS] if daemons else []),
    }
    assert [item["observed"] for item in unseen] == [None] * len(unseen)
