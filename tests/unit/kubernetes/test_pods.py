"""Tenants as pods, without a cluster."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from unit import factories
from unit.kubernetes.test_nvidia_stack import pod as foreign_pod
from unit.studies import config_with, study_with

from sharebench.measure.nodes.contract import Grant, NodeError, TenantsFailed
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster import api as api_module
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.pods import status as pod_status
from sharebench.measure.nodes.kubernetes.pods import tenants as tenants_module
from sharebench.measure.nodes.kubernetes.pods import watch
from sharebench.measure.nodes.kubernetes.pods.pod import TenantPod
from sharebench.measure.nodes.kubernetes.pods.tenants import POD_LIFETIME_MARGIN_SECONDS, PodTenants
from sharebench.measure.nodes.tenants import endpoint as endpoint_module
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.model.config.load import load

OPTIONS = load(config_with({"node": "kubernetes", "strategies": ["exclusive"]}))["kubernetes"]
# No test waits for it.
SECONDS = 300.0
RUNNING = {"containerStatuses": [{"name": "tenant", "state": {"running": {}}}]}


def pod(index: int, **status: Any) -> Json:
    return {"metadata": {"name": f"sharebench-abc-{index}"}, "spec": {}, "status": status or RUNNING}


class OnePodList:
    """A fake of `Api`: a collection with these pods and events, after which a watch stays open.

    An exception among the events is raised, by the first watch only.
    """

    def __init__(self, pods: list[Json], *events: Json | Exception) -> None:
        self._pods, self._events = pods, list(events)
        self.asked: list[str] = []
        self.over = threading.Event()
        self.log: str | None = None

    def get(self, path: str, **query: Any) -> Json:
        return {"items": self._pods, "metadata": {"resourceVersion": "7"}}

    def delete(self, path: str, **query: Any) -> None:
        """Delete nothing."""

    def watch(self, path: str, version: str, **query: Any) -> Iterator[Json]:
        assert version == "7", "from the listed version on, so that no event is missed"
        while self._events:
            event, *self._events = self._events
            if isinstance(event, Exception):
                raise event
            yield event
        self.over.wait(SECONDS)

    def get_text(self, path: str, **query: Any) -> str:
        self.asked.append(path)
        if self.log is None:
            raise NodeError("away")
        return self.log


def access_of(api: Any, **more: Any) -> Any:
    """An access to the node of a cluster with this API."""
    cluster = Cluster(OPTIONS | {"node": "gpu-node"}, lambda *_: None)  # type: ignore[arg-type]
    cluster.__dict__ |= {"api": api, "name": "gpu-node"}
    return SimpleNamespace(cluster=cluster, **more)


Make = Callable[..., PodTenants]


@pytest.fixture
def make() -> Iterator[Make]:
    opened: list[OnePodList] = []

    def made(count: int, api: OnePodList) -> PodTenants:
        opened.append(api)
        timeouts = {"start_seconds": SECONDS, "record_seconds": 1}
        settings: Any = {"timeouts": timeouts, "loads": [{}] * count}
        tenants = PodTenants(access_of(api), "abc", factories.spec({}, replicas=9), settings, "pod-ip")
        tenants.units = [TenantPod(tenants.context, Grant(index, 0), pod(index)) for index in range(count)]
        tenants._deadline = time.monotonic() + SECONDS
        tenants.watcher.start()
        with tenants.watcher.changed:
            assert tenants.watcher.changed.wait_for(lambda: tenants.watcher.has_listed, SECONDS)
        return tenants

    yield made
    for api in opened:
        api.over.set()


def until_refused(tenants: PodTenants) -> str:
    """The message of the failure, once the watch has delivered the events."""
    for _ in range(15_000):
        try:
            tenants.refuse_unavailable()
        except NodeError as failure:
            return str(failure)
        tenants.pause(0.02)
    return "never"


class LostAnswers:
    """A fake of `Api` that creates objects, but answers that they exist already, as to a repeated call."""

    def __init__(self) -> None:
        self.made: dict[str, Json] = {}

    def create(self, path: str, body: Json) -> Json:
        uid = {"uid": f"uid-{len(self.made)}"}
        self.made.setdefault(f"{path}/{body['metadata']['name']}", body | {"metadata": body["metadata"] | uid})
        raise ApiRefused(409, f"{body['metadata']['name']} already exists")

    def get(self, path: str, **query: Any) -> Json:
        _, _, name = query.get("fieldSelector", "").partition("metadata.name=")
        items = [each for key, each in self.made.items() if key.startswith(path) and name in key]
        return {"items": items, "metadata": {"resourceVersion": "7"}}


def started(api: LostAnswers, monkeypatch: pytest.MonkeyPatch, **workload: Any) -> PodTenants:
    monkeypatch.setattr("sharebench.measure.nodes.kubernetes.pods.tenants.PodWatcher.start", lambda watcher: None)
    cells = study_with({"node": "kubernetes", "strategies": ["exclusive"]})
    spec = cells.spec(cells.cells[0])
    spec = spec.changed(workload=spec.workload.changed(**workload), replicas=2)
    settings: Any = {"timeouts": {"start_seconds": 1, "record_seconds": 1}, "loads": [{"arrival": "closed"}] * 2}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "gpu"}}
    access = access_of(api, cell_objects=lambda _: [claim], pod_needs=lambda *_: PodNeeds())
    tenants = PodTenants(access, "abc", spec, settings, "pod-ip")
    tenants.start([Grant(0, 0), Grant(1, 0)])
    return tenants


def test_objects_created_by_a_call_without_an_answer_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    api = LostAnswers()
    started(api, monkeypatch)
    assert [each["kind"] for each in api.made.values()][:2] == ["ConfigMap", "ResourceClaim"]
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in list(api.made.values())[1:]]
    assert owners == ["uid-0"] * 3, "existing objects belong to the existing ConfigMap"


@pytest.mark.parametrize("windows", [1, 3])
def test_pods_live_long_enough_for_all_loads_of_a_sweep(monkeypatch: pytest.MonkeyPatch, windows: int) -> None:
    tenants = started(LostAnswers(), monkeypatch)
    tenants.windows = windows
    cell_seconds = 1 + tenants.spec.window_seconds + 1
    seconds = tenants.build_pod({"metadata": {"uid": "1"}}, Grant(0, 0))["spec"]["activeDeadlineSeconds"]
    assert seconds == int(2 * windows * cell_seconds) + POD_LIFETIME_MARGIN_SECONDS


def test_objects_of_an_earlier_start_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    api = LostAnswers()
    started(api, monkeypatch)
    config_map = next(iter(api.made.values()))
    config_map["metadata"]["uid"] = "of a later start"
    with pytest.raises(NodeError, match="gpu already exists"):
        started(api, monkeypatch)


def test_staggered_tenants_start_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    api = LostAnswers()
    tenants = started(api, monkeypatch, start="staggered")
    assert [unit.name for unit in tenants.units] == ["sharebench-abc-0"]
    assert [outcome["status"] for outcome in tenants.outcomes()] == ["ok", "ok"]
    tenants._start_next()
    assert [unit.name for unit in tenants.units] == ["sharebench-abc-0", "sharebench-abc-1"]
    assert sum(each["kind"] == "Pod" for each in api.made.values()) == 2


def test_a_tenant_without_room_names_the_foreign_pods(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_status, "UNSCHEDULABLE_GRACE_SECONDS", 0.0)
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    tenant = pod(0, phase="Pending", conditions=[nowhere]) | {"spec": {"containers": []}}
    said = until_refused(make(1, OnePodList([tenant, foreign_pod("training")])))
    assert said.startswith(f"tenant 0: Unschedulable: {message}; foreign GPU pods run on the node: team/training;")


def test_an_init_container_that_fails_ends_the_wait_at_once_with_what_it_printed(make: Make) -> None:
    api = OnePodList([])
    tenants = make(1, api)
    api.log = "connecting\nno such bucket\n"
    failed = pod(0, phase="Failed", initContainerStatuses=[{"name": "get", "state": {"terminated": {"exitCode": 4}}}])
    tenants.watcher.pods = {failed["metadata"]["name"]: failed | {"spec": {"initContainers": [{"name": "get"}]}}}
    began = time.monotonic()
    with pytest.raises(TenantsFailed):
        tenants.wait_ready()
    assert time.monotonic() - began < SECONDS
    (outcome,) = tenants.outcomes()
    assert (outcome["status"], outcome["exit"]) == (
        "crashed",
        {
            "code": 4,
            "reason": "its init container get ended by itself with exit code 4: no such bucket",
            "log_tail": api.log,
        },
    )


@pytest.mark.parametrize("count", [1, 2])
def test_deleted_pods_are_noticed_even_when_none_is_left(make: Make, count: int) -> None:
    """A pod that never ran disappears without a trace."""
    there = [pod(index) for index in range(count)]
    tenants = make(count, OnePodList(there, *({"type": "DELETED", "object": each} for each in there)))
    assert until_refused(tenants) == "tenant 0: its pod is gone; someone deleted it"


def test_a_pods_start_time_ends_when_its_code_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both times are by the node's clock, which is 1000 s ahead of the driver's here."""
    tenants = make(1, OnePodList([pod(0)]))
    endpoint = HttpEndpoint(8000, "token")
    (unit,) = tenants.units
    # A round trip takes no time, or the offset would be as inexact as this machine is slow.
    now_ns, ahead_ns = 500 * 10**9, 1000 * 10**9
    monkeypatch.setattr(endpoint_module, "time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    unit.connected, unit.created_seconds = [endpoint], 495.0
    first_line_ns = 498 * 10**9 + ahead_ns
    startup = {"process_seconds": 0.0}

    def call(self: Any, method: str, path: str, *_: Any, **__: Any) -> tuple[int, Json]:
        if path == "/clock":
            times = {"monotonic_ns": now_ns + ahead_ns, "realtime_ns": 0, "first_line_ns": first_line_ns}
            return 200, {"boot_id": "this", **times}
        return 200, {"startup": startup}

    monkeypatch.setattr(HttpEndpoint, "_call", call)
    tenants._align_clocks()
    assert endpoint.record(1.0)["startup"] == {"process_seconds": pytest.approx(3.0)}


@pytest.mark.parametrize("ends", [True, False])
def test_a_tenant_ends_when_its_connection_does(make: Make, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    tenants = make(2, OnePodList([pod(0), pod(1)]))
    (alive, kept), (dead, cut) = socket.socketpair(), socket.socketpair()
    for unit, end in zip(tenants.units, (kept, cut), strict=True):
        unit.connected = cast(Any, [SimpleNamespace(connection=end)])
    dead.close()
    killed = {"containerStatuses": [{"name": "tenant", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]}

    def told(seconds: float) -> None:
        """The kubelet reports the end long after the window."""
        if ends:
            tenants.watcher.pods = {each["metadata"]["name"]: each for each in (pod(0), pod(1, **killed))}

    monkeypatch.setattr(tenants, "pause", told)
    monkeypatch.setattr(tenants_module, "KUBELET_REPORT_SECONDS", SECONDS if ends else 0.0)
    # A clock of looks: on a busy machine half a second may pass without one.
    looks = itertools.count(0, 50_000_000)
    monkeypatch.setattr(tenants, "now_ns", lambda: next(looks))
    until_ns = 500_000_000
    ended = tenants.watch_until(until_ns)
    assert next(looks) > until_ns, "it waits even if a tenant ends"
    assert list(ended) == ([1] if ends else []), "a connection may break while its tenant runs"
    assert all(at_ns < until_ns for at_ns in ended.values())
    for each in (alive, kept, cut):
        each.close()


@pytest.mark.parametrize("broken", [ConnectionError("503"), ValueError("half a line"), {"type": "ERROR", "object": {}}])
def test_a_broken_watch_restarts_from_a_new_list(make: Make, monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    monkeypatch.setattr(api_module, "FIRST_PAUSE_SECONDS", 0.001)
    later = pod(0, phase="Failed", reason="Evicted", message="by a person")
    events = [*[broken] * 5, {"type": "MODIFIED", "object": later}]
    assert until_refused(make(1, OnePodList([pod(0)], *events))) == "tenant 0: Evicted: by a person"


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (ApiRefused(403, "not allowed: watch pods"), "not allowed: watch pods"),
        (RuntimeError("unforeseen"), "the pods cannot be watched: RuntimeError: unforeseen"),
    ],
)
def test_a_watch_that_fails_is_reported(make: Make, failure: Exception, line: str) -> None:
    assert until_refused(make(1, OnePodList([pod(0)], failure))) == line


def test_pods_that_cannot_be_removed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POD_REMOVAL_SECONDS", 0.0)
    api: Any = OnePodList([pod(0), pod(1)])
    with pytest.raises(NodeError, match="2 of our pods did not go within 0 s"):
        watch.sweep(api, "sharebench", "a=b")
