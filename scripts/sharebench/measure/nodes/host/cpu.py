"""The CPU stand-in: this host's cores stand in for a GPU, so that the pipeline runs on any computer.

Each tenant is a real process that fills one core, as a small kernel fills part of the SMs. Exclusive: one tenant on
all cores. Time-slicing: all tenants on one core, scheduled by the kernel. MPS: all tenants on all cores. MIG: disjoint
sets of cores. Layered: MIG sets, shared inside by the inner mechanism.
"""

import hashlib
import itertools
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import psutil

from sharebench.measure.nodes.contract import (
    DeviceOptions,
    Evidence,
    Grant,
    NodeError,
    Sampler,
    Settings,
    State,
    Tenants,
    is_external_server,
    item,
)
from sharebench.measure.nodes.host import host_cpu
from sharebench.measure.nodes.host.host_cpu import HostCounters, HostSampler
from sharebench.measure.nodes.host.processes import ProcessTenants
from sharebench.measure.nodes.host.programs.tenants import port_conflict
from sharebench.measure.nodes.host.template import HostNode
from sharebench.model.records.types import Host, NodeFacts, VisibleProcess
from sharebench.model.spec import Spec
from sharebench.model.strategy import MECHANISMS, Strategy, slice_count
from sharebench.model.workload import Workload
from tenant.contract import TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NodeOptions, StandInOptions

LABEL = "CPU stand-in, not a GPU"
# Set by tests, so that checkouts do not wait for each other.
LOCK_FOLDER_VARIABLE = "SHAREBENCH_LOCK_FOLDER"


def _cores(wanted: Literal["auto"] | list[int]) -> list[int]:
    """The wanted cores that this process may use."""
    return [core for core in sorted(os.sched_getaffinity(0)) if wanted == "auto" or core in wanted]


def _visible(pid: int) -> VisibleProcess | None:
    try:
        return {"memory_bytes": int(psutil.Process(pid).memory_info().rss), "utilisation_percent": None}
    except psutil.NoSuchProcess:
        return None


class CpuNode(HostNode):
    """Cores of this host under affinity masks; nothing on the host is changed."""

    kind = "cpu"
    options: "StandInOptions"

    @property
    def lock_path(self) -> Path | None:
        """One lock per host, whatever a run's TMPDIR: two studies on the same cores would measure each other."""
        return Path(os.environ.get(LOCK_FOLDER_VARIABLE, "/tmp")) / "sharebench-cpu.lock"

    @property
    def cores(self) -> list[int]:
        return _cores(self.options["cores"])

    @classmethod
    def devices(cls, options: "NodeOptions") -> list[DeviceOptions]:
        section = cast("StandInOptions", options)
        sections: list[StandInOptions] = [
            {"cores": cores, "devices": 1}
            for cores in host_cpu.split_cores(_cores(section["cores"]), [None] * section["devices"])
        ]
        if not all(each["cores"] for each in sections):
            raise NodeError(f"cpu.devices: {len(sections)} are more than the usable cores; set a smaller number")
        return [DeviceOptions(each, cast(list[int], each["cores"])) for each in sections]

    def facts(self) -> NodeFacts:
        """The record's `node` object; model, cores and memory identify the device, not the host name."""
        model = host_cpu.model()
        memory = psutil.virtual_memory().total
        identity = f"{model}/{len(self.cores)}/{memory >> 28}" + ("" if self.number is None else f"/{self.number}")
        return {
            "kind": self.kind,
            "device": hashlib.sha256(identity.encode()).hexdigest()[:16],
            "product": model,
            "units": len(self.cores),
            "units_name": "cores",
            "memory_bytes": memory,
            "is_gpu": False,
            "label": LABEL,
            "details": {
                "cores_used": self.cores,
                "cores_of_host": os.cpu_count(),
                "kernel": platform.release(),
                **host_cpu.facts(),
            },
        }

    def host_facts(self) -> Host:
        return host_cpu.host_facts()

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload] = ()) -> str | None:
        if (why := strategy.profile_shortage(replicas)) is not None:
            return why
        sizes = list(map(slice_count, strategy.layout(replicas)))
        if sum(sizes) > len(self.cores):
            each = "/".join(map(str, sorted(set(sizes))))
            return f"{len(sizes)} instances of {each} core(s) need {sum(sizes)} cores, there are {len(self.cores)}"
        return port_conflict(workloads)

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """Affinity masks by mechanism: first by instance, then inside it by the inner mechanism."""
        is_time_sliced = MECHANISMS[strategy.mechanism[-1]].is_time_sliced
        sets = [self.cores]
        if strategy.mechanism[0] == "mig":
            ends = list(itertools.accumulate(map(slice_count, strategy.layout(replicas)), initial=0))
            sets = [self.cores[start:end] for start, end in itertools.pairwise(ends)]
        grants = []
        for index in range(replicas):
            group = index % len(sets)
            cores = sets[group][:1] if is_time_sliced else sets[group]
            grants.append(Grant(index, group, cores=tuple(cores)))
        return grants

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Each tenant's affinity mask against its grant, as reported by the tenant or, for a user program, the host.

        An external server has no grant, and so no evidence.
        """
        evidence: Evidence = []
        for grant, record in zip(grants, records, strict=True):
            if is_external_server(record):
                continue
            expected = list(grant.cores or ())
            # A tenant that hung before its window began has no CPU times and no mask.
            observed = record["cpu"]["affinity"] if record["cpu"] is not None else None
            source = "node" if "measured_by" in record else f"tenant {grant.index}"
            evidence.append(item("cpu affinity", expected, observed, source))
        return evidence

    def tenants(self, spec: Spec, settings: Settings) -> Tenants:
        return ProcessTenants(spec, settings, self._sampler)

    def _sampler(self, families: Sequence[Sequence[int]], ended_seconds: Callable[[], float]) -> Sampler:
        return HostSampler(HostCounters(self.cores, itertools.chain(*families), ended_seconds))

    def visible_processes(self, pids: Sequence[int], since_seconds: float) -> list[VisibleProcess | None] | None:
        return [_visible(pid) for pid in pids]

    def switch(self, state: State | None) -> None:
        """Nothing on the host changes: affinity belongs to the tenants."""
        self.mark_old_state_left()

    def plan(self, strategy: Strategy) -> str:
        return "changes nothing on this host; tenants are pinned to cores and end with their cell"
