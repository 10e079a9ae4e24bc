"""An NVIDIA GPU of this host: real processes under real time-slicing, MPS, MIG instances and streams.

Compute mode, MIG mode, clocks, power limit and time-slice stay as they are. The MPS daemons started here live in a
folder with a fixed name for each GPU, so that the next run finds those of a killed run.
"""

import itertools
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import sharebench.measure.nodes.host.mig as mig
import sharebench.measure.nodes.host.mps as mps
from sharebench.core.files import DamagedFile, read_json, write_json
from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import (
    DeviceOptions,
    Evidence,
    Grant,
    NodeError,
    Sampler,
    Settings,
    State,
    Tenants,
)
from sharebench.measure.nodes.host import host_cpu
from sharebench.measure.nodes.host.gpu_telemetry import NvmlSampler, idle_power_watts, peaks
from sharebench.measure.nodes.host.host_cpu import HostCounters
from sharebench.measure.nodes.host.launch import grant_environment
from sharebench.measure.nodes.host.nvidia_evidence import Target, collect_evidence
from sharebench.measure.nodes.host.nvml import Gpu, list_gpus
from sharebench.measure.nodes.host.processes import ProcessTenants
from sharebench.measure.nodes.host.programs.tenants import port_conflict
from sharebench.measure.nodes.host.template import HostNode
from sharebench.measure.nodes.host.tools import TOOLS
from sharebench.measure.nodes.limits import client_variables, part_sms, probe_variables
from sharebench.measure.nodes.node import UNKNOWN_STATE, Characteristics
from sharebench.model.gpu_python import gpu_python
from sharebench.model.records.types import Host, NodeFacts, VisibleProcess
from sharebench.model.spec import Spec
from sharebench.model.strategy import GREEN_CONTEXTS, MECHANISMS, MPS_CLIENTS, Strategy, profile_matches
from sharebench.model.workload import Workload
from sharebench.model.workload_modules import is_one_launch
from tenant.contract import MPS_PIPE_VARIABLE, TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NodeOptions, NvidiaOptions

# Short, because it contains sockets, and the same for every run, whatever its TMPDIR.
HOST_FOLDER = Path("/tmp")
EXCLUSIVE = Strategy(name="exclusive", mechanism=("exclusive",))


