"""Install what a study needs in a cluster: namespace and rights, and by name charts and further rights.

Without --apply nothing is changed: objects are checked by kubectl, and commands of Helm are only shown.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import Any

import yaml

from sharebench.nodes.kubernetes.cluster.nvidia_stack import naming_command
from sharebench.nodes.kubernetes.preflight.rights import FOLDER, OWN_NAMESPACE

ROOT = Path(__file__).resolve().parents[1]


def charts() -> dict[str, dict[str, str]]:
    """Each chart's release, chart, repository, version and namespace."""
    found: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "charts.yaml").read_text())
    return found


def features() -> dict[str, str]:
    """Features with rights of their own, and the folder that each is in: `tenants` or `plugin`."""
    return {path.parent.name: path.parts[-3] for path in sorted(FOLDER.glob("*/*/kustomization.yaml"))}


def _only(name: str, resource: str, names: list[str]) -> list[dict[str, Any]]:
    """The patch by which the rights of a role on single objects are for these alone; none without names."""
    patches = []
    for path in FOLDER.glob("*/rbac.yaml") if names else ():
        for role in (each for each in yaml.safe_load_all(path.read_text()) if each["metadata"]["name"] == name):
            for index, rule in enumerate(role.get("rules", ())):
                # To list and to create are rights on all objects.
                if resource in rule["resources"] and not {"list", "create"} & set(rule["verbs"]):
                    change = {"op": "add", "path": f"/rules/{index}/resourceNames", "value": names}
                    target = {"kind": role["kind"], "name": name}
                    patches.append({"target": target, "patch": json.dumps([change])})
    return patches


def kustomizations(given: argparse.Namespace, plugin_namespace: str, has_plugin: bool) -> dict[str, dict[str, Any]]:
    """What is applied, by folder: the base of config/cluster, with the features and names that were asked for."""
    parts: dict[str, dict[str, Any]] = {
        "tenants": {"namespace": given.namespace, "patches": _only("sharebench", "nodes", given.node)},
        "plugin": {
            "namespace": plugin_namespace,
            "patches": _only("sharebench-plugin", "configmaps", given.config_map),
        },
    }
    if not has_plugin:
        del parts["plugin"]
    made: dict[str, dict[str, Any]] = {".": {"resources": list(parts), "components": [str(FOLDER / "subjects")]}}
    for part, changes in parts.items():
        wanted = [
            str(FOLDER / part / name) for name, place in features().items() if place == part and name in given.names
        ]
        made[part] = {"resources": [str(FOLDER / part)], "components": wanted} | changes
    return made


