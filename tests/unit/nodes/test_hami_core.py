"""HAMi-core on a host: the tenants' environment, and the evidence that the library was in them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.test_nvidia_evidence import GIB, Gpu, broken, view
from unit.studies import config_with

from sharebench.measure.nodes.contract import Grant, State
from sharebench.measure.nodes.host import nvidia
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.measure.nodes.host.nvidia_evidence import collect_evidence
from sharebench.measure.nodes.host.nvml import Gpu as RealGpu
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.measure.nodes.host.tools import TOOLS
from sharebench.model.config.load import load
from sharebench.model.strategies import node_strategies
from sharebench.model.strategy import Strategy, TenantLimits
from tenant.contract import CONTEXT_LOCK_VARIABLE

HAMI_CORE = node_strategies(load(config_with({"node": "simulated"})), "nvidia")["hami-core"]
TOOL = TOOLS["hami-core"]
SHARED_REGION = "CUDA_DEVICE_MEMORY_SHARED_CACHE"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that does nothing."""
    built = tmp_path / "libvgpu.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(built)], check=True)
    return built


@pytest.fixture
def node(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_nvml: Path) -> NvidiaNode:
    monkeypatch.setattr(nvidia, "HOST_FOLDER", tmp_path)
    return NvidiaNode({"gpu": "0", "python": "auto", "hami_core": str(library), "may_change": []}, tmp_path)


def test_each_tenant_has_its_own_limits_and_region(node: NvidiaNode, library: Path) -> None:
    own = [grant.environment for grant in node.grants(HAMI_CORE, 3)]
    assert node.infeasible(HAMI_CORE, 3) is None
    assert {each["LD_PRELOAD"] for each in own} == {str(library)}
    assert [each["CUDA_DEVICE_SM_LIMIT"] for each in own] == ["33"] * 3
    assert [each["CUDA_DEVICE_MEMORY_LIMIT"] for each in own] == ["47923m"] * 3
    assert {each["GPU_CORE_UTILIZATION_POLICY"] for each in own} == {"force"}
    assert len({each[SHARED_REGION] for each in own}) == 3
    (lock,) = {each[CONTEXT_LOCK_VARIABLE] for each in own}
    assert lock not in {each[SHARED_REGION] for each in own}
    (alone,) = node.grants(nvidia.EXCLUSIVE, 1)
    assert "LD_PRELOAD" not in alone.environment
    assert alone.is_forkable and not node.grants(HAMI_CORE, 1)[0].is_forkable, "its evidence is how it was started"


def test_regions_are_empty_before_each_cell(node: NvidiaNode) -> None:
    state = State(HAMI_CORE, 2, 1)
    node.ensure(state)
    region = Path(node.grants(HAMI_CORE, 2)[0].environment[SHARED_REGION])
    region.write_text("limits of an earlier cell")
    node.ensure(state)
    assert region.parent.is_dir() and not region.exists()
    assert node.restore() and not region.parent.exists()


def test_limits_of_each_tenant(node: NvidiaNode) -> None:
    strategy = HAMI_CORE.changed(thread_percent=(70.0, 30.0), memory_percent=None, memory_limit=("100Gi", "512Mi"))
    own = [grant.environment for grant in node.grants(strategy, 2)]
    assert [each["CUDA_DEVICE_SM_LIMIT"] for each in own] == ["70", "30"]
    assert [each["CUDA_DEVICE_MEMORY_LIMIT"] for each in own] == ["102400m", "512m"]


def without_a_library(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.options["hami_core"] = None


def on_another_gpu(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealGpu, "index", 1)


def one_process_only(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_COMPUTE_MODE", "3")


@pytest.mark.parametrize(
    "happens, reason",
    [
        (without_a_library, "nvidia.hami_core names no library"),
        (on_another_gpu, "would watch GPU 0 and not GPU 1"),
        (one_process_only, "compute mode is EXCLUSIVE_PROCESS"),
    ],
)
def test_infeasible_strategies_have_a_reason(
    node: NvidiaNode,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[NvidiaNode, pytest.MonkeyPatch], None],
    reason: str,
) -> None:
    happens(node, monkeypatch)
    assert reason in (node.infeasible(HAMI_CORE, 2) or "")


@pytest.fixture
def start() -> Iterator[Callable[[dict[str, str]], int]]:
    """Processes that sleep until the test ends, started with additional variables."""
    started = []

    def one(variables: dict[str, str]) -> int:
        argv = [sys.executable, "-c", "print(flush=True); input()"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(process := subprocess.Popen(argv, env=os.environ | variables, **pipes))
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield one
    for process in started:
        process.communicate(b"\n")


def found(strategy: Strategy, grant: Grant, pid: int, **seen: Any) -> set[str]:
    """Names of a tenant's evidence items that do not hold."""
    tenant: Any = view(pid, **{"memory_free_bytes": 69 * GIB, "over_limit_refused": True} | seen)
    two: Any = [Gpu()]
    return broken(collect_evidence(strategy, two, [grant], [tenant], [Occupant(pid, "compute", GIB)], []))


def test_evidence_comes_from_the_process_and_from_its_view_of_cuda(
    node: NvidiaNode, start: Callable[[dict[str, str]], int]
) -> None:
    strategy = HAMI_CORE.changed(thread_percent=50.0, memory_percent=50.0)
    limits = strategy.shared_limits(1)
    variables = TOOL.variables(node.options, node.folder / "region", limits, 140 * GIB)
    grant = Grant(0, 0, environment=variables)
    limited = start(variables)
    assert found(strategy, grant, limited, memory_total_bytes=70 * GIB) == set()
    assert found(strategy, grant, limited) == {"memory that CUDA shows, in bytes"}
    assert found(strategy, grant, limited, memory_total_bytes=70 * GIB, over_limit_refused=False) == {
        "allocation beyond the limit refused"
    }
    in_none = {"library in tenant 0", "limits in the environment of tenant 0"}
    assert found(strategy, grant, start({}), memory_total_bytes=70 * GIB) == in_none
    both = TOOL.evidence(grant, [limited, start({})])
    assert broken(both) == in_none, "each process of a tenant counts"
    others = start(variables | {"CUDA_DEVICE_SM_LIMIT": "90"})
    assert found(strategy, grant, others, memory_total_bytes=70 * GIB) == {"limits in the environment of tenant 0"}


@pytest.mark.parametrize(
    "limit_bytes, total_bytes, holds",
    [
        (70 * GIB, 70 * GIB, True),
        (70 * GIB, 69 * GIB, False),
        (140 * GIB, 139 * GIB, True),
        (140 * GIB, 141 * GIB, False),
        (70 * GIB, None, False),
    ],
)
def test_a_limit_of_the_whole_device_allows_for_memory_that_cuda_reserves(
    limit_bytes: int, total_bytes: int | None, holds: bool
) -> None:
    own = TenantLimits(memory_limit=f"{limit_bytes // GIB}Gi")
    sees: Any = {"memory_total_bytes": total_bytes}
    (seen,) = TOOL.view_evidence(own, 140 * GIB, sees, "tenant 0")
    assert seen["holds"] is holds