class NvidiaNode(HostNode):
    """One GPU; `options` is the config's `nvidia` section."""

    kind = "nvidia"
    options: "NvidiaOptions"
    state_outlives_run = False
    _sampler: NvmlSampler | None = None

    @classmethod
    def devices(cls, options: "NodeOptions") -> list[DeviceOptions]:
        section = cast("NvidiaOptions", options)
        gpus = list_gpus() if section["gpu"] == "all" else list(map(Gpu, section["gpu"]))
        parts = host_cpu.split_cores(sorted(os.sched_getaffinity(0)), [gpu.local_cores() for gpu in gpus])
        sections = [cast("NvidiaOptions", {**section, "gpu": gpu.uuid}) for gpu in gpus]
        # With fewer cores than GPUs nothing is pinned; gates detect the contention.
        return [DeviceOptions(each, cores if all(parts) else None) for each, cores in zip(sections, parts, strict=True)]

    @cached_property
    def gpu(self) -> Gpu:
        """The GPU that the config names. Raises NodeError."""
        return Gpu(str(self.options["gpu"]))

    @property
    def device(self) -> str:
        return self.gpu.digest

    @property
    def host_folder(self) -> Path:
        """The folder of this GPU, the same in every run: MPS daemons and the original MIG layout."""
        return HOST_FOLDER / f"sharebench-gpu-{self.gpu.digest[:8]}"

    @property
    def lock_path(self) -> Path | None:
        """One lock per GPU: two studies on one GPU would measure each other."""
        return self.host_folder.with_suffix(".lock")

    @property
    def tenant_python(self) -> Path:
        """The interpreter that has the frameworks; the config is refused without one."""
        return cast(Path, gpu_python(self.options["python"]))

    @property
    def may_change_mig(self) -> bool:
        return "mig" in self.options["may_change"]

    # Facts.

    def facts(self) -> NodeFacts:
        return self._facts

    @cached_property
    def _facts(self) -> NodeFacts:
        return {
            "kind": self.kind,
            "device": self.gpu.digest,
            "product": self.gpu.product,
            "units": self.gpu.sm_count,
            "units_name": "SMs",
            "memory_bytes": self.gpu.memory_bytes,
            "is_gpu": True,
            "label": "",
            "details": {
                **self.gpu.facts(),
                **({} if self.number is None else {"cores_used": sorted(os.sched_getaffinity(0))}),
                **host_cpu.facts(),
            },
        }

    def host_facts(self) -> Host:
        return self._host_facts

    @cached_property
    def _host_facts(self) -> Host:
        return host_cpu.host_facts([gpu.uuid for gpu in list_gpus()])

    def characterise(self) -> Characteristics:
        """Idle power in watts (null if the GPU is in use), and peak rates in FLOP/s and bytes/s. Raises NodeError."""
        idle = idle_power_watts(self.gpu.uuid)
        if self.infeasible(EXCLUSIVE, 1) is not None:
            return {"idle_power_watts": idle, "roofs": None}
        alone = grant_environment(self.grants(EXCLUSIVE, 1)[0])
        return {"idle_power_watts": idle, "roofs": peaks(str(self.tenant_python), alone)}

    # Feasibility and grants.

    def _instances(self, layout: Sequence[str]) -> list[Target]:
        """The first free instance for each profile of the layout, in its order, where there is one."""
        free, chosen = self.gpu.instances(), []
        for profile in layout:
            instance = next((each for each in free if profile_matches(each.profile, profile)), None)
            if instance is not None:
                free.remove(instance)
                chosen.append(Target(instance.uuid, instance.sm_count, instance.memory_bytes))
        return chosen

    def targets(self, strategy: Strategy, replicas: int) -> list[Target]:
        """The device or instance of each group of tenants."""
        if strategy.mechanism[0] == "mig":
            return self._instances(strategy.layout(replicas)[: strategy.group_count(replicas)])
        return [Target(self.gpu.uuid, self.gpu.sm_count, self.gpu.memory_bytes)]

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload] = ()) -> str | None:
        compute_mode = self.gpu.compute_mode()
        inner = strategy.mechanism[-1]
        if (why := port_conflict(workloads)) is not None:
            return why
        if compute_mode == "PROHIBITED":
            return "the GPU's compute mode is PROHIBITED; its owner can set it: nvidia-smi -c DEFAULT"
        if compute_mode.startswith("EXCLUSIVE") and MECHANISMS[inner].is_time_sliced and replicas > 1:
            return f"the GPU's compute mode is {compute_mode}, one process only; its owner can set DEFAULT"
        if inner == "mps":
            per_daemon = -(-replicas // strategy.group_count(replicas))
            if shutil.which(mps.CONTROL) is None:
                return f"{mps.CONTROL} is not on PATH; it belongs to the NVIDIA driver's compute utilities"
            if per_daemon > MPS_CLIENTS:
                return f"{per_daemon} clients of one MPS server are more than {MPS_CLIENTS}"
        if inner in TOOLS and (why := TOOLS[inner].unavailable(self.options, self.gpu.index)) is not None:
            return why
        if strategy.mechanism[0] == "mig":
            return self._mig_infeasible(strategy, replicas)
        if self.gpu.mig_is_on():
            return "MIG mode is on, so that only MIG instances can be used"
        return self._limit_infeasible(strategy, replicas, workloads)

    def _limit_infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload]) -> str | None:
        if strategy.mechanism == (GREEN_CONTEXTS,):
            whole = self.gpu.sm_count
            if whole is None:
                return "NVML does not report how many SMs the GPU has, so that they cannot be divided"
            shares = [part_sms(strategy.tenant_limits(replicas, index), whole) for index in range(replicas)]
            if min(shares) < self.gpu.smallest_part_sms:
                return f"a green context of {min(shares)} SMs is less than this GPU has, {self.gpu.smallest_part_sms}"
        if strategy.memory_limit is None and strategy.memory_percent is None:
            return None
        total = self.gpu.memory_bytes
        if total is None:
            return "NVML does not report how much memory the GPU has, so that no memory limit on it can be checked"
        if strategy.memory_limit is None:
            return None
        largest = max(strategy.tenant_limits(replicas, index).memory_bytes(total) or 0 for index in range(replicas))
        if largest > total:
            return f"a memory_limit of {largest // MEBIBYTE}Mi is more than the GPU has, {total // MEBIBYTE}Mi"
        for workload in workloads:
            if any("{fraction}" in word for word in workload.command or ()):
                return f"{workload.name} is given its {{fraction}} of the memory; use memory_percent, not memory_limit"
        return None

    def not_attempted(self, strategy: Strategy, workloads: Sequence[Workload]) -> str | None:
        """The reason why these workloads are not measured: threads of one process suit few."""
        if strategy.is_unequal and any(each.runs_until_exit for each in workloads):
            return "the limits of each tenant are checked while it runs, and a program that exits may have ended"
        if not strategy.is_one_process:
            return None
        if not all(map(is_one_launch, workloads)):
            return (
                "in one process only workloads whose iteration is one launch are measured (graph: true): threads that "
                "launch kernel by kernel would wait for Python's interpreter lock, not for the GPU"
            )
        return None

    def _mig_infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        mode = self.gpu.mig_is_on()
        if mode is None:
            return f"{self.gpu.product} has no MIG"
        if not mode:
            return "MIG mode is off; only the host's owner can change that (nvidia-smi -mig 1)"
        if (why := strategy.profile_shortage(replicas)) is not None:
            return why
        layout = strategy.layout(replicas)
        wanted, needed = " and ".join(dict.fromkeys(layout)), len(layout)
        if not self.may_change_mig:
            room = len(self._instances(layout))
            return None if room == needed else f"{needed} MIG instances of profile {wanted} are needed, {room} exist"
        for profile in layout:
            if mig.capacity(self.gpu, profile) == 0:
                return f"this GPU has no MIG profile {profile}; it has {', '.join(mig.profiles(self.gpu))}"
        if strategy.profiles is not None:
            return None if mig.fits(self.gpu, layout) else f"MIG instances {', '.join(layout)} do not fit on this GPU"
        room = mig.capacity(self.gpu, wanted)
        return None if room >= needed else f"{needed} MIG instances of profile {wanted} are needed, {room} fit"

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """Device, pipe directory, limits and memory probe of each tenant; tenants of one process have its number."""
        targets = self.targets(strategy, replicas)
        shared = strategy.shared_limits(replicas)
        process = 0 if strategy.is_one_process else None
        tool = TOOLS.get(strategy.mechanism[-1])
        grants = []
        for index in range(replicas):
            group = index % len(targets)
            variables = {
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "CUDA_VISIBLE_DEVICES": targets[group].uuid,
                # Without MPS this directory has no daemon, so that tenants cannot reach another one by accident.
                MPS_PIPE_VARIABLE: str(self._daemon_folder(group) / "pipe"),
            }
            own, memory_bytes = strategy.tenant_limits(replicas, index), targets[group].memory_bytes
            if tool is not None:
                file = self._tool_folder(strategy) / str(index)
                variables |= tool.variables(self.options, file, own, memory_bytes)
            elif strategy.mechanism != (GREEN_CONTEXTS,):
                variables |= client_variables(own.excluding(shared), memory_bytes)
            variables |= probe_variables(own.memory_bytes(memory_bytes))
            whole = targets[group].sm_count if strategy.mechanism == (GREEN_CONTEXTS,) else None
            sms = None if whole is None else part_sms(own, whole)
            grants.append(
                Grant(index, group, environment=variables, process=process, sm_count=sms, is_forkable=tool is None)
            )
        return grants

    def tenants(self, spec: Spec, settings: Settings) -> Tenants:
        return ProcessTenants(spec, settings, self._start_sampler, python=self.tenant_python, device="cuda")

    def _start_sampler(self, families: Sequence[Sequence[int]], ended_seconds: Callable[[], float]) -> Sampler:
        servers = [server for daemon in self._daemons() if (server := daemon.server()) is not None]
        ours = {*itertools.chain(*families), *servers}
        counters = HostCounters(sorted(os.sched_getaffinity(0)), ours, ended_seconds)
        self._sampler = NvmlSampler(self.gpu.uuid, families, servers, counters)
        return self._sampler

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Evidence from NVML, MPS daemons and tenants while the tenants run, and from the sampler before."""
        targets, sampled = self.targets(strategy, len(grants)), self._sampler.processes if self._sampler else {}
        return collect_evidence(strategy, targets, grants, records, self.gpu.occupants(), self._daemons(), sampled)

    def visible_processes(self, pids: Sequence[int], since_seconds: float) -> list[VisibleProcess | None] | None:
        used = self.gpu.utilisation_percent(since_seconds)
        listed: dict[int, VisibleProcess] = {
            each.pid: {"memory_bytes": each.memory_bytes, "utilisation_percent": used.get(each.pid)}
            for each in self.gpu.occupants()
        }
        return [listed.get(pid) for pid in pids]

    # States.

    def _daemon_folder(self, group: int) -> Path:
        return self.host_folder / "mps" / str(group)

    def _daemons(self) -> list[mps.MpsDaemon]:
        folders = sorted((self.host_folder / "mps").glob("[0-9]*"), key=lambda folder: int(folder.name))
        return [mps.MpsDaemon(folder) for folder in folders]

    def ensure(self, state: State) -> None:
        """Put the GPU into the state; a state with a missing daemon is set up again. Raises NodeError."""
        running = sum(daemon.pid is not None for daemon in self._daemons())
        if self.current() != state.key or running != len(self._daemon_targets(state)):
            self._change_state(state)
        if state.strategy.mechanism[-1] in TOOLS:
            # An existing region of HAMi-core keeps its limits, whatever the environment says.
            shutil.rmtree(folder := self._tool_folder(state.strategy), ignore_errors=True)
            folder.mkdir(mode=0o700)

    def _tool_folder(self, strategy: Strategy) -> Path:
        return self.host_folder / strategy.mechanism[-1]

    def mark_dirty(self) -> None:
        """Restart the MPS daemons: one whose client died may fail the next (NVIDIA, Multi-Process Service)."""
        if self._daemons():
            self._write_state(UNKNOWN_STATE)

    def _daemon_targets(self, state: State) -> list[Target]:
        """The devices and instances with an MPS daemon in this state, which may serve any number of replicas."""
        if state.strategy.mechanism[-1] != "mps":
            return []
        return self.targets(state.strategy, state.replicas or MPS_CLIENTS)

    def _refuse_foreign_folder(self) -> None:
        """Raise NodeError if the host folder is another user's: its name is public, and its content is trusted."""
        try:
            status = os.lstat(self.host_folder)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise NodeError(f"{self.host_folder} is not a folder of this user; its owner, or root, must remove it")

    def switch(self, state: State | None) -> None:
        """Stop our daemons and start those of the state; change MIG instances only where the owner allows it."""
        self._refuse_foreign_folder()
        for daemon in self._daemons():
            daemon.stop()
        self.mark_old_state_left()
        if state is None:
            self._restore_layout()
            shutil.rmtree(self.host_folder, ignore_errors=True)
            return
        devices = {self.gpu.uuid, *(instance.uuid for instance in self.gpu.instances())}
        if (line := mps.foreign_daemon(self.host_folder, devices)) is not None:
            raise NodeError(line)
        self.host_folder.mkdir(mode=0o700, exist_ok=True)
        # It may have appeared since the first look.
        self._refuse_foreign_folder()
        if state.strategy.mechanism[0] == "mig" and self.may_change_mig:
            self._partition(state.strategy)
        limits = state.strategy.shared_limits(state.replicas or MPS_CLIENTS)
        for group, target in enumerate(self._daemon_targets(state)):
            memory_bytes = limits.memory_bytes(target.memory_bytes)
            mps.MpsDaemon(self._daemon_folder(group)).start(target.uuid, limits.thread_percent, memory_bytes)

    @property
    def _layout_file(self) -> Path:
        return self.host_folder / "mig-layout.json"

    def _partition(self, strategy: Strategy) -> None:
        if not self._layout_file.exists():
            write_json(self._layout_file, {"layout": mig.layout(self.gpu)})
        profile = str(strategy.profile)
        mig.partition(self.gpu, strategy.profiles or [profile] * mig.capacity(self.gpu, profile))

    def _restore_layout(self) -> None:
        if self._layout_file.exists():
            try:
                layout = read_json(self._layout_file, "layout")["layout"]
            except DamagedFile as damage:
                raise NodeError(f"the original MIG instances of this GPU are not known: {damage}") from None
            mig.restore(self.gpu, layout)

    def sweep(self) -> None:
        """Stop the daemons of any dead run on this GPU and restore its MIG layout. Raises NodeError."""
        self._refuse_foreign_folder()
        if self.host_folder.exists() or self.current() is not None:
            mps.kill_leftovers(self.host_folder)
            self._change_state(None)

    def plan(self, strategy: Strategy) -> str:
        changes = []
        if strategy.mechanism[0] == "mig":
            if self.may_change_mig:
                which = " and ".join(dict.fromkeys(strategy.layout(1)))
                changes.append(f"makes MIG instances of profile {which}, the layout found is restored")
            else:
                changes.append("uses the MIG instances that exist")
        if strategy.mechanism[-1] == "mps":
            changes.append("starts an MPS daemon of its own, stopped at the next switch and when the run ends")
        if (tool := TOOLS.get(strategy.mechanism[-1])) is not None:
            changes.append(f"changes nothing on this GPU; {tool.plan}")
        return "; ".join(changes) or "changes nothing on this GPU; tenants end with their cell"
