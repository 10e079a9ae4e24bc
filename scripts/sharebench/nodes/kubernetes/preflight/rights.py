"""What the driver must be allowed to do, verb by verb; the manifests in config/cluster grant exactly this."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sharebench.core.study_config import ClusterOptions
from sharebench.nodes.kubernetes.cluster.api import Api

# That of the manifests in config/cluster.
OWN_NAMESPACE = "sharebench"


class Right(NamedTuple):
    """A verb on a resource: `where` is `cluster`, `plugin` (its namespace) or `tenants` (theirs).

    `object` is the only one meant: `node`, `configs` (the plugin's ConfigMap) or `mig-map`; "" for all.
    """

    where: str
    group: str
    resource: str
    verb: str
    object: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}"


def _rights(where: str, group: str, resource: str, *verbs: str, object: str = "") -> tuple[Right, ...]:
    return tuple(Right(where, group, resource, verb, object) for verb in verbs)


# Of a node's Lease in the tenants' namespace, where there is no device plugin whose namespace could have it.
LEASES = _rights("tenants", "coordination.k8s.io", "leases", "create", "delete", "get", "update")
# These and FORWARDING are granted by tenants/rbac.yaml and plugin/rbac.yaml.
NEEDED: tuple[Right, ...] = (
    *_rights("cluster", "", "nodes", "list"),
    *_rights("cluster", "", "nodes", "get", "patch", object="node"),
    *_rights("cluster", "", "pods", "list"),
    *_rights("cluster", "apps", "daemonsets", "list"),
    *_rights("plugin", "", "configmaps", "get", "patch", object="configs"),
    *_rights("plugin", "", "pods", "delete"),
    *_rights("plugin", "coordination.k8s.io", "leases", "create", "delete", "get", "update"),
    *_rights("tenants", "", "configmaps", "create", "delete", "list"),
    *_rights("tenants", "", "pods", "create", "delete", "list", "watch"),
    *_rights("tenants", "", "pods/log", "get"),
)
# From outside of the cluster; from 1.35 on the API server asks for `create`, before for `get`.
FORWARDING: tuple[Right, ...] = _rights("tenants", "", "pods/portforward", "create", "get")


@dataclass(frozen=True)
class Feature:
    """Rights that only some studies need, granted by a manifest of their own: NAME/rbac.yaml.

    `is_used` takes the node's options (`Study.node_options`).
    """

    is_used: Callable[[ClusterOptions], bool]
    rights: tuple[Right, ...]


FEATURES: dict[str, Feature] = {
    "drain": Feature(
        lambda options: bool(options["drain"]),
        (*_rights("cluster", "", "pods", "get"), *_rights("cluster", "", "pods/eviction", "create")),
    ),
    # Restoring needs them too, where a run has changed the layout.
    "mig": Feature(
        lambda options: "mig" in options["may_change"],
        _rights("plugin", "", "configmaps", "get", "patch", object="mig-map"),
    ),
    # The PodMonitor of a run.
    "pod-monitor": Feature(
        lambda options: bool(options["has_pod_monitor"]),
        _rights("tenants", "monitoring.coreos.com", "podmonitors", "create", "delete", "get"),
    ),
    "dra": Feature(
        lambda options: "dra" in options["accesses"],
        (
            *_rights("cluster", "resource.k8s.io", "resourceslices", "list"),
            *_rights("cluster", "apps", "deployments", "list"),
            *_rights("tenants", "resource.k8s.io", "resourceclaims", "create", "delete", "list"),
            *_rights("tenants", "resource.k8s.io", "resourceclaimtemplates", "create", "list"),
            *_rights("tenants", "", "events", "list"),
            *LEASES,
        ),
    ),
    # Schedulers that bring a device plugin of their own.
    "static": Feature(lambda options: "static" in options["accesses"], LEASES),
}


# What no study needs, and what it buys; granted by manifests of the same form.
OPTIONAL: dict[str, tuple[str, tuple[Right, ...]]] = {
    "hurry": (
        "new keys of a ConfigMap reach the plugin's pods at once, not after a minute and a half",
        _rights("plugin", "", "pods", "patch"),
    )
}


def needed(options: ClusterOptions, is_inside: bool) -> dict[str, tuple[Right, ...]]:
    """The rights for a study with these options, by the folder of config/cluster that grants them.

    `is_inside` says that tenants are reached by their addresses.
    """
    common = (*NEEDED, *(() if is_inside else FORWARDING))
    found = {
        "plugin": tuple(right for right in common if right.where == "plugin"),
        "tenants": tuple(right for right in common if right.where != "plugin"),
    }
    used = {name: feature for name, feature in FEATURES.items() if feature.is_used(options)}
    return found | {name: feature.rights for name, feature in used.items()}


def is_allowed(api: Api, right: Right, namespace: str | None, name: str | None = None) -> bool:
    """Whether the API server would let us, by SelfSubjectAccessReview; `name` is that of the right's object."""
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
    if namespace is not None:
        attributes["namespace"] = namespace
    if name is not None:
        attributes["name"] = name
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    review = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(review["status"]["allowed"])
