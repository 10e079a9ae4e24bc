"""The rights that the driver needs, verb by verb, as the manifests in config/cluster grant them."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import yaml

from sharebench.core.files import REPOSITORY
from sharebench.measure.nodes.kubernetes.cluster.api import Api
from sharebench.model.config_nodes import ClusterOptions

MANIFESTS = REPOSITORY / "config" / "cluster"
# The namespace in the manifests.
OWN_NAMESPACE = "sharebench"


class Right(NamedTuple):
    """A verb on a resource; `where` is `cluster`, or the namespace of `plugin` or `tenants`.

    `object` is `node`, `configs` (the plugin's ConfigMap) or `mig-map` for a right on one object, "" for all objects.
    """

    where: str
    group: str
    resource: str
    verb: str
    object: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}"


# The object of rights on one object, by folder and resource. Rights to list and create are on all objects.
OBJECTS = {("tenants", "nodes"): "node", ("plugin", "configmaps"): "configs", ("mig", "configmaps"): "mig-map"}
# Folders with rights that only some studies need, and which options (`Study.node_options`) need them.
FEATURES: dict[str, Callable[[ClusterOptions], bool]] = {
    # Restoring a changed layout needs them too.
    "mig": lambda options: "mig" in options["may_change"],
    "pod-monitor": lambda options: options["has_pod_monitor"],
    "dra": lambda options: "dra" in options["accesses"],
    "service": lambda options: options["client"] == "service",
    "static": lambda options: "static" in options["accesses"],
}


def manifest_of(folder: str) -> Path:
    """The rbac.yaml of a folder anywhere in config/cluster."""
    (path,) = MANIFESTS.glob(f"**/{folder}/rbac.yaml")
    return path


def granted_rights(folder: str) -> Iterator[Right]:
    path = manifest_of(folder)
    for role in yaml.safe_load_all(path.read_text()):
        where = "cluster" if role["kind"] == "ClusterRole" else path.relative_to(MANIFESTS).parts[0]
        for rule in role.get("rules", ()):
            is_of_all = {"list", "create"} & set(rule["verbs"])
            for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                yield Right(where, group, resource, verb, "" if is_of_all else OBJECTS.get((folder, resource), ""))


def needed_rights(options: ClusterOptions, is_inside: bool) -> dict[str, list[Right]]:
    """The rights for a study with these options, by the folder of config/cluster that grants them.

    With `is_inside`, the driver reaches tenants by their addresses.
    """
    used = ("plugin", "tenants", *(name for name, is_used in FEATURES.items() if is_used(options)))
    unused = "pods/portforward" if is_inside else ""
    return {folder: [right for right in granted_rights(folder) if right.resource != unused] for folder in used}


def is_allowed(api: Api, right: Right, namespace: str | None, name: str | None = None) -> bool:
    """Whether we have a right, by SelfSubjectAccessReview; `name` is the name of the right's object."""
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
    attributes |= {key: value for key, value in (("namespace", namespace), ("name", name)) if value is not None}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    review = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(review["status"]["allowed"])
