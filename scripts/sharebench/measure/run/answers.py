"""The map of wrong answers: results of torch that differ from float64, by the share of the SMs under MPS."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sharebench.core.files import replace_atomically, write_json
from sharebench.measure.nodes.contract import Grant, NodeError, State
from sharebench.measure.nodes.host.launch import grant_environment
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.measure.nodes.limits import THREADS_VARIABLE
from sharebench.measure.run.jobs import JobFailed, Run
from sharebench.model.answers import wrong_results
from sharebench.model.records.references import read_device
from sharebench.model.strategy import Strategy
from sharebench.study.study import Study

# All shares that the device plugin gives 1 to 16 tenants, and steps of 5.
PERCENTS = tuple(sorted({100 // tenants for tenants in range(1, 17)} | {*range(5, 101, 5)}))
MPS = Strategy(name="mps", mechanism=("mps",))
# Clients at a time: each takes seconds to start, and answers do not depend on neighbours.
AT_ONCE = 4
ANSWER_SECONDS = 180.0
COLUMNS = ("percent", "sm_count", "checked", "precision", "wrong", "largest_error")


def measure(run: Run, device: Path, out: Path, table: Path) -> None:
    """Check the answers of a client with each share, into nodes/answers.json and the table."""
    node = run.node
    if not isinstance(node, NvidiaNode):
        raise JobFailed(needs_gpu_text(run.study))
    if (why := node.infeasible(MPS, AT_ONCE)) is not None:
        raise JobFailed(f"the answers under MPS cannot be checked: {why}")
    print(f"checking answers under {len(PERCENTS)} shares of the SMs", flush=True)
    try:
        node.ensure(State(MPS, None, 0))
        check = partial(checked_answers, node.tenant_python, node.grants(MPS, 1)[0])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = dict(zip(PERCENTS, pool.map(check, PERCENTS), strict=True))
    finally:
        node.restore()
    lines = [",".join("" if each is None else str(each) for each in row) for row in rows(found)]
    replace_atomically(table, "\n".join([",".join(COLUMNS), *lines]) + "\n")
    shares = {str(percent): answers for percent, answers in found.items()}
    write_json(out, {"node": read_device(device)["node"], "percent": shares, "provenance": run.provenance()})


def checked_answers(python: Path, grant: Grant, percent: int) -> dict[str, Any]:
    """What a process with that share of the SMs found. Raises NodeError."""
    own = replace(grant, environment={**grant.environment, THREADS_VARIABLE: str(percent)})
    command = [str(python), "-m", "tenant.gpu.answers"]
    try:
        ended = subprocess.run(
            command, env=grant_environment(own), capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NodeError(f"the answers under {percent} % were not checked within {ANSWER_SECONDS:g} s") from None
    if ended.returncode != 0:
        last = (ended.stderr.strip() or "no message").splitlines()[-1]
        raise NodeError(f"the answers under {percent} % could not be checked: {last}")
    answers: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answers


def rows(found: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Rows in the order of COLUMNS: the wrong results of each precision under each share."""
    for percent, answers in found.items():
        for precision, wrong in wrong_results(answers).items():
            error = answers["largest_error"].get(precision)
            yield percent, answers["sm_count"], answers["checked"], precision, wrong, error


def needs_gpu_text(study: Study) -> str:
    """The reason why a study's node has no map of answers, and the remedy; one line."""
    return (
        f"probe_answers needs an NVIDIA GPU on this host: the node is {study.node_kind}, which has no MPS; "
        "where there is a GPU, use --config node=nvidia"
    )
