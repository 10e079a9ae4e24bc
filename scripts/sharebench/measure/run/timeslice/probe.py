"""The time-slice probe: processes that only read the device's clock, to see who runs on the GPU when.

Each of K tenants runs a kernel of one thread that reads the device's timer until a common end and notes every gap
(`tenant.spin`). A gap means that the tenant was off the device; `slices` derives runs and switches from all timelines.
"""

import contextlib
import json
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sharebench.core.files import replace_atomically, write_json
from sharebench.measure.nodes.contract import Grant, NodeError, State
from sharebench.measure.nodes.host.launch import grant_environment
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.measure.nodes.host.processes import group_by_process
from sharebench.measure.nodes.node import Node
from sharebench.measure.run.jobs import JobFailed, Run
from sharebench.measure.run.timeslice.slices import UnusableTimelines, analyse
from sharebench.model.records.references import read_device
from sharebench.model.strategy import LIMIT_KEYS, Strategy
from sharebench.study.study import Study

MECHANISMS = ("time-slicing", "mps", "streams")
COLUMNS = ("strategy", "tenant", "kind", "lower_us", "upper_us", "count")
# Well above the delays of the memory system, well below the shortest time slice seen anywhere.
THRESHOLD_NS = 5_000
# Contexts and compilation take one or two seconds, the first client of an MPS daemon one more.
START_SECONDS = 60.0
# From the command to start until the last kernel has started.
LEAD_SECONDS = 0.2
EXIT_SECONDS = 20.0
# Clock readings on one device agree to well under this; on two devices only by chance.
CLOCK_TOLERANCE_NS = 1_000_000


def probed_strategies(study: Study) -> list[Strategy]:
    """The study's strategies that share one whole device without limits, in the catalogue's order."""
    names = {cell.strategy for cell in study.cells}
    return [
        entry
        for name, entry in study.strategies.items()
        if name in names
        and entry.mechanism[0] in MECHANISMS
        and len(entry.mechanism) == 1
        and all(getattr(entry, limit) is None for limit in LIMIT_KEYS)
    ]


@contextlib.contextmanager
def probing_processes(python: Path, grants: Sequence[Grant]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The probing processes, which are ended in any case."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for group in group_by_process(grants):
            command = [str(python), "-m", "tenant.spin", "--streams", str(len(group))]
            command += ["--threshold-ns", str(THRESHOLD_NS)]
            env = grant_environment(group[0])
            processes.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def read_answer(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """The process's next line, by a deadline of `time.monotonic`. Raises NodeError when none comes."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
    line = process.stdout.readline() if ready else b""
    if not line:
        code = process.poll() if not ready else process.wait()
        how = "did not answer in time" if code is None else f"ended with exit code {code}"
        raise NodeError(f"a probing process {how}; its output is above")
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def watch_tenants(python: Path, grants: Sequence[Grant], seconds: float) -> tuple[list[dict[str, Any]], int]:
    """Run probing tenants with these grants at the same time; returns their timelines in order and the end in ns.

    Raises NodeError when a process fails or when they are not on one device.
    """
    with probing_processes(python, grants) as processes:
        deadline = time.monotonic() + START_SECONDS
        ready = [read_answer(process, deadline) for process in processes]
        offsets = [each["timer_ns"] - each["monotonic_ns"] for each in ready]
        if len({each["device"] for each in ready}) > 1 or max(offsets) - min(offsets) > CLOCK_TOLERANCE_NS:
            raise NodeError("the probing processes are not on one device, so that their clocks cannot be compared")
        end_ns = max(offsets) + time.monotonic_ns() + int((LEAD_SECONDS + seconds) * 1e9)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"end_ns": end_ns}).encode() + b"\n")
            process.stdin.flush()
        deadline = time.monotonic() + LEAD_SECONDS + seconds + START_SECONDS
        answers = [read_answer(process, deadline) for process in processes]
        for process in processes:
            # An MPS client must exit by itself: the server takes a killed one for crashed.
            process.wait(EXIT_SECONDS)
    return [timeline for each in answers for timeline in each["timelines"]], end_ns


def probe(
    node: Node, python: Path, strategy: Strategy, tenants: int, seconds: float
) -> tuple[dict[str, Any], list[Any]]:
    """One strategy's part of timeslice.json, and its rows of timeslice.csv."""
    why = node.infeasible(strategy, tenants)
    if why is not None:
        return {"infeasible": why}, []
    node.ensure(State(strategy, None, 0))
    timelines, end_ns = watch_tenants(python, node.grants(strategy, tenants), seconds)
    try:
        found, rows = analyse(timelines, end_ns)
    except UnusableTimelines as error:
        raise NodeError(f"{strategy.name}: {error}") from None
    return {"infeasible": None, **found}, [(strategy.name, *row) for row in rows]


def measure(run: Run, device: Path, tenants: int, seconds: float, out: Path, table: Path) -> None:
    """Probe the study's strategies of MECHANISMS one after another, into nodes/timeslice.json and the table."""
    study, node = run.study, run.node
    if not isinstance(node, NvidiaNode):
        raise JobFailed(needs_gpu_text(study))
    strategies = probed_strategies(study)
    if not strategies:
        names = ", ".join(MECHANISMS)
        raise JobFailed(f"the study has none of {names} without limits; name one: --config 'strategies=[mps]'")
    parts: dict[str, Any] = {}
    rows: list[Any] = []
    try:
        for strategy in strategies:
            print(f"watching {tenants} tenants under {strategy.name} for {seconds:g} s", flush=True)
            parts[strategy.name], strategy_rows = probe(node, node.tenant_python, strategy, tenants, seconds)
            rows += strategy_rows
    finally:
        node.restore()
    write_table(table, rows)
    write_json(
        out,
        {
            "node": read_device(device)["node"],
            "tenants": tenants,
            "seconds": seconds,
            "threshold_us": THRESHOLD_NS / 1e3,
            "strategies": parts,
            "provenance": run.provenance(),
        },
    )


def needs_gpu_text(study: Study) -> str:
    """The reason why a study's node cannot be probed, and the remedy; one line."""
    return (
        f"probe_timeslice needs an NVIDIA GPU on this host: the node is {study.node_kind}, which has no clock that "
        "tenants could watch; where there is a GPU, use --config node=nvidia"
    )


def write_table(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write timeslice.csv from rows in the order of COLUMNS."""
    lines = [",".join(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row) for row in rows]
    replace_atomically(path, "\n".join([",".join(COLUMNS), *lines]) + "\n")