def write(made: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write the kustomizations; their paths become relative, as kustomize asks for it."""
    for name, content in made.items():
        place = (folder / name).resolve()
        place.mkdir(exist_ok=True)
        for key in ("resources", "components"):
            content[key] = [path if "/" not in path else os.path.relpath(path, place) for path in content[key]]
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        text = yaml.safe_dump(head | {key: value for key, value in content.items() if value}, sort_keys=False)
        (place / "kustomization.yaml").write_text(text)


def of_chart(name: str) -> list[str]:
    """The command that installs a chart, or brings one that is there to the version and values of this repository."""
    chart = charts()[name]
    command = ["helm", "upgrade", "--install", chart["release"], chart["chart"], "--repo", chart["repository"]]
    command += ["--version", chart["version"], "--namespace", chart["namespace"], "--create-namespace"]
    # Values of one's own, such as those of the driver, stay.
    return [*command, "--reset-then-reuse-values", "--values", shown(f"{name}-values.yaml"), "--wait"]


def shown(name: str) -> str:
    """Path of a manifest as a person would type it in the repository."""
    return str((FOLDER / name).relative_to(ROOT))


class CannotSay(Exception):
    """A program could not answer; its own words."""


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        # kubectl logs every attempt before it names the error.
        raise CannotSay((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])
    return done.stdout


def unreachable() -> str | None:
    """Why there is no cluster to install in; None where one answers."""
    try:
        output("kubectl", "get", "--raw", "/version", "--request-timeout=10s")
    except CannotSay as reason:
        context = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
        name = context.stdout.strip() or "none"
        return f"no cluster reachable (current context: {name}): {reason}; set KUBECONFIG, or choose another context"
    return None


def policies() -> list[dict[str, Any]]:
    """The cluster's ClusterPolicies. Raises CannotSay."""
    kind = "clusterpolicies.nvidia.com"
    if not output("kubectl", "get", "customresourcedefinition", kind, "--ignore-not-found", "--output", "name"):
        return []
    found: list[dict[str, Any]] = json.loads(output("kubectl", "get", kind, "--output", "json"))["items"]
    return found


def operator_releases() -> list[dict[str, str]]:
    """Helm's releases of the GPU operator, whatever they are called. Raises CannotSay."""
    releases: list[dict[str, str]] = json.loads(output("helm", "list", "--all-namespaces", "--output", "json"))
    return [each for each in releases if each["chart"].startswith("gpu-operator-")]


def _names_config_map(policy: dict[str, Any]) -> bool:
    config = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("config") or {}
    return bool(config.get("name"))


def operator_refusal(namespace: str) -> str | None:
    """Why the GPU operator must not be installed: the cluster has one. None where it has none. Raises CannotSay.

    `namespace` is taken for the operator's where Helm does not know it.
    """
    found, releases = policies(), operator_releases() if which("helm") else []
    chart = charts()["operator"]
    others = [each for each in releases if (each["name"], each["namespace"]) != (chart["release"], chart["namespace"])]
    if not found and not others:
        return None
    namespace = releases[0]["namespace"] if releases else namespace
    names = [f"ClusterPolicy {each['metadata']['name']}" for each in found]
    names += [f"release {each['name']} of {each['chart']} in {each['namespace']}" for each in releases]
    lines = [
        f"the cluster has a GPU operator: {', '.join(names)}.",
        "WITH=operator would change its version and settings on all nodes, or make a second one. Leave it out:",
        f"  make cluster-install PLUGIN_NAMESPACE={namespace} APPLY=1",
    ]
    unnamed = next((each["metadata"]["name"] for each in found if not _names_config_map(each)), None)
    if unnamed is not None:
        lines += [
            "Its device plugin has no ConfigMap to switch by. Name one (the plugin restarts on all nodes):",
            f"  {naming_command(unnamed, namespace)}",
        ]
    return "\n".join(lines)


def exists(namespace: str) -> bool:
    """Whether the cluster has it; where kubectl cannot say, its next words will say more."""
    command = ["kubectl", "get", "namespace", namespace, "--ignore-not-found", "--output", "name"]
    done = subprocess.run(command, capture_output=True, text=True)
    return bool(done.stdout.strip()) or done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*charts(), *features()]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"also this: {', '.join(names)}")
    parser.add_argument("--apply", action="store_true", help="make it; without it, only show")
    parser.add_argument("--namespace", default=OWN_NAMESPACE, help="namespace of the tenants")
    parser.add_argument("--plugin-namespace", help="namespace of the device plugin or of the operator")
    parser.add_argument("--node", action="append", default=[], help="a node that may be changed; without any, all")
    parser.add_argument("--config-map", action="append", default=[], help="the device plugin's ConfigMap")
    given = parser.parse_args()
    for name in given.names:
        if name not in names:
            parser.error(f"there is no {name!r}: WITH takes {', '.join(names)}")
    if {"plugin", "operator"} <= set(given.names):
        parser.error("plugin and operator both bring a device plugin: name one of them")
    chosen = "operator" if "operator" in given.names else "plugin"
    namespace = given.plugin_namespace or charts()[chosen]["namespace"]
    # Charts come first, since rights are granted in the plugin's namespace.
    helm = [of_chart(name) for name in given.names if name in charts()]
    for program in ("kubectl", *(["helm"] if helm and given.apply else [])):
        if not which(program):
            parser.error(f"{program} is not on PATH: install it first")
    try:
        refusal = unreachable() or (operator_refusal(namespace) if "operator" in given.names else None)
    except CannotSay as silence:
        refusal = f"cannot see whether the cluster has a GPU operator: {silence}"
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 1
    for command in helm:
        print(f"{'' if given.apply else 'would run: '}{shlex.join(command)}", flush=True)
        if given.apply and subprocess.run(command, cwd=ROOT).returncode:
            return 1
    has_plugin = exists(namespace) or not given.apply
    if not has_plugin:
        print(f"left out: rights in namespace {namespace}, which does not exist (PLUGIN_NAMESPACE names another)")
    with tempfile.TemporaryDirectory() as folder:
        write(kustomizations(given, namespace, has_plugin), Path(folder))
        command = ["kubectl", "apply", *([] if given.apply else ["--dry-run=client"]), "--kustomize", folder]
        print(shlex.join(command), flush=True)
        return int(subprocess.run(command, cwd=ROOT).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
