"""A run id for every test, and tenants that end with the test."""

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

import psutil
import pytest
from unit.nodes.host.tenants import PATIENCE_SECONDS, Misbehaving, cpu_study, no_sampler

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import Grant, Settings
from sharebench.measure.nodes.host.processes import ProcessTenants
from sharebench.study.cells import Cell


@pytest.fixture(autouse=True)
def this_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A run id of the test's own, so that sweeping spares other runs on this machine; nothing is left running."""
    run_id = f"unit-test-{os.getpid()}"
    monkeypatch.setenv(RUN_ID_VARIABLE, run_id)
    before = set(psutil.Process().children(recursive=True))
    yield run_id
    assert set(psutil.Process().children(recursive=True)) == before


@pytest.fixture
def launch() -> Iterator[Callable[..., ProcessTenants]]:
    """A function that starts tenants, one per program (None is the real one); they end with the test."""
    made: list[ProcessTenants] = []

    def start(
        *programs: str | None,
        cores: tuple[int, ...] | None = None,
        start_seconds: float = PATIENCE_SECONDS,
        process_of: Mapping[int, int] = MappingProxyType({}),
    ) -> Any:
        spec = cpu_study().spec(Cell("mps", "matmul", len(programs), 1))
        settings = {"timeouts": {"start_seconds": start_seconds, "record_seconds": PATIENCE_SECONDS}}
        loads = [{"arrival": "closed"}] * len(programs)
        tenants = Misbehaving(spec, cast(Settings, settings | {"loads": loads}), no_sampler)
        tenants.programs = programs
        made.append(tenants)
        tenants.start([Grant(i, 0, cores=cores, process=process_of.get(i)) for i in range(len(programs))])
        return tenants

    yield start
    for tenants in made:
        if tenants.scratch.exists():
            tenants.stop()
