"""Remove from a cluster what `make cluster-install` and runs have left there. Without --apply it is only shown.

Refused while a run owns a node, or a node is not restored. Charts stay, and a namespace that holds other things.
"""

import argparse
import json
import shlex
import subprocess
import sys
from typing import Any

import yaml

from cluster_install import ROOT, CannotSay, charts, output, unreachable
from sharebench.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.nodes.kubernetes.cluster.saved_state import ANNOTATION, TAINT
from sharebench.nodes.kubernetes.preflight.rights import FOLDER, OWN_NAMESPACE

# Our annotations and taint, and our keys in a ConfigMap and values of a node's labels.
PREFIX, KEYS = "sharebench/", "sharebench-"
# Deleted with a namespace, and no run makes them. Of ConfigMaps and accounts every namespace has some.
OF_OTHERS = (
    "persistentvolumeclaims,pods,services,secrets,"
    "deployments.apps,statefulsets.apps,daemonsets.apps,jobs.batch,cronjobs.batch"
)
Object = dict[str, Any]


def found(kinds: str, *arguments: str) -> list[Object]:
    """Objects of these kinds, in all namespaces. Raises CannotSay."""
    text = output("kubectl", "get", kinds, *(arguments or ["--all-namespaces"]), "--output", "json")
    objects: list[Object] = json.loads(text)["items"]
    return objects


def place(each: Object) -> list[str]:
    namespace = each["metadata"].get("namespace")
    return ["--namespace", namespace] if namespace else []


def called(each: Object) -> str:
    return f"{each['kind'].lower()}/{each['metadata']['name']}"


def in_use(nodes: list[Object], leases: list[Object]) -> list[str]:
    """A line for each run that owns a node, and for each node that is not as it was before a run."""
    lines = []
    for each in leases:
        holder, where = each["spec"].get("holderIdentity"), each["metadata"]["namespace"]
        if holder and each["metadata"]["name"].startswith(KEYS):
            removal = f"kubectl --namespace {where} delete {called(each)}"
            lines.append(
                f"run {holder} owns a node ({called(each)} in {where}): wait for its end; if it was killed, "
                f"`snakemake restore`, or where the node is gone, {removal}"
            )
    for each in nodes:
        if ANNOTATION in (each["metadata"].get("annotations") or {}):
            lines.append(
                f"{called(each)} is not restored: snakemake restore --config node=kubernetes, "
                "or docs/cluster/security.md, Undo without this tool"
            )
    return lines


def of_node(each: Object) -> list[list[str]]:
    meta, node = each["metadata"], each["metadata"]["name"]
    labels = [f"{key}-" for key, value in meta.get("labels", {}).items() if value.startswith(KEYS)]
    notes = [f"{key}-" for key in meta.get("annotations", {}) if key.startswith(PREFIX)]
    taints = [f"{TAINT}-"] if TAINT in {taint["key"] for taint in each["spec"].get("taints", ())} else []
    changes = {"label": labels, "annotate": notes, "taint": taints}
    return [["kubectl", verb, "node", node, *names] for verb, names in changes.items() if names]


def of_config_map(each: Object) -> list[list[str]]:
    """The command that removes our keys and annotations, where a ConfigMap that is not ours has some."""
    keys = dict.fromkeys(key for key in each.get("data", {}) if key.startswith(KEYS))
    notes = dict.fromkeys(key for key in each["metadata"].get("annotations", {}) if key.startswith(PREFIX))
    if OWNER_LABEL in each["metadata"].get("labels", {}) or not (keys or notes):
        return []
    patch = json.dumps({"data": keys, "metadata": {"annotations": notes}})
    return [["kubectl", "patch", *place(each), called(each), "--type", "merge", "--patch", patch]]


def deletion(each: Object) -> list[str]:
    return ["kubectl", "delete", *place(each), called(each), "--ignore-not-found"]


def of_rights(namespace: str) -> list[list[str]]:
    """Commands that remove roles, bindings and the account, by their names in config/cluster. Raises CannotSay."""
    made = [each for path in FOLDER.rglob("rbac.yaml") for each in yaml.safe_load_all(path.read_text()) if each]
    ours, kinds = {called(each) for each in made}, {each["kind"].lower() for each in made}
    there = [each for each in found(",".join(sorted(kinds))) if called(each) in ours]
    # Accounts of that name in other namespaces are somebody else's.
    return [
        deletion(each)
        for each in there
        if each["kind"] != "ServiceAccount" or each["metadata"]["namespace"] == namespace
    ]


def of_tenants(namespace: str) -> tuple[list[list[str]], list[str]]:
    """Commands that remove objects of cells, and the tenants' namespace; why that stays. Raises CannotSay."""
    commands = [deletion(each) for each in found("pods,configmaps", "--all-namespaces", "--selector", OWNER_LABEL)]
    if not output("kubectl", "get", "namespace", namespace, "--ignore-not-found", "--output", "name"):
        return commands, []
    others = [
        called(each)
        for each in found(OF_OTHERS, "--namespace", namespace)
        if OWNER_LABEL not in each["metadata"].get("labels", {})
    ]
    if others:
        return commands, [
            f"namespace {namespace} stays, since it holds {', '.join(others)}: kubectl delete namespace {namespace}"
        ]
    return [*commands, ["kubectl", "delete", "namespace", namespace]], []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apply", action="store_true", help="remove it; without it, only show")
    parser.add_argument("--namespace", default=OWN_NAMESPACE, help="namespace of the tenants")
    given = parser.parse_args()
    if refusal := unreachable():
        print(refusal, file=sys.stderr)
        return 1
    try:
        nodes = found("nodes")
        if users := in_use(nodes, found("leases.coordination.k8s.io")):
            print("\n".join(users), file=sys.stderr)
            return 1
        commands = [command for each in nodes for command in of_node(each)]
        commands += [command for each in found("configmaps") for command in of_config_map(each)]
        removed, notes = of_tenants(given.namespace)
        commands += [*of_rights(given.namespace), *removed]
    except CannotSay as reason:
        print(f"cannot see what there is to remove: {reason}", file=sys.stderr)
        return 1
    for command in commands:
        print(f"{'' if given.apply else 'would run: '}{shlex.join(command)}", flush=True)
        if given.apply and subprocess.run(command, cwd=ROOT).returncode:
            return 1
    releases = ", ".join(f"{chart['release']} in {chart['namespace']}" for chart in charts().values())
    notes.append(f"charts stay; `helm uninstall` removes one that is yours alone: {releases}")
    print("\n".join([*([] if commands else ["nothing is left to remove"]), *notes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
