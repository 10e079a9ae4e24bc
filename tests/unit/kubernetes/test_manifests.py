"""The manifests in tests/unit/golden are what the code makes; `make docs` makes them again."""

from __future__ import annotations

from unit.kubernetes import manifests


def test_the_manifests_are_what_the_code_makes() -> None:
    found = {path.name: path.read_text() for path in manifests.FOLDER.glob("*.yaml")}
    wanted = manifests.written()
    differing = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
    assert differing == [], "run `make docs`, and look at what it changed"


def test_every_strategy_that_a_cluster_can_do_has_them() -> None:
    assert {"exclusive", "time-slicing", "mps", "hami", "volcano-vgpu", "kai-fraction"} <= set(manifests.names())


def test_a_pod_of_every_tenant_and_a_state_of_the_node() -> None:
    made = manifests.manifests("time-slicing")
    assert [each["kind"] for each in made] == ["ConfigMap", "Node", "ConfigMap", "Pod", "Pod", "Pod"]
    assert made[1]["metadata"]["labels"] == {"nvidia.com/device-plugin.config": "sharebench-ts-3"}
    assert "sharebench-ts-3" in made[0]["data"]
