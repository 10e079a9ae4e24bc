"""The manifests grant what the driver needs, and no more."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.studies import study_of

from sharebench.nodes.kubernetes.preflight.rights import (
    FEATURES,
    FORWARDING,
    NEEDED,
    OPTIONAL,
    Right,
    needed,
)

FOLDER = Path(__file__).parents[3] / "config" / "cluster"
# A study that uses no feature.
NONE = study_of({"node": "kubernetes", "strategies": ["exclusive"]}).node_options()


def objects(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def granted(folder: str) -> Iterator[Right]:
    path = manifest(folder)
    for role in objects(path):
        place = "cluster" if role["kind"] == "ClusterRole" else path.split("/")[0]
        for rule in role.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(place, group, resource, verb)


def of_all(rights: Iterable[Right]) -> set[Right]:
    """The same on whatever object: not every manifest can name it."""
    return {right._replace(object="") for right in rights}


def manifest(folder: str) -> str:
    """The path of the rights of that folder, which is one of a feature or of all studies."""
    (path,) = (path for path in FOLDER.glob("**/rbac.yaml") if path.parent.name == folder)
    return str(path.relative_to(FOLDER))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_granted_what_it_needs(feature: str) -> None:
    assert set(granted(feature)) == of_all(FEATURES[feature].rights)


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_is_optional_has_a_manifest_and_no_study_needs_it(name: str) -> None:
    _, rights = OPTIONAL[name]
    assert set(granted(name)) == set(rights)
    assert not set(rights) & {*NEEDED, *FORWARDING, *(right for each in FEATURES.values() for right in each.rights)}


def test_pods_beside_the_privileged_ones_of_the_plugin_are_not_changed_by_default() -> None:
    assert {right.verb for right in NEEDED if right.where == "plugin" and right.resource == "pods"} == {"delete"}


def test_config_maps_of_the_plugins_namespace_are_named() -> None:
    rules = [
        rule
        for path in (FOLDER / "plugin").glob("**/rbac.yaml")
        for role in objects(str(path))
        for rule in role.get("rules", ())
        if rule["resources"] == ["configmaps"]
    ]
    assert len(rules) == 2
    assert all(rule["resourceNames"] for rule in rules)


def test_every_manifest_of_rights_is_used() -> None:
    names = {path.parent.name for path in FOLDER.glob("**/rbac.yaml")}
    assert names == {"tenants", "plugin", *FEATURES, *OPTIONAL}


def test_the_roles_are_what_is_needed() -> None:
    for folder, rights in needed(NONE, is_inside=False).items():
        assert set(granted(folder)) == of_all(rights)


def test_every_binding_names_the_account_and_its_role() -> None:
    for path in FOLDER.glob("**/rbac.yaml"):
        made = objects(str(path))
        roles = {(each["kind"], each["metadata"]["name"]) for each in made if "rules" in each}
        bindings = [each for each in made if "roleRef" in each]
        assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == roles
        for each in bindings:
            assert each["subjects"] == [{"kind": "ServiceAccount", "name": "sharebench"}], (
                "kustomize puts the namespace in"
            )


def test_what_is_not_used_is_not_asked_for() -> None:
    inside = needed(NONE, is_inside=True)
    assert {right for rights in inside.values() for right in rights} == set(NEEDED)
    outside = needed(NONE | {"drain": True}, is_inside=False)
    drain = FEATURES["drain"].rights
    assert {right for rights in outside.values() for right in rights} == {*NEEDED, *FORWARDING, *drain}


def test_the_driver_and_its_account_are_in_one_namespace() -> None:
    job = next(each for each in objects("driver.yaml") if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "sharebench"
    # a driver that was tried again by the Job would own nothing of what the first one left
    assert job["spec"]["backoffLimit"] == 0
    # the shell must hand its process on, or the end of the pod would not reach the pipeline
    assert "exec .venv/bin/snakemake" in pod["containers"][0]["command"][-1]
