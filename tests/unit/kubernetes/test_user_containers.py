"""A pod with the user's container, its manifest and its overlay."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from unit.studies import study_with

from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.pods import manifest, program
from sharebench.measure.nodes.kubernetes.pods.manifest import Place, TenantPlan
from sharebench.measure.nodes.kubernetes.pods.overlay import apply_overlay, strategic_merge
from sharebench.model.config.load import ConfigError
from sharebench.model.spec import Spec

OWNER = {"metadata": {"uid": "the-uid"}}
NEEDS = PodNeeds(limits={"nvidia.com/gpu": "1"}, environment={"CUDA_MPS_PIPE_DIRECTORY": "/mps"})
DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": "llm"},
    "spec": {
        "replicas": 3,
        "template": {
            "metadata": {"labels": {"app": "llm"}},
            "spec": {
                "runtimeClassName": "nvidia",
                "tolerations": [{"key": "team", "operator": "Exists"}],
                "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
                "volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}],
                "containers": [
                    {"name": "logs", "image": "logs:1"},
                    {
                        "name": "vllm",
                        "image": "vllm:1",
                        "args": ["--port", "{port}", "--memory", "{fraction}"],
                        "ports": [{"containerPort": 9000}],
                        "env": [{"name": "HOME", "value": "/cache"}],
                        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}},
                        "volumeMounts": [{"name": "weights", "mountPath": "/weights"}],
                    },
                ],
            },
        },
    },
}


def spec_of(replicas: int = 2, options: dict[str, Any] | None = None, **workload: Any) -> tuple[Spec, Place]:
    entry = {"kind": "http", "request": {"path": "/get"}, **workload}
    entry = {key: value for key, value in entry.items() if value is not None}
    given = {"node": "kubernetes", "strategies": ["time-slicing"], "replicas": [replicas], "baseline": "none"}
    given |= {"workloads": ["web"], "workload_catalogue": {"web": entry}, "kubernetes": options or {}}
    study = study_with(given)
    return study.spec(study.cells[0]), Place("gpu-node", "abc", study.node_options())  # type: ignore[arg-type]


def pod(replicas: int = 2, options: dict[str, Any] | None = None, level: str = "restricted", **workload: Any) -> Json:
    spec, place = spec_of(replicas, options, **workload)
    load: Any = {"arrival": "closed", "seed": 1, "before": 0}
    return program.user_pod(TenantPlan(place, OWNER, spec, load, 1, "secret", None, 60), NEEDS, level)


def test_tenants_that_share_a_gpu_by_a_claim_each_share_its_memory() -> None:
    spec, place = spec_of(image="x:1", command=["serve", "{fraction}"], port=80, replicas=4)
    spec = spec.changed(strategy=spec.strategy.changed(claim_per="tenant"))
    plan = TenantPlan(place, OWNER, spec, cast(Any, {}), 1, "secret", None, 60)
    made = program.user_pod(plan, NEEDS, "restricted")
    assert container(made)["command"] == ["serve", "0.25"]


def ours() -> Json:
    """A pod of a tenant that runs our code."""
    _, place = spec_of(image="x:1")
    own = manifest.tenant_container(["python3"], NEEDS, "secret", place.options)
    return manifest.tenant_pod(place, OWNER, 1, [own], NEEDS, 60)


def container(made: Json, name: str = "tenant") -> Json:
    (found,) = (each for each in made["spec"]["containers"] if each["name"] == name)
    return dict(found)


def environment(made: Json) -> dict[str, str]:
    return {each["name"]: each["value"] for each in made["env"]}


def test_a_users_image_runs_unmodified() -> None:
    made = pod(image="server:1", port=80)
    own = container(made)
    assert own["image"] == "server:1"
    assert not {"command", "args", "volumeMounts", "ports"} & set(own), "the image's settings stay"
    assert environment(own) == {
        "HOME": "/tmp",
        "USER": "sharebench",
        "LOGNAME": "sharebench",
        "SHAREBENCH_GRANTED": "1",
        "SHAREBENCH_PORT": "80",
        "SHAREBENCH_INDEX": "1",
        "CUDA_MPS_PIPE_DIRECTORY": "/mps",
    }
    assert own["resources"]["limits"] == container(ours())["resources"]["limits"]
    assert "SHAREBENCH_TOKEN" not in environment(own), "only our client has it"
    plain = ours()
    plain["spec"] |= {"shareProcessNamespace": True, "containers": made["spec"]["containers"]}
    assert made == plain


def test_the_client_has_no_gpu_and_connects_over_localhost() -> None:
    made = pod(image="server:1", port=80, options={"client_image": "client:1"})
    client = container(made, "client")
    assert client["image"] == "client:1"
    assert "resources" not in client
    assert "CUDA_MPS_PIPE_DIRECTORY" not in environment(client)
    line = client["command"]
    given = dict(zip(line[2::2], line[3::2], strict=True))
    assert yaml.safe_load(given["--params"])["url"] == "http://127.0.0.1:80"
    assert (given["--device"], given["--port"], given["--program"]) == ("cpu", "18765", "server")
    assert client["securityContext"] == container(made)["securityContext"], "it must see the other's devices"


def test_a_batch_program_starts_after_the_clients_startup_probe() -> None:
    made = pod(kind="command", until="exit", request=None, image="batch:1")
    assert [each["name"] for each in made["spec"]["containers"]] == ["tenant"]
    (client,) = made["spec"]["initContainers"]
    assert (client["name"], client["restartPolicy"]) == ("client", "Always")
    assert client["startupProbe"]["httpGet"] == {"path": "/begun", "port": 18765}
    assert client["command"][client["command"].index("--program") + 1] == "exit"


@pytest.mark.parametrize("kind", ["loop", "server", "exit"])
def test_an_overlay_reaches_the_client_in_both_places(kind: str) -> None:
    added = {"name": "client", "env": [{"name": "KEY", "value": "k"}]}
    batch = {"kind": "command", "until": "exit", "request": None} if kind == "exit" else {}
    before = ours() if kind == "loop" else pod(image="server:1", **batch)
    made = apply_overlay(before, {"spec": {"containers": [added]}})
    containers = [*made["spec"]["containers"], *made["spec"].get("initContainers", ())]
    assert sorted(each["name"] for each in containers) == (["tenant"] if kind == "loop" else ["client", "tenant"])
    clients = [each for each in containers if each["name"] == "client"]
    assert all(environment(each).items() >= {"KEY": "k", "USER": "sharebench"}.items() for each in clients)


def test_a_command_replaces_the_entrypoint() -> None:
    made = container(pod(4, image="server:1", command=["serve", "--port={port}", "{index}/{replicas}", "{fraction}"]))
    assert made["command"] == ["serve", "--port=8080", "1/4", "0.25"]


def test_request_bodies_are_in_the_config_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.json").write_text("{}")
    spec, _ = spec_of(image="server:1", request={"method": "POST", "body_file": "ask.json"})
    workload: Any = spec.workload
    assert program.body_files(workload) == {"body-ask-json": b"{}"}
    client = container(pod(image="server:1", request={"method": "POST", "body_file": "ask.json"}), "client")
    assert "/sharebench/body-ask-json" in " ".join(client["command"])


def from_manifest(folder: Path, monkeypatch: pytest.MonkeyPatch, documents: list[Any], **more: Any) -> Json:
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(yaml.safe_dump_all(documents))
    return pod(manifest="mine.yaml", **more)


def test_a_users_manifest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"resources": {"cpu": "1", "memory": "8Gi"}}
    documents = [{"kind": "Service", "spec": {"ports": []}}, DEPLOYMENT]
    made = from_manifest(tmp_path, monkeypatch, documents, options=options)
    own = container(made)
    assert [each["name"] for each in made["spec"]["containers"]] == ["logs", "tenant", "client"]
    assert own["args"] == ["--port", "9000", "--memory", "0.5"]
    assert own["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}
    assert own["resources"]["requests"] == {"nvidia.com/gpu": "1"}, "kubernetes.resources is for built-in workloads"
    assert environment(own)["HOME"] == "/cache" and "USER" not in environment(own), "the user is the manifest's"
    assert own["volumeMounts"] == [{"name": "weights", "mountPath": "/weights"}]
    assert {each["name"] for each in made["spec"]["volumes"]} == {"weights", "sharebench-code"}
    assert (own["securityContext"]["runAsUser"], made["spec"]["securityContext"]["fsGroup"]) == (1000, 2000)
    assert made["spec"]["runtimeClassName"] == "nvidia"
    assert [each["key"] for each in made["spec"]["tolerations"]] == ["team", "sharebench/measuring", "nvidia.com/gpu"]
    assert made["metadata"]["labels"].items() >= {"app": "llm"}.items()
    assert made["metadata"]["name"] == "sharebench-abc-1"
    assert made["spec"]["restartPolicy"] == "Never"


def test_a_manifest_with_two_containers_for_the_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {"claims": [{"name": "mine"}]}
    containers = [{"name": name, "image": "x:1", "resources": claims} for name in ("server", "helper")]
    made = {"kind": "Pod", "spec": {"resourceClaims": [{"name": "mine"}], "containers": containers}}
    with pytest.raises(ConfigError, match=r"mine.yaml: one container is measured, and helper takes a GPU, too"):
        from_manifest(tmp_path, monkeypatch, [made])


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [("Pod", lambda made: made), ("CronJob", lambda made: {"spec": {"jobTemplate": {"spec": {"template": made}}}})],
)
def test_all_kinds_of_pod_templates_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, wrap: Any
) -> None:
    template = DEPLOYMENT["spec"]["template"]  # type: ignore[index]
    made = from_manifest(tmp_path, monkeypatch, [{**wrap(template), "kind": kind}], port=80)
    assert container(made)["image"] == "vllm:1"
    assert environment(container(made))["SHAREBENCH_PORT"] == "80"


def test_a_file_without_a_pod_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"mine.yaml has neither a Pod nor an object with a pod template"):
        from_manifest(tmp_path, monkeypatch, [{"kind": "Service", "spec": {}}, None])


GPU = {"limits": {"nvidia.com/gpu": 1}}


def user_object(kind: str = "Pod", name: str = "mine", **spec: Any) -> Json:
    """An object with a server that takes a GPU; a key of the container begins with `own_`."""
    own = {key.removeprefix("own_"): value for key, value in spec.items() if key.startswith("own_")}
    server = {"name": "server", "image": f"{name}:1", "ports": [{"containerPort": 8000}], "resources": GPU} | own
    rest = {key: value for key, value in spec.items() if not key.startswith("own_")}
    pod_spec = {"containers": [server, *rest.pop("more", [])], **rest}
    made = {"kind": kind, "metadata": {"name": name}}
    return made | ({"spec": pod_spec} if kind == "Pod" else {"spec": {"template": {"spec": pod_spec}}})


PLAIN = user_object("Deployment", "helper", own_resources={})


@pytest.mark.parametrize(
    "documents",
    [
        [user_object(), PLAIN],
        [PLAIN, user_object(), PLAIN],
        [{"kind": "List", "items": [PLAIN, user_object("StatefulSet")]}],
        [{"kind": "PodTemplate", "metadata": {"name": "t"}, "template": {"spec": user_object()["spec"]}}],
        [None, {"kind": "Service"}, user_object(own_resources={})],
        [user_object(more=[{"name": "logs", "image": "logs:1"}])],
    ],
)
def test_the_workload_that_takes_the_gpu_is_measured(
    documents: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert container(from_manifest(tmp_path, monkeypatch, documents))["image"] == "mine:1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("kind: Pod\nspec:\n  containers:\n  - image: {{ .Values.image }}\n", "is not YAML; render a chart first"),
        ("a: [\n", "is not YAML"),
        ("", "neither a Pod nor"),
        ("- 1\n--- x\n", "neither a Pod nor"),
        (yaml.safe_dump({"kind": "InferenceService", "spec": {"predictor": {"model": {}}}}), "neither a Pod nor"),
        (yaml.safe_dump_all([user_object(), user_object("Job", "b")]), "Pod mine, Job b take a GPU; leave one"),
        (yaml.safe_dump_all([PLAIN, PLAIN]), "Deployment helper, Deployment helper could be measured; leave one"),
        (
            yaml.safe_dump(user_object(own_resources={"limits": {"nvidia.com/gpu": "2"}})),
            "asks for 2 of nvidia.com/gpu",
        ),
        (yaml.safe_dump(user_object(hostNetwork=True)), "hostNetwork all tenants would have the same port"),
        (
            yaml.safe_dump(user_object(own_volumeMounts=[{"name": "data"}])),
            "server mounts data, and the pod has no such",
        ),
        (yaml.safe_dump(user_object(more=[{"name": "tenant"}])), "a second container has our name 'tenant'"),
        (yaml.safe_dump(user_object(initContainers=[{"name": "client"}])), "our name 'client'; give it another"),
    ],
)
def test_a_manifest_that_cannot_run_is_refused_before_the_cluster_is_touched(
    content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ConfigError, match=f"^config: workload_catalogue.web.manifest: mine.yaml.*{words}"):
        spec_of(manifest="mine.yaml")


def test_a_strategy_replaces_what_another_one_would_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "MINE")
    init = {
        "name": "warm",
        "image": "x:1",
        "resources": {"claims": [{"name": "gpu"}], "limits": {"cpu": 1} | GPU["limits"]},
    }
    affinity = {"podAntiAffinity": {"required": []}, "podAffinity": {"preferred": []}}
    given = user_object(
        own_env=[{"name": name, "value": "20"} for name in variables],
        initContainers=[init],
        resourceClaims=[{"name": "gpu"}],
        schedulerName="kai-scheduler",
        nodeName="gone",
        affinity=affinity,
        topologySpreadConstraints=[{"topologyKey": "kubernetes.io/hostname"}],
        volumes=[{"name": "code", "configMap": {"name": "train"}}],
    )
    given["metadata"] |= {"labels": {"kai.scheduler/queue": "q", "app": "a"}, "annotations": {"gpu-fraction": "0.5"}}
    made = from_manifest(tmp_path, monkeypatch, [given])
    assert environment(container(made)).keys() & set(variables) == {"MINE"}
    assert made["spec"]["initContainers"][0]["resources"] == {"limits": {"cpu": 1}}
    removed = {"resourceClaims", "schedulerName", "topologySpreadConstraints", "nodeName"}
    assert removed.isdisjoint(made["spec"])
    assert made["spec"]["affinity"].keys() == {"podAffinity", "nodeAffinity"}
    assert {each["name"] for each in made["spec"]["volumes"]} == {"code", "sharebench-code"}
    assert "kai.scheduler/queue" not in made["metadata"]["labels"] and made["metadata"]["labels"]["app"] == "a"
    assert "gpu-fraction" not in made["metadata"]["annotations"]


def test_an_overlay_cannot_set_what_the_strategy_sets() -> None:
    overlay = {"spec": {"containers": [{"name": "tenant", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]}]}}
    with pytest.raises(ConfigError, match=r"kubernetes\.pod: CUDA_VISIBLE_DEVICES is set by the strategies"):
        spec_of(image="x:1", options={"pod": overlay})


def test_processes_are_shared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = from_manifest(tmp_path, monkeypatch, [user_object(hostPID=True)])
    assert made["spec"]["hostPID"] and "shareProcessNamespace" not in made["spec"]


@pytest.mark.parametrize(
    ("pod_wide", "own"),
    [
        ({}, {"runAsUser": 0}),
        ({}, {"privileged": True}),
        ({"runAsUser": 0}, {}),
        ({"runAsNonRoot": False}, {}),
        ({"runAsUser": 0}, {"runAsUser": 1000}),
        ({}, {}),
    ],
)
def test_a_manifest_keeps_its_security_context(
    pod_wide: Json, own: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = user_object(securityContext=pod_wide, own_securityContext=own)
    made = from_manifest(tmp_path, monkeypatch, [given])
    security = made["spec"]["securityContext"]
    assert security.items() >= pod_wide.items() and security["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in made["spec"]["containers"]:
        context = security | each["securityContext"]
        assert context.items() >= (pod_wide | own).items()
        assert not (context.get("runAsUser") == 0 and context.get("runAsNonRoot"))
        assert not (context.get("privileged") and context.get("allowPrivilegeEscalation") is False)
    if not pod_wide and not own:
        assert security["runAsNonRoot"] and container(made)["securityContext"]["runAsUser"] == 65532


@pytest.mark.parametrize("level", ["privileged", "baseline", "restricted"])
def test_only_what_pod_security_demands_is_filled_in(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_security = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
    root_image = {"name": "fetch", "image": "busybox:1"}
    given = user_object(securityContext={"fsGroup": 5}, own_securityContext=own_security, initContainers=[root_image])
    made = from_manifest(tmp_path, monkeypatch, [given], level=level)
    spec, _ = spec_of(manifest="mine.yaml")
    added = program.additions(spec.workload, level)
    own = container(made)
    if level == "restricted":
        filled_in = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532}
        assert own["securityContext"] == own_security | filled_in
        (init,) = made["spec"]["initContainers"]
        assert init["securityContext"] == filled_in | {"capabilities": {"drop": ["ALL"]}}
        assert added and all(key in added for key in (*filled_in, "seccompProfile", "capabilities"))
        return
    assert made["spec"]["initContainers"] == [root_image]
    assert (own["securityContext"], made["spec"]["securityContext"], added) == (own_security, {"fsGroup": 5}, None)
    assert environment(own).keys().isdisjoint(manifest.USER_VARIABLES)
    assert container(made, "client")["securityContext"] == own_security, "it must see the other's devices"


BASE: Json = {
    "spec": {
        "nodeSelector": {"a": "1"},
        "tolerations": [{"key": "x"}],
        "containers": [{"name": "tenant", "image": "a", "env": [{"name": "A", "value": "1"}], "command": ["x", "y"]}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
}


@pytest.mark.parametrize(
    ("patch", "path", "expected"),
    [
        ({"nodeSelector": {"b": "2"}}, ["nodeSelector"], {"a": "1", "b": "2"}),
        ({"nodeSelector": None}, ["nodeSelector"], None),
        ({"tolerations": [{"key": "y"}]}, ["tolerations"], [{"key": "y"}]),
        ({"containers": [{"name": "side", "image": "s"}]}, ["containers", 1], {"name": "side", "image": "s"}),
        ({"containers": [{"name": "tenant", "command": ["z"]}]}, ["containers", 0, "command"], ["z"]),
        (
            {"containers": [{"name": "tenant", "env": [{"name": "B", "value": "2"}]}]},
            ["containers", 0, "env"],
            [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        ),
        ({"volumes": [{"name": "v", "$patch": "delete"}]}, ["volumes"], []),
        ({"runtimeClassName": "nvidia"}, ["runtimeClassName"], "nvidia"),
    ],
)
def test_a_strategic_merge(patch: Json, path: list[Any], expected: object) -> None:
    """The examples of Kubernetes' documentation (Update API Objects in Place Using kubectl patch)."""
    found = cast(Any, strategic_merge(BASE, {"spec": patch}))["spec"]
    for each in path:
        found = found.get(each) if isinstance(found, dict) else found[each]
    assert found == expected
