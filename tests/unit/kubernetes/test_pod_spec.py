"""The objects of a cell, and the code in them."""

import base64
import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from unit.studies import config_with
from unit.tenant.conftest import http_request

from sharebench.core.files import SCRIPTS
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import is_tolerated
from sharebench.measure.nodes.kubernetes.cluster.pod_monitor import RUN_LABEL
from sharebench.measure.nodes.kubernetes.cluster.reservation import CORDON_TAINT
from sharebench.measure.nodes.kubernetes.cluster.restricted import NO_DISRUPTION_ANNOTATIONS, idle_pod
from sharebench.measure.nodes.kubernetes.pods import manifest
from sharebench.measure.nodes.kubernetes.pods.manifest import Place
from sharebench.model.config.load import load

OPTIONS = load(config_with({"node": "kubernetes", "strategies": ["exclusive"]}))["kubernetes"]
OWNER = {"metadata": {"uid": "the-uid"}}


def place(**options: Any) -> Place:
    return Place("gpu-node", "abc", OPTIONS | options)


UNIT = PodNeeds(limits={"nvidia.com/gpu": "1"})


def pod(needs: PodNeeds = UNIT, **options: Any) -> dict[str, Any]:
    cell_place = place(**options)
    container = manifest.tenant_container(["python3"], needs, "secret", cell_place.options)
    return manifest.tenant_pod(cell_place, OWNER, 2, [container], needs, 60)


def test_pods_satisfy_restricted_pod_security() -> None:
    """The requirements of the restricted standard (Kubernetes, Pod Security Standards)."""
    spec = pod()["spec"]
    container = spec["containers"][0]["securityContext"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["runAsUser"] != 0
    assert {key for volume in spec["volumes"] for key in volume} == {"name", "configMap"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    # Beyond the standard.
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)


def test_only_pods_of_the_nodes_state_tolerate_a_cordon() -> None:
    """They are made during a switch; tenants leave a node alone that someone else has cordoned."""
    cordon = {"key": CORDON_TAINT, "effect": "NoSchedule"}
    held = idle_pod("gpu-node", OPTIONS, "held", {})
    assert [is_tolerated(cordon, each["spec"]["tolerations"]) for each in (held, pod())] == [True, False]


def test_a_pod_ends_by_itself_and_autoscalers_leave_it_alone() -> None:
    made = pod()
    assert (made["spec"]["activeDeadlineSeconds"], made["spec"]["restartPolicy"]) == (60, "Never")
    assert NO_DISRUPTION_ANNOTATIONS.items() <= made["metadata"]["annotations"].items()


def test_names_of_labels_and_annotations_have_one_prefix_at_most() -> None:
    metadata = pod()["metadata"]
    for name in (RUN_LABEL, *metadata["labels"], *metadata["annotations"]):
        assert re.fullmatch(r"([a-z0-9.-]+/)?[A-Za-z0-9._-]{1,63}", name), name


def test_the_pods_user_has_a_name() -> None:
    (container,) = pod()["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    # Like torch, whose cache folder has the user's name.
    program = "import getpass, pwd; pwd.getpwuid = lambda _: {}[_]; print(getpass.getuser())"
    named = {name: environment[name] for name in environment if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", program], env=named, capture_output=True, text=True)
    assert done.stdout == "sharebench\n", done.stderr
    assert environment["USER"] == environment["LOGNAME"]


def test_a_pod_has_the_configured_options() -> None:
    own = {"key": "team", "operator": "Equal", "value": "a", "effect": None}
    spec = pod(resources={"cpu": "2", "memory": None}, tolerations=[own], priority_class="high")["spec"]
    unit = {"nvidia.com/gpu": "1"}
    assert spec["containers"][0]["resources"] == {"limits": unit, "requests": unit | {"cpu": "2"}}, "no CPU limit"
    assert [each["key"] for each in spec["tolerations"]] == ["sharebench/measuring", "nvidia.com/gpu", "team"]
    assert spec["tolerations"][-1] == {"key": "team", "operator": "Equal", "value": "a"}
    assert spec["priorityClassName"] == "high"


def test_the_archive_is_reproducible() -> None:
    code = manifest.code_archive()
    manifest.code_archive.cache_clear()
    assert manifest.code_archive() == code
    packed = manifest.config_map(place(), {"tenant.pyz": code})["binaryData"]["tenant.pyz"]
    assert base64.b64decode(packed) == code
    # an API server accepts at most 1 MiB
    assert len(packed) < 1 << 20


def test_the_archive_has_no_absolute_paths(tmp_path: Path) -> None:
    packed = tmp_path / "tenant.pyz"
    packed.write_bytes(manifest.code_archive())
    with zipfile.ZipFile(packed) as found:
        names, contents = found.namelist(), b"".join(map(found.read, found.namelist()))
    assert "tenant/workloads/matmul.py" in names
    assert all(
        name == "__main__.py" or name.split("/")[0] in ("tenant", "prometheus_client", "pynvml.py") for name in names
    )
    assert str(SCRIPTS).encode() not in contents


@pytest.mark.parametrize(("workload", "code"), [("matmul", 0), ("no-such", 2)])
def test_the_archive_runs_a_tenant(tmp_path: Path, workload: str, code: int) -> None:
    packed = tmp_path / "tenant.pyz"
    packed.write_bytes(manifest.code_archive())
    command = [sys.executable, "-P", str(packed), "--workload", workload, "--params", '{"size": 16}']
    tenant = subprocess.Popen(
        command, cwd=tmp_path, env={"SHAREBENCH_TOKEN": "x"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert tenant.stdout is not None
    (port,) = json.loads(tenant.stdout.readline())["ports"]
    if code == 0:
        # In the middle of numpy's import the signal may be lost.
        while "loading" in http_request(port, "GET", "/healthz")[1]:
            time.sleep(0.02)
        tenant.terminate()
    _, said = tenant.communicate(timeout=60)
    assert tenant.returncode == code, said
