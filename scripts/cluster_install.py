"""Install what a study needs in a cluster: namespace and rights, and by name charts and further rights.

Without --apply nothing is changed: objects are checked by kubectl, and commands of Helm are only shown.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Any

import yaml

from sharebench.nodes.kubernetes.cluster.nvidia_stack import naming_command

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "config" / "cluster"


def charts() -> dict[str, dict[str, str]]:
    """Each chart's release, chart, repository, version and namespace."""
    found: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "charts.yaml").read_text())
    return found


def further_rights() -> list[str]:
    """Features whose rights have a manifest of their own."""
    return sorted(path.stem.removeprefix("rbac-") for path in FOLDER.glob("rbac-*.yaml") if path.stem != "rbac-plugin")


def narrowed(name: str, names: Mapping[str, list[str]]) -> str | None:
    """Text of a manifest whose rights on single objects are for these alone, by resource; None without a change."""
    documents = [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]
    changed = False
    for rule in (rule for each in documents for rule in each.get("rules", ())):
        wanted = [name for resource in rule["resources"] for name in names.get(resource, ())]
        # To list and to create are rights on all objects.
        if wanted and not {"list", "create"} & set(rule["verbs"]):
            rule["resourceNames"], changed = wanted, True
    return yaml.safe_dump_all(documents, sort_keys=False) if changed else None


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


def place(name: str, plugin_namespace: str) -> list[str]:
    """Where a manifest of rights goes: one for the plugin's namespace names none, which is not the same everywhere."""
    made = [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]
    is_open = any(each["kind"] in ("Role", "RoleBinding") and "namespace" not in each["metadata"] for each in made)
    return ["--namespace", plugin_namespace] if is_open else []


class CannotSay(Exception):
    """A program could not answer; its own words."""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        # kubectl logs every attempt before it names the error.
        raise CannotSay((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])
    return done.stdout


def unreachable() -> str | None:
    """Why there is no cluster to install in; None where one answers."""
    try:
        _output("kubectl", "get", "--raw", "/version", "--request-timeout=10s")
    except CannotSay as reason:
        context = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
        name = context.stdout.strip() or "none"
        return f"no cluster reachable (current context: {name}): {reason}; set KUBECONFIG, or choose another context"
    return None


def policies() -> list[dict[str, Any]]:
    """The cluster's ClusterPolicies. Raises CannotSay."""
    kind = "clusterpolicies.nvidia.com"
    if not _output("kubectl", "get", "customresourcedefinition", kind, "--ignore-not-found", "--output", "name"):
        return []
    found: list[dict[str, Any]] = json.loads(_output("kubectl", "get", kind, "--output", "json"))["items"]
    return found


def operator_releases() -> list[dict[str, str]]:
    """Helm's releases of the GPU operator, whatever they are called. Raises CannotSay."""
    releases: list[dict[str, str]] = json.loads(_output("helm", "list", "--all-namespaces", "--output", "json"))
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


def commands(wanted: list[str], plugin_namespace: str, is_dry: bool) -> list[list[str]]:
    """All commands in order: charts first, since rights are granted in the plugin's namespace."""
    apply = ["kubectl", "apply", *(["--dry-run=client"] if is_dry else [])]
    made = [of_chart(name) for name in wanted if name in charts()]
    made += [[*apply, "--filename", shown(name)] for name in ("namespace.yaml", "rbac.yaml")]
    for name in ("plugin", *(name for name in wanted if name in further_rights())):
        file = f"rbac-{name}.yaml"
        made.append([*apply, *place(file, plugin_namespace), "--filename", shown(file)])
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(dict.fromkeys([*charts(), *further_rights()]))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"also this: {', '.join(names)}")
    parser.add_argument("--apply", action="store_true", help="make it; without it, only show")
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
    wanted = commands(given.names, namespace, not given.apply)
    for program in ("kubectl", "helm"):
        if any(command[0] == program and (given.apply or program != "helm") for command in wanted) and not which(
            program
        ):
            parser.error(f"{program} is not on PATH: install it first")
    try:
        refusal = unreachable() or (operator_refusal(namespace) if "operator" in given.names else None)
    except CannotSay as silence:
        refusal = f"cannot see whether the cluster has a GPU operator: {silence}"
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 1
    only = {"rbac.yaml": {"nodes": given.node}, "rbac-plugin.yaml": {"configmaps": given.config_map}}
    for command in wanted:
        is_run = given.apply or command[0] != "helm"
        if given.apply and namespace in command and command[0] == "kubectl" and not exists(namespace):
            reason = f"there is no namespace {namespace} (PLUGIN_NAMESPACE names another)"
            print(f"left out, since {reason}: {shlex.join(command)}")
            continue
        file, note = Path(command[-1]).name, ""
        text = narrowed(file, only[file]) if file in only else None
        if text is not None:
            note = f"   # {file} with resourceNames {', '.join(*only[file].values())}"
            command = [*command[:-1], "-"]
        print(f"{'' if is_run else 'would run: '}{shlex.join(command)}{note}", flush=True)
        if is_run and subprocess.run(command, cwd=ROOT, input=text, text=True).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
