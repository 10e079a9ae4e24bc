"""The manifests grant what the driver needs, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sharebench.nodes.kubernetes.rights import DRAINING, FORWARDING, NEEDED, Right, needed

FOLDER = Path(__file__).parents[3] / "config" / "cluster"


def objects(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def granted(name: str) -> Iterator[Right]:
    places = {"sharebench": "cluster", "sharebench-drain": "cluster"}
    places |= {"sharebench-tenants": "tenants", "sharebench-plugin": "plugin"}
    for role in objects(name):
        for rule in role.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(places[role["metadata"]["name"]], group, resource, verb)


def test_the_roles_are_what_is_needed() -> None:
    assert {*granted("rbac.yaml"), *granted("rbac-plugin.yaml")} == {*NEEDED, *FORWARDING}
    assert set(granted("rbac-drain.yaml")) == set(DRAINING)


def test_every_binding_names_the_account_and_its_role() -> None:
    for name in ("rbac.yaml", "rbac-plugin.yaml", "rbac-drain.yaml"):
        made = objects(name)
        roles = {(each["kind"], each["metadata"]["name"]) for each in made if "rules" in each}
        bindings = [each for each in made if "roleRef" in each]
        assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == roles
        for each in bindings:
            assert each["subjects"] == [{"kind": "ServiceAccount", "name": "sharebench", "namespace": "sharebench"}]


def test_what_is_not_used_is_not_asked_for() -> None:
    assert set(needed({"drain": False}, is_inside=True)) == set(NEEDED)
    assert set(needed({"drain": True}, is_inside=False)) == {*NEEDED, *FORWARDING, *DRAINING}


def test_the_driver_and_its_account_are_in_one_namespace() -> None:
    job = next(each for each in objects("driver.yaml") if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "sharebench"
    # a driver that was tried again by the Job would own nothing of what the first one left
    assert job["spec"]["backoffLimit"] == 0
    # the shell must hand its process on, or the end of the pod would not reach the pipeline
    assert "exec .venv/bin/snakemake" in pod["containers"][0]["command"][-1]
