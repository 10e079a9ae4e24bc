"""The manifests grant what the driver needs, and no more."""

import re
from typing import Any

import yaml
from unit.studies import study_with

from sharebench.measure.nodes.kubernetes.preflight.rights import FEATURES, MANIFESTS, granted_rights, needed_rights

# A study that uses no feature.
NONE = study_with({"node": "kubernetes", "strategies": ["exclusive"]}).node_options()


def objects(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((MANIFESTS / name).read_text()) if each]


def test_by_default_pods_in_the_plugins_namespace_may_only_be_deleted() -> None:
    assert {right.verb for right in granted_rights("plugin") if right.resource == "pods"} == {"delete"}


def test_config_maps_of_the_plugins_namespace_are_named() -> None:
    rules = [
        rule
        for path in (MANIFESTS / "plugin").glob("**/rbac.yaml")
        for role in objects(str(path))
        for rule in role.get("rules", ())
        if rule["resources"] == ["configmaps"]
    ]
    assert len(rules) == 2
    assert all(rule["resourceNames"] for rule in rules)


def test_every_rbac_manifest_is_used() -> None:
    names = {path.parent.name for path in MANIFESTS.glob("**/rbac.yaml")}
    assert names == {"tenants", "plugin", *FEATURES, "hurry"}


def test_no_kustomization_makes_a_namespace() -> None:
    """With a team's own namespace it would relabel that, and `kubectl delete -k` would delete it with all in it."""
    kinds = {
        each["kind"]
        for path in MANIFESTS.glob("**/kustomization.yaml")
        for name in objects(str(path))[0]["resources"]
        for each in objects(str(path.parent / name))
    }
    assert "ServiceAccount" in kinds and "Namespace" not in kinds


def test_every_binding_names_the_account_and_its_role() -> None:
    for path in MANIFESTS.glob("**/rbac.yaml"):
        made = objects(str(path))
        roles = {(each["kind"], each["metadata"]["name"]) for each in made if "rules" in each}
        bindings = [each for each in made if "roleRef" in each]
        assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == roles
        for each in bindings:
            assert each["subjects"] == [{"kind": "ServiceAccount", "name": "sharebench", "namespace": "sharebench"}]


def test_the_rights_that_documents_narrow_are_on_one_object() -> None:
    """Patches refer to a rule by its index."""
    text = (MANIFESTS.parents[1] / "docs/cluster/install.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(namespace:.*?)```", text, re.DOTALL)]
    narrowed = set()
    for patch in (patch for block in blocks for patch in block["patches"]):
        for change in yaml.safe_load(patch["patch"]):
            if change["path"].endswith("/resourceNames"):
                made = [*objects("tenants/rbac.yaml"), *objects("plugin/rbac.yaml")]
                (role,) = [each for each in made if patch["target"].items() <= (each | each["metadata"]).items()]
                rule = role["rules"][int(change["path"].split("/")[2])]
                narrowed.add((*rule["resources"], *rule["verbs"]))
    assert narrowed == {("nodes", "get", "patch"), ("configmaps", "get", "patch")}


def test_rights_of_unused_features_are_not_needed() -> None:
    assert set(needed_rights(NONE, is_inside=True)) == {"plugin", "tenants"}
    assert set(needed_rights(NONE | {"may_change": ["mig"]}, is_inside=True)) == {"plugin", "tenants", "mig"}
    inside, outside = (set(needed_rights(NONE, is_inside)["tenants"]) for is_inside in (True, False))
    assert {str(right) for right in outside - inside} == {"create pods/portforward", "get pods/portforward"}


def test_the_driver_and_its_account_are_in_one_namespace() -> None:
    job = next(each for each in objects("driver.yaml") if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "sharebench"
    # a driver restarted by the Job would not own the objects of the first one
    assert job["spec"]["backoffLimit"] == 0
    # without exec, the signal that ends the pod would not reach the pipeline
    assert "exec .venv/bin/snakemake" in pod["containers"][0]["command"][-1]
