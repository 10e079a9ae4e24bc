"""The MIG modes of HAMi and Volcano, imitated: a scheduler of their name, and MIG strategy `single` of NVIDIA's plugin.

Theirs make an instance for a pod; here seven are there already, and one is a `nvidia.com/gpu`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import REPOSITORY, Run, study_of
from cluster.harness import GPU, RESTRICTED, Cluster, eventually
from cluster.mig import configure, offered
from cluster.test_static import STATIC, scheduling

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seven(mig: Cluster) -> Iterator[Cluster]:
    """A node whose seven instances are GPUs of their own."""
    assert configure(mig, "all-1g.5gb", "mig-single") == "success"
    eventually("seven GPUs", lambda: offered(mig) == {GPU: 7})
    yield mig


@pytest.mark.parametrize("name", ["hami-mig", "volcano-mig"])
def test_each_tenant_has_an_instance_of_its_own(seven: Cluster, tmp_path: Path, name: str) -> None:
    entry = yaml.safe_load((REPOSITORY / "config/strategies.yaml").read_text())["strategy_catalogue"][name]["pod"]
    changes: dict[str, Any] = {"exclusive": STATIC, "exclusive-again": STATIC}
    if name == "volcano-mig":
        # In place of what Volcano's device plugin registers.
        changes[name] = {"pod": entry | {"resources": {GPU: "1"}}}
    with scheduling(seven, entry), seven.namespace(RESTRICTED) as namespace:
        given = study_of(
            namespace,
            strategies=[name],
            replicas=[2],
            baseline="none",
            null_cells=False,
            strategy_catalogue=changes,
            kubernetes={"access": "static"},
        )
        Run(tmp_path, seven.kubeconfig, given).passed()
    record = json.loads(next(tmp_path.glob(f"results/cells/{name}/*/n2/r1/raw.json")).read_text())
    evidence = {item["name"]: item for item in record["evidence"]}
    assert record["status"] == "ok" and all(item["holds"] for item in evidence.values())
    assert evidence["devices that the tenants were given"]["observed"] == 2
    assert evidence[f"pods of the scheduler {entry['scheduler']}"]["observed"] == 2
    assert evidence[f"pods with the annotation {entry['allocated']}"]["observed"] == 2
