"""The manifests in tests/unit/golden are what the code makes; `make docs` rebuilds them."""

from __future__ import annotations

import yaml
from unit.kubernetes import manifests


def test_the_manifests_are_what_the_code_makes() -> None:
    found = {path.name: path.read_text() for path in manifests.FOLDER.glob("*.yaml")}
    wanted = manifests.written()
    differing = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
    assert differing == [], "run `make docs`, and look at what it changed"


def test_every_strategy_that_a_cluster_can_do_has_them() -> None:
    assert {"exclusive", "time-slicing", "mps", "hami", "volcano-vgpu", "kai-fraction"} <= set(manifests.names())


def test_a_difference_says_all_that_a_pod_has_else() -> None:
    pod = {"a": {"b.c/d": 1, "e": [1, 2]}, "list": [{"name": "x", "v": 1}, {"name": "y"}], "gone": {"f": 1}, "same": []}
    other = {"a": {"b.c/d": 2, "e": [1, 3]}, "list": [{"name": "y"}, {"name": "x", "v": 2}], "same": [], "new": {}}
    assert manifests.difference(other, pod) == {"a[b.c/d]": 2, "a.e[1]": 3, "list[x].v": 2, "new": {}, "gone.f": None}
    assert manifests.difference(pod, pod) == {}


def test_every_access_has_a_file_with_its_strategies() -> None:
    texts = manifests.written()
    assert set(texts) == {"pod.yaml", "device-plugin.yaml", "dra.yaml", "static.yaml"}
    named = {each["strategy"] for name in set(texts) - {"pod.yaml"} for each in yaml.safe_load_all(texts[name])}
    assert named == set(manifests.made())


def test_a_pod_of_every_tenant_and_a_state_of_the_node() -> None:
    made = manifests.manifests("time-slicing")
    assert [each["kind"] for each in made] == ["ConfigMap", "Node", "ConfigMap", "Pod", "Pod", "Pod"]
    assert made[1]["metadata"]["labels"] == {"nvidia.com/device-plugin.config": "sharebench-ts-3"}
    assert "sharebench-ts-3" in made[0]["data"]
