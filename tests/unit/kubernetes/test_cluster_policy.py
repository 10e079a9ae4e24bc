"""The GPU operator's ClusterPolicy: what is patched, when, and the way back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import merged
from unit.kubernetes.test_installed import plugin

from sharebench.nodes.kubernetes import cluster_policy
from sharebench.nodes.kubernetes.api import ApiRefused
from sharebench.nodes.kubernetes.cluster_policy import CONFIG_MAP, PATH
from sharebench.nodes.kubernetes.installed import look

ALLOWED = {"may_change": ["clusterpolicy"]}
FORBIDDEN: dict[str, list[str]] = {"may_change": []}
NAMED = {"name": CONFIG_MAP, "default": "default"}


class Policies:
    """An API server with one ClusterPolicy, or none; `maps` are the ConfigMaps that were made and not removed."""

    def __init__(self, spec: dict[str, Any] | None) -> None:
        self.policy = spec is not None and {"metadata": {"name": "cluster-policy"}, "spec": copy.deepcopy(spec)}
        self.maps: dict[str, Any] = {}
        self.is_hidden = False

    def find(self, path: str) -> Any:
        if self.is_hidden:
            raise ApiRefused(403, "no")
        if path == PATH:
            return {"items": [self.policy] if self.policy else []}
        assert path == f"{PATH}/cluster-policy"
        return self.policy or None

    def create(self, path: str, body: dict[str, Any]) -> None:
        name = f"{path}/{body['metadata']['name']}"
        if name in self.maps:
            raise ApiRefused(409, "there is one")
        self.maps[name] = body

    def patch(self, path: str, body: dict[str, Any]) -> None:
        assert path == f"{PATH}/cluster-policy"
        self.policy = merged(self.policy, body)

    def delete(self, path: str) -> None:
        self.maps.pop(path, None)


def config(api: Policies) -> Any:
    assert api.policy
    return cluster_policy.config_of(api.policy)


@pytest.mark.parametrize(
    "spec",
    [
        {"devicePlugin": {"enabled": True}},
        {"devicePlugin": {"enabled": True, "config": {}}},
        {"devicePlugin": {"config": {"name": "", "default": ""}}},
        {"devicePlugin": {"config": {"default": "theirs"}}},
        {"devicePlugin": {}},
        {"driver": {"enabled": False}},
    ],
)
def test_it_comes_back_exactly(spec: dict[str, Any]) -> None:
    api: Any = Policies(spec)
    assert cluster_policy.refusal(api, ALLOWED, "gpu-operator") is None
    found = cluster_policy.find(api)
    assert found is not None
    note = cluster_policy.noted(found)
    cluster_policy.change(api, note, "gpu-operator")
    assert config(api) == NAMED
    (path,) = api.maps
    assert path == f"/api/v1/namespaces/gpu-operator/configmaps/{CONFIG_MAP}"
    cluster_policy.put_back(api, note)
    cluster_policy.remove_config_map(api, "gpu-operator")
    assert api.policy["spec"] == spec
    assert api.maps == {}


def test_one_that_somebody_else_has_set_meanwhile_is_left_alone() -> None:
    api: Any = Policies({"devicePlugin": {}})
    note = cluster_policy.noted(api.policy)
    cluster_policy.change(api, note, "gpu-operator")
    api.patch(f"{PATH}/cluster-policy", {"spec": {"devicePlugin": {"config": {"name": "theirs"}}}})
    cluster_policy.put_back(api, note)
    assert config(api)["name"] == "theirs"


def test_what_a_killed_run_left_is_taken_up() -> None:
    api: Any = Policies({"devicePlugin": {}})
    note = cluster_policy.noted(api.policy)
    cluster_policy.change(api, note, "gpu-operator")
    cluster_policy.change(api, note, "gpu-operator")
    assert len(api.maps) == 1


def test_it_is_left_alone_without_leave_and_the_line_says_what_to_type() -> None:
    api: Any = Policies({"devicePlugin": {}})
    refusal = cluster_policy.refusal(api, FORBIDDEN, "gpu-operator")
    assert refusal is not None
    assert "kubernetes: {may_change: [clusterpolicy]}" in refusal
    # A ClusterPolicy that names a ConfigMap which is not there keeps the plugin from starting, on all nodes.
    made, _, patched = refusal.partition(" && ")
    assert "kubectl create configmap sharebench-configs --namespace gpu-operator --from-literal=default=" in made
    assert patched.startswith("kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge")
    assert "\n" not in refusal


def test_one_that_names_a_config_map_is_never_patched() -> None:
    api: Any = Policies({"devicePlugin": {"config": {"name": "theirs"}}})
    assert "names the ConfigMap theirs" in str(cluster_policy.refusal(api, ALLOWED, "gpu-operator"))


def test_no_policy_and_none_that_we_may_see() -> None:
    api: Any = Policies(None)
    assert "there is no ClusterPolicy" in str(cluster_policy.refusal(api, ALLOWED, "gpu-operator"))
    api.is_hidden = True
    # Half of its rights are for the operator's namespace.
    assert "make cluster-install WITH=clusterpolicy PLUGIN_NAMESPACE=gpu-operator APPLY=1" in str(
        cluster_policy.refusal(api, ALLOWED, "gpu-operator")
    )


def test_the_operators_reaction_is_waited_for() -> None:
    theirs = look([plugin()], [])
    assert cluster_policy.awaited(theirs, is_ours=False) == []
    assert cluster_policy.awaited(theirs, is_ours=True)
    made = plugin()
    made["spec"]["template"]["spec"]["volumes"][1]["configMap"]["name"] = CONFIG_MAP
    ours = look([made], [])
    assert cluster_policy.awaited(ours, is_ours=True) == []
    assert cluster_policy.awaited(ours, is_ours=False)


def test_of_several_nodes_the_first_ones_note_counts() -> None:
    note = {"policy": {"name": "cluster-policy", "plugin": True, "config": None}}
    assert cluster_policy.note_of_others([None, {"policy": None}, note]) == note["policy"]
    assert cluster_policy.note_of_others([None]) is None
