"""What `make cluster-install` and `cluster-uninstall` run, with kubectl and helm that only note their calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "cluster_install.py"


# Answers from files next to it, or as an empty cluster would.
KUBECTL = """#!/bin/sh
cd {folder}
case "$*" in *--kustomize*) for last; do :; done; cp -r "$last" given;; esac
case "$1 $2" in
"get --raw") [ ! -e away ] || {{ echo "E1122 memcache.go" >&2; echo "connection refused" >&2; exit 1; }}; exit;;
"get namespace") [ -e lacking ] || echo "namespace/$3"; exit;;
"get customresourcedefinition") [ ! -e hidden ] || {{ echo forbidden >&2; exit 1; }}; ls policies 2>/dev/null; exit 0;;
"get clusterpolicies.nvidia.com") cat policies; exit;;
"get "*) [ ! -e "objects-$2" ] || {{ cat "objects-$2"; exit; }}; echo '{{"items": []}}'; exit;;
"config current-context") echo my-context; exit;;
esac
echo "kubectl $*" >> calls
[ ! -e broken ]
"""
HELM = """#!/bin/sh
cd {folder}
[ "$1" != list ] || {{ cat releases; exit; }}
echo "helm $*" >> calls
[ ! -e broken ]
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a line for each call that may change something."""
    noted = tmp_path / "calls"
    noted.touch()
    (tmp_path / "releases").write_text("[]")
    for name, text in (("kubectl", KUBECTL), ("helm", HELM)):
        program = tmp_path / name
        program.write_text(text.format(folder=tmp_path))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return noted


def has_policy(calls: Path, config: dict[str, str] | None) -> None:
    """The cluster has a ClusterPolicy whose plugin has this config."""
    policy = {"metadata": {"name": "cluster-policy"}, "spec": {"devicePlugin": {"config": config}}}
    (calls.parent / "policies").write_text(json.dumps({"items": [policy]}))


def has_release(calls: Path, name: str, namespace: str) -> None:
    """Helm has installed the operator under this name."""
    release = {"name": name, "namespace": namespace, "chart": "gpu-operator-v25.3.0"}
    (calls.parent / "releases").write_text(json.dumps([release]))


def install(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


def uninstall(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.with_name("cluster_uninstall.py")
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)


def has(calls: Path, kinds: str, *objects: dict[str, Any]) -> None:
    """The cluster has these objects of the kinds."""
    (calls.parent / f"objects-{kinds}").write_text(json.dumps({"items": objects}))


def kustomizations(calls: Path) -> dict[str, dict[str, Any]]:
    """What kubectl was given, by folder."""
    given = calls.parent / "given"
    found = {path.parent.name: yaml.safe_load(path.read_text()) for path in given.glob("*/kustomization.yaml")}
    return found | {".": yaml.safe_load((given / "kustomization.yaml").read_text())}


def test_by_default_nothing_is_changed(calls: Path) -> None:
    done = install("operator", "dra")
    assert done.returncode == 0, done.stderr
    assert "would run: helm upgrade --install gpu-operator gpu-operator" in done.stdout
    lines = calls.read_text().splitlines()
    assert lines
    assert all(line.startswith("kubectl apply --dry-run=client ") for line in lines)


def test_a_program_that_is_not_there_is_named_before_anything_is_done(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (calls.parent / "helm").unlink()
    programs = calls.parent / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "ls"):
        (programs / name).symlink_to(str(which(name)))
    monkeypatch.setenv("PATH", f"{calls.parent}:{programs}")
    assert install("plugin").returncode == 0, "a dry run only shows what Helm would do"
    calls.write_text("")
    done = install("--apply", "plugin")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("helm is not on PATH: install it first")
    assert calls.read_text() == ""


def test_charts_come_first_and_rights_go_to_their_namespace(calls: Path) -> None:
    assert install("--apply", "operator", "dra").returncode == 0
    lines = calls.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["helm", "kubectl"]
    assert "--values config/cluster/operator-values.yaml" in lines[0]
    assert "--version v26.7.0" in lines[0]
    assert lines[1].startswith("kubectl apply --kustomize ")
    given = kustomizations(calls)
    assert given["plugin"]["namespace"] == "gpu-operator"
    assert given["tenants"]["namespace"] == "sharebench"
    assert [Path(each).name for each in given["tenants"]["components"]] == ["dra"]
    assert "components" not in given["plugin"]


def test_no_name_is_that_of_a_chart_and_of_rights() -> None:
    """The preflight names features whose rights are missing; to install a chart is more than was asked."""
    folder = ROOT / "config" / "cluster"
    charts = yaml.safe_load((folder / "charts.yaml").read_text())
    assert not set(charts) & {path.parent.name for path in folder.glob("*/*/rbac.yaml")}


def test_a_namespace_of_ones_own(calls: Path) -> None:
    assert install("--apply", "--plugin-namespace", "kube-system", "--namespace=team").returncode == 0
    given = kustomizations(calls)
    assert (given["plugin"]["namespace"], given["tenants"]["namespace"]) == ("kube-system", "team")


def test_rights_on_nodes_and_the_config_map_can_be_narrowed(calls: Path) -> None:
    done = install("--apply", "--node=a", "--node=b", "--config-map=sharing")
    assert done.returncode == 0, done.stderr
    for folder, role, verbs, names in (
        ("tenants", "sharebench", ["get", "patch"], ["a", "b"]),
        ("plugin", "sharebench-plugin", ["get", "patch"], ["sharing"]),
    ):
        (patch,) = kustomizations(calls)[folder]["patches"]
        (change,) = json.loads(patch["patch"])
        assert (patch["target"]["name"], change["op"], change["value"]) == (role, "add", names)
        made = yaml.safe_load_all((ROOT / "config" / "cluster" / folder / "rbac.yaml").read_text())
        rules = next(each["rules"] for each in made if "rules" in each)
        assert rules[int(change["path"].split("/")[2])]["verbs"] == verbs, "not those that list or create"


def test_rights_in_a_namespace_that_is_not_there_are_left_out(calls: Path) -> None:
    """As where only resource claims are used."""
    (calls.parent / "lacking").touch()
    done = install("--apply", "dra")
    assert done.returncode == 0
    assert "left out: rights in namespace nvidia-device-plugin, which does not exist" in done.stdout
    given = kustomizations(calls)
    assert given["."]["resources"] == ["tenants"]
    assert [Path(each).name for each in given["tenants"]["components"]] == ["dra"]


def test_it_ends_with_the_first_failure(calls: Path) -> None:
    (calls.parent / "broken").touch()
    assert install("--apply").returncode == 1
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [(["plugins"], "there is no 'plugins': WITH takes plugin, operator"), (["plugin", "operator"], "name one of them")],
)
def test_what_cannot_be_is_refused_before_anything_runs(calls: Path, names: list[str], words: str) -> None:
    done = install("--apply", *names)
    assert done.returncode == 2
    assert words in done.stderr
    assert calls.read_text() == ""


def test_an_operator_that_is_there_is_left_alone_and_the_line_says_what_to_type(calls: Path) -> None:
    has_policy(calls, None)
    has_release(calls, "gpu-operator-1755", "nvidia")
    for arguments in (["--apply"], []):
        done = install(*arguments, "operator")
        assert done.returncode == 1
        assert calls.read_text() == "", "neither a chart nor a right"
        assert "release gpu-operator-1755 of gpu-operator-v25.3.0 in nvidia" in done.stderr
        assert "make cluster-install PLUGIN_NAMESPACE=nvidia APPLY=1" in done.stderr
        assert "kubectl create configmap sharebench-configs --namespace nvidia" in done.stderr
        assert "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge" in done.stderr


@pytest.mark.parametrize("is_release", [True, False])
def test_a_release_alone_and_a_policy_with_a_config_map_are_an_operator_too(calls: Path, is_release: bool) -> None:
    if is_release:
        has_release(calls, "gpu-operator-1755", "gpu-operator")
    else:
        has_policy(calls, {"name": "theirs"})
    done = install("--apply", "operator")
    assert (done.returncode, calls.read_text()) == (1, "")
    assert "kubectl patch" not in done.stderr


def test_an_installation_of_ours_that_ended_early_goes_on(calls: Path) -> None:
    has_release(calls, "gpu-operator", "gpu-operator")
    assert install("--apply", "operator").returncode == 0


def test_an_operator_is_not_installed_where_nobody_can_say_whether_there_is_one(calls: Path) -> None:
    (calls.parent / "hidden").touch()
    done = install("--apply", "operator")
    assert done.returncode == 1
    assert done.stderr == "cannot see whether the cluster has a GPU operator: forbidden\n"
    assert calls.read_text() == ""


def test_without_a_cluster_one_line_says_so(calls: Path) -> None:
    (calls.parent / "away").touch()
    done = install()
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "no cluster reachable (current context: my-context): connection refused; "
        "set KUBECONFIG, or choose another context"
    ]


def test_every_chart_has_values_and_every_values_file_a_chart() -> None:
    folder = ROOT / "config" / "cluster"
    charts = yaml.safe_load((folder / "charts.yaml").read_text())
    assert {f"{name}-values.yaml" for name in charts} == {path.name for path in folder.glob("*-values.yaml")}
    for name in charts:
        assert yaml.safe_load((folder / f"{name}-values.yaml").read_text())


LEASE = {"kind": "Lease", "metadata": {"name": "sharebench-0123", "namespace": "gpu-operator"}}
RIGHTS = "clusterrole,clusterrolebinding,role,rolebinding,serviceaccount"


def node(**changes: Any) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": "gpu"} | changes, "spec": {}}


@pytest.mark.parametrize("arguments", [[], ["--apply"]])
def test_nothing_is_removed_under_a_run(calls: Path, arguments: list[str]) -> None:
    has(calls, "leases.coordination.k8s.io", LEASE | {"spec": {"holderIdentity": "20261120-000000-aaaa"}})
    has(calls, "nodes", node(annotations={"sharebench/original-state": "{}"}))
    done = uninstall(*arguments)
    assert done.returncode == 1
    owned, changed = done.stderr.splitlines()
    assert owned.startswith("run 20261120-000000-aaaa owns a node (lease/sharebench-0123 in gpu-operator)")
    assert "node/gpu is not restored: snakemake restore" in changed
    assert calls.read_text() == ""


def test_what_is_removed_is_ours(calls: Path) -> None:
    has(
        calls,
        "leases.coordination.k8s.io",
        {"kind": "Lease", "metadata": {"name": "theirs", "namespace": "x"}, "spec": {}},
    )
    tainted = node(
        labels={"nvidia.com/device-plugin.config": "sharebench-ts7", "theirs": "x"}, annotations={"sharebench/x": "1"}
    )
    tainted["spec"] = {"taints": [{"key": "sharebench/measuring"}, {"key": "theirs"}]}
    has(calls, "nodes", tainted, node(name="other"))
    keys = {
        "kind": "ConfigMap",
        "metadata": {"name": "configs", "namespace": "p"},
        "data": {"a": "", "sharebench-b": ""},
    }
    has(calls, "configmaps", keys, {"kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "p"}})
    rights = [
        {"kind": kind, "metadata": {"name": name, "namespace": namespace}}
        for kind, name, namespace in (
            ("Role", "sharebench-plugin", "p"),
            ("Role", "sharebench-theirs", "p"),
            ("ServiceAccount", "sharebench", "sharebench"),
            ("ServiceAccount", "sharebench", "theirs"),
        )
    ]
    has(calls, RIGHTS, *rights, {"kind": "ClusterRole", "metadata": {"name": "sharebench-dra"}})
    patch = '{"data": {"sharebench-b": null}, "metadata": {"annotations": {}}}'
    wanted = [
        "kubectl label node gpu nvidia.com/device-plugin.config-",
        "kubectl annotate node gpu sharebench/x-",
        "kubectl taint node gpu sharebench/measuring-",
        f"kubectl patch --namespace p configmap/configs --type merge --patch {patch}",
        "kubectl delete --namespace p role/sharebench-plugin --ignore-not-found",
        "kubectl delete --namespace sharebench serviceaccount/sharebench --ignore-not-found",
        "kubectl delete clusterrole/sharebench-dra --ignore-not-found",
        "kubectl delete namespace sharebench",
    ]
    done = uninstall()
    assert (done.returncode, calls.read_text()) == (0, ""), done.stderr
    assert done.stdout.count("would run: ") == len(wanted)
    done = uninstall("--apply")
    assert done.returncode == 0, done.stderr
    assert calls.read_text().splitlines() == wanted
    assert "charts stay" in done.stdout


def test_a_namespace_with_results_stays(calls: Path) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "sharebench"}}
    kinds = "persistentvolumeclaims,pods,services,secrets,deployments.apps,statefulsets.apps,daemonsets.apps,"
    has(calls, f"{kinds}jobs.batch,cronjobs.batch", claim)
    done = uninstall("--apply")
    assert calls.read_text() == ""
    assert "nothing is left to remove" in done.stdout
    assert "namespace sharebench stays, since it holds persistentvolumeclaim/sharebench" in done.stdout


def test_what_cannot_be_seen_is_not_removed(calls: Path) -> None:
    (calls.parent / "away").touch()
    assert "no cluster reachable" in uninstall("--apply").stderr
