"""A server whose client is in another pod, and reaches it through a Service."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from unit.kubernetes.test_pods import access_of
from unit.kubernetes.test_user_containers import NEEDS, OWNER, container, environment, spec_of

from sharebench.measure.cell.prometheus.procedure import ANNOTATIONS
from sharebench.measure.nodes.contract import Grant, NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.pod_monitor import pod_monitor
from sharebench.measure.nodes.kubernetes.pods import program
from sharebench.measure.nodes.kubernetes.pods.manifest import Place, TenantPlan
from sharebench.measure.nodes.kubernetes.pods.overlay import apply_overlay, client_part
from sharebench.measure.nodes.kubernetes.pods.pod import CellContext
from sharebench.measure.nodes.kubernetes.pods.served import ServedEndpoint, ServedPod
from sharebench.measure.nodes.kubernetes.pods.tenants import PodTenants
from sharebench.measure.nodes.kubernetes.preflight.rights import needed_rights
from sharebench.model.spec import Spec

SERVICE = {"client": "service"}
LOAD: Any = {"arrival": "closed", "seed": 1, "before": 0}
MADE = {"spec": {"clusterIP": "10.96.0.77", "ports": [{"port": 9000}]}}


def arguments(made: Json) -> dict[str, str]:
    line = container(made, "client")["command"]
    return dict(zip(line[2::2], line[3::2], strict=True))


def plan_of(spec: Spec, place: Place) -> TenantPlan:
    return TenantPlan(place, OWNER, spec, LOAD, 1, "secret", None, 60)


def client(made: Json = MADE, image: str | None = "server:1", manifest: str | None = None, **options: Any) -> Json:
    spec, place = spec_of(image=image, manifest=manifest, port=9000, options=SERVICE | options)
    return program.client_pod(plan_of(spec, place), made)


def test_the_client_is_in_a_pod_without_a_gpu_and_connects_to_the_service() -> None:
    made = client(client_image="client:1")
    (only,) = made["spec"]["containers"]
    assert (only["name"], only["image"]) == ("client", "client:1")
    assert not only.get("resources") and "resourceClaims" not in made["spec"]
    given = arguments(made)
    assert json.loads(given["--params"])["url"] == "http://10.96.0.77:9000"
    assert (given["--program"], given["--pid"]) == ("server", "0"), "it looks for no process of its own pod"
    assert made["metadata"]["name"] == "sharebench-abc-1-client"
    assert made["spec"]["affinity"], "on the node of its server, whose clock it shares"


def test_an_ipv6_address_is_in_brackets() -> None:
    made = client({"spec": {"clusterIP": "fd00::7", "ports": [{"port": 80}]}})
    assert json.loads(arguments(made)["--params"])["url"] == "http://[fd00::7]:80"


def test_the_observer_in_the_servers_pod_sends_no_load_and_only_this_pod_is_behind_the_service() -> None:
    spec, place = spec_of(image="server:1", port=9000, ready={"path": "/health"}, options=SERVICE)
    pod = program.user_pod(plan_of(spec, place), NEEDS, "restricted")
    given = arguments(pod)
    assert given["--program"] == "scrape"
    assert json.loads(given["--params"])["port"] == 0, "not even at the edges of a window"
    service = program.service(plan_of(spec, place))
    assert service["spec"]["ports"] == [{"port": 9000, "targetPort": 9000}]
    assert service["metadata"]["ownerReferences"][0]["uid"] == "the-uid", "it goes with the cell's ConfigMap"
    selector = service["spec"]["selector"].items()
    assert selector <= pod["metadata"]["labels"].items()
    assert not selector <= client()["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("options", "workload"),
    [({}, {"image": "x:1"}), (SERVICE, {"kind": "command", "image": "x:1", "request": None, "until": "exit"})],
)
def test_other_programs_keep_their_client_next_to_them(options: dict[str, Any], workload: dict[str, Any]) -> None:
    spec, place = spec_of(options=options, **workload)
    assert not program.is_served(place, spec.workloads[0])


def test_what_the_overlay_gives_the_client_it_has_in_its_own_pod() -> None:
    overlay = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "initContainers": [{"name": "fetch"}],
            "containers": [
                {"name": "tenant", "env": [{"name": "A", "value": "1"}]},
                {"name": "client", "env": [{"name": "KEY", "value": "2"}]},
            ],
        },
    }
    made = apply_overlay(client(), client_part(overlay))
    assert [each["name"] for each in made["spec"]["containers"]] == ["client"]
    assert environment(container(made, "client"))["KEY"] == "2"
    assert made["spec"]["imagePullSecrets"] and "initContainers" not in made["spec"]
    assert made["metadata"]["labels"]["team"] == "a"


def test_the_client_may_pull_from_the_registry_of_its_server(tmp_path: Path) -> None:
    spec = {"imagePullSecrets": [{"name": "registry"}], "containers": [{"name": "web", "image": "server:1"}]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"kind": "Pod", "spec": spec}))
    made = client(image=None, manifest=str(tmp_path / "mine.yaml"))
    assert made["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in client()["spec"]


def test_a_pod_monitor_selects_the_client_and_not_the_observer() -> None:
    spec, place = spec_of(image="server:1", port=9000, options=SERVICE)
    server = program.user_pod(plan_of(spec, place), NEEDS, "restricted")
    options: Any = {"scrape_seconds": 1, "labels": {}}
    selector = pod_monitor(place.labels[OWNER_LABEL], OWNER_LABEL, "a-run", options)["spec"]["selector"]
    (excluded,) = selector["matchExpressions"]
    assert excluded["operator"] == "DoesNotExist"
    for made, is_selected in ((server, False), (client(), True)):
        labels = made["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        assert (excluded["key"] not in labels) == is_selected


def test_what_only_the_server_mounts_or_claims_its_client_does_not_wait_for() -> None:
    volumes, claims = [[{"name": f"{what}-{whose}"} for whose in ("weights", "keys")] for what in ("v", "c")]
    tenant = {"name": "tenant", "volumeMounts": [{"name": "v-weights", "mountPath": "/w"}]}
    spec = {"containers": [tenant], "volumes": volumes, "resourceClaims": claims}
    given = client_part({"spec": spec})["spec"]
    assert not given["volumes"] and not given["resourceClaims"]
    own = {
        "name": "client",
        "volumeMounts": [{"name": "v-keys", "mountPath": "/k"}],
        "resources": {"claims": [{"name": "c-keys"}]},
    }
    given = client_part({"spec": spec | {"containers": [tenant, own]}})["spec"]
    assert (given["volumes"], given["resourceClaims"]) == ([{"name": "v-keys"}], [{"name": "c-keys"}])


class Taking:
    """A fake of `Api` that takes every object."""

    def create(self, _: str, body: Json) -> Json:
        return body | {"metadata": body["metadata"] | {"uid": "u"}, "spec": {**MADE["spec"], **body.get("spec", {})}}


@pytest.mark.parametrize(("options", "ports"), [(SERVICE, [None, "18765"]), ({}, ["18765"])])
def test_the_pod_with_the_metrics_has_the_annotations(options: dict[str, Any], ports: list[str | None]) -> None:
    spec, place = spec_of(image="server:1", port=9000, options=options)
    access: Any = access_of(Taking(), cell_objects=lambda _: [], pod_needs=lambda *_: NEEDS)
    access.cluster.__dict__ |= {"options": place.options, "pod_security": "restricted"}
    timeouts = {"start_seconds": 1, "record_seconds": 1}
    settings: Any = {"timeouts": timeouts, "loads": [LOAD] * 2, "pod_annotations": ANNOTATIONS}
    unit = PodTenants(access, "abc", spec, settings, "pod-ip").prepare([Grant(0, 0)])[0]
    given = [body["metadata"]["annotations"].get("prometheus.io/port") for body in unit.bodies]
    assert given == ports


def test_only_cells_with_a_service_depend_on_it() -> None:
    for options, expected in (({}, None), (SERVICE, "service")):
        spec, _ = spec_of(image="x:1", options=options)
        assert spec.node.options.get("client") == expected


def test_only_a_study_with_a_service_needs_the_right_to_make_one() -> None:
    for options, is_needed in (({}, False), (SERVICE, True)):
        _, place = spec_of(image="x:1", options=options)
        assert ("service" in needed_rights(place.options, is_inside=False)) == is_needed


class Observer:
    """A fake endpoint of the observer."""

    def __init__(self) -> None:
        self.windows: list[tuple[int, int]] = []

    def set_window(self, start_ns: int, end_ns: int) -> bool:
        self.windows.append((start_ns, end_ns))
        return True

    def record(self, *_: float) -> Json:
        return {"cpu": {"cpu_seconds": 2.0}, "memory_bytes": 7, "outside": {"pids": [9]}, "view": {"device": "d"}}


def test_a_record_has_the_latencies_of_the_client_and_what_the_observer_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = ServedEndpoint(cast(Any, None), 1, "secret")
    observer = Observer()
    endpoint.observer = cast(Any, observer)
    answers: dict[str, Any] = {"/window": (200, {}), "/record": (200, {"count": 5, "cpu": None, "startup": None})}
    monkeypatch.setattr(endpoint, "_call", lambda method, path, *_, **__: answers[path.partition("?")[0]])
    assert endpoint.set_window(1, 2)
    assert observer.windows == [(1, 2)]
    record = cast(Json, endpoint.record(1.0))
    assert (record["count"], record["memory_bytes"], record["view"]) == (5, 7, {"device": "d"})
    answers["/window"] = (409, {})
    assert not endpoint.set_window(1, 2)


class Watcher:
    has_listed = True

    def __init__(self, *pods: Json) -> None:
        self.pods = {each["metadata"]["name"]: each for each in pods}


def running(name: str, *containers: str, **state: Any) -> Json:
    states = [{"name": each, "state": state or {"running": {}}} for each in containers]
    return {"metadata": {"name": name}, "spec": {}, "status": {"containerStatuses": states, "podIP": f"ip-{name}"}}


def served(*pods: Json) -> ServedPod:
    spec, _ = spec_of(image="x:1", options=SERVICE)
    context = CellContext(spec, cast(Any, None), "a", "/pods", cast(Any, Watcher(*pods)), "pod-ip", "secret")
    bodies = [{"metadata": {"name": name}} for name in ("s", "s-client")]
    return ServedPod(context, Grant(0, 0), *bodies)


SERVER = running("s", "tenant", "client")


def test_both_pods_are_launched_and_the_clients_has_the_metrics() -> None:
    unit = served(SERVER, running("s-client", "client"))
    assert [each["metadata"]["name"] for each in unit.bodies] == ["s", "s-client"]
    assert unit.host == "ip-s-client"
    unit.refuse_unavailable()


@pytest.mark.parametrize(
    ("pods", "line"),
    [
        ([SERVER], "its client's pod: its pod is gone"),
        (
            [SERVER, running("s-client", "client", waiting={"reason": "ErrImagePull"})],
            "its client's pod: its client: ErrImagePull",
        ),
        ([running("s-client", "client")], "tenant 0: its pod is gone"),
    ],
)
def test_a_pod_that_cannot_run_is_named(pods: list[Json], line: str) -> None:
    with pytest.raises(NodeError, match=line):
        served(*pods).refuse_unavailable()


def test_the_client_is_waited_for_and_one_that_never_starts_is_no_fault_of_its_server() -> None:
    unit = served(SERVER, running("s-client", "client", waiting={"reason": "ContainerCreating"}))
    assert not unit.is_ready()
    with pytest.raises(NodeError, match="its pod did not start within its time"):
        unit.complaint()
