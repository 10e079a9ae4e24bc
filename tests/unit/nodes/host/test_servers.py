"""Programs that start one after another, get their memory fraction, or compute in child processes."""

import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from unit.nodes.host.tenants import PATIENCE_SECONDS, no_sampler, wait_for
from unit.nodes.host.test_program_tenants import command, naps, run
from unit.studies import S, W, simulated, study_with

from sharebench.measure.nodes.contract import Grant, Settings, TenantsFailed
from sharebench.measure.nodes.host import processes
from sharebench.measure.nodes.host.launch import BuiltInTenant
from sharebench.measure.nodes.host.nvidia_evidence import Target, collect_evidence
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.measure.nodes.host.processes import ProcessTenants
from sharebench.measure.nodes.host.programs.process_tree import tree_pids
from sharebench.measure.nodes.programs import memory_fraction
from sharebench.measure.nodes.tenants import tenant_set
from sharebench.model.spec import Spec, parse_spec
from sharebench.study.cells import Cell
from tenant import request_bodies
from tenant.load import BEFORE_WINDOW, IN_WINDOW
from tenant.program import UserProgram

SERVER = {"kind": "http", "command": ["serve", "{port}"], "start": "staggered"}
FOREVER = "import time; time.sleep(600)"
# A server whose API process starts an engine, which starts a worker.
WORKERS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FOREVER!r}])"
SERVES = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKERS!r}])"


def test_tenants_after_a_dead_staggered_one_are_not_measured(tmp_path: Path) -> None:
    entry = command(naps(before="os.environ['SHAREBENCH_INDEX'] == '1' and sys.exit(3)"), start="staggered")
    measured = run(tmp_path, entry, replicas=3)
    assert measured["status"] == "crashed"
    assert [tenant["status"] for tenant in measured["tenants"]] == ["not-measured", "crashed", "not-measured"]


class Clock(types.SimpleNamespace):
    """A clock that only sleeping advances."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Slow(ProcessTenants):
    """Tenants that only take time until they are ready."""

    def __init__(self, spec: Spec, settings: Settings, clock: Clock, seconds: list[float]) -> None:
        super().__init__(spec, settings, no_sampler)
        self.clock, self.seconds, self.launched = clock, seconds, list[float]()

    def _process(self, grants: Any, home: Path) -> Any:
        process: Any = BuiltInTenant(self.context, grants, home)
        process.programs = lambda: self.launched.append(self.clock.now) or []
        process.is_ready = lambda: self.clock.now >= self.launched[process.index] + self.seconds[process.index]
        return process


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (processes, tenant_set):
        monkeypatch.setattr(module, "time", made)
    return made


def slow(clock: Clock, start: str, *seconds: float) -> Slow:
    planned = study_with({f"{W}.mine": SERVER | {"start": start}, "workloads": ["mine"]})
    spec = planned.spec(Cell("mps", "mine", len(seconds), 1))
    settings = {"timeouts": {"start_seconds": 10, "record_seconds": 10}, "loads": []}
    tenants = Slow(spec, cast(Settings, settings), clock, [*seconds])
    tenants.start([Grant(index, 0) for index in range(len(seconds))])
    return tenants


@pytest.mark.parametrize(("start", "launched"), [("together", [0, 0, 0]), ("staggered", [0, 8, 12])])
def test_each_staggered_tenant_has_its_own_time_to_start(clock: Clock, start: str, launched: list[float]) -> None:
    tenants = slow(clock, start, 8, 4, 8)
    tenants.wait_ready()
    assert tenants.launched == pytest.approx(launched, abs=0.2)


def test_a_staggered_tenant_that_takes_too_long_is_hung_and_the_next_one_never_starts(clock: Clock) -> None:
    staggered = slow(clock, "staggered", 8, 12, 1)
    with pytest.raises(TenantsFailed):
        staggered.wait_ready()
    assert [outcome["status"] for outcome in staggered.outcomes()] == ["ok", "hung", "ok"]
    assert len(staggered.launched) == 2


@pytest.mark.parametrize(
    ("strategy", "changes", "replicas", "fraction"),
    [
        ("time-slicing", {}, 4, 0.25),
        ("mps", {f"{S}.mps.memory_percent": "80/N"}, 4, 0.2),
        ("mig", {}, 4, 1),
        ("mig-mps", {}, 4, 0.5),
        ("exclusive", {}, 1, 1),
    ],
)
def test_a_tenant_gets_its_fraction_of_the_memory(
    strategy: str, changes: dict[str, Any], replicas: int, fraction: float
) -> None:
    spec = simulated(changes).spec(Cell(strategy, "matmul", replicas, 1))
    assert memory_fraction(spec, replicas - 1) == pytest.approx(fraction)


def test_the_number_of_tenants_and_the_fraction_are_filled_in(tmp_path: Path) -> None:
    text = "import sys; print(sys.argv[1:]); sys.exit(1)"
    words = {"command": ["{python}", "-c", text, "{replicas}", "--part={fraction}", "{port}"]}
    # The end of one ends the others, which may have no end of their own and may not have said anything yet.
    ends = [tenant["exit"] for tenant in run(tmp_path, command("") | words, replicas=3)["tenants"] if tenant["exit"]]
    assert any(end["log_tail"].startswith("['3', '--part=0.333333', ") for end in ends)


@pytest.fixture
def server() -> Iterator[ProcessTenants]:
    """A tenant that is a server with three processes."""
    entry = {"kind": "command", "command": ["{python}", "-c", SERVES], "metrics": {"histogram": "h"}}
    planned = study_with({f"{W}.mine": entry, "workloads": ["mine"]})
    spec = planned.spec(Cell("time-slicing", "mine", 1, 1))
    timeouts = {"start_seconds": PATIENCE_SECONDS, "record_seconds": PATIENCE_SECONDS}
    settings = {"timeouts": timeouts, "loads": [{"arrival": "closed"}]}
    tenants = ProcessTenants(spec, cast(Settings, settings), no_sampler)
    tenants.start([Grant(0, 0, environment={"CUDA_VISIBLE_DEVICES": "GPU-1"})])
    yield tenants
    tenants.stop()


def test_the_workers_of_a_server_belong_to_its_tenant(server: ProcessTenants) -> None:
    (pid,) = server.pids()
    wait_for(lambda: len(tree_pids(pid)) == 3)
    worker = psutil.Process(pid).children()[0].children()[0]
    # None of them counts as foreign.
    client = server.units[0].popens[1].pid
    assert server.families() == [[pid, worker.parent().pid, worker.pid, client]]

    strategy = study_with({}).strategies["time-slicing"]
    record: Any = {"measured_by": "scrape", "view": None, "outside": UserProgram(pid).process_view()}
    on_gpu = [Occupant(worker.pid, "compute", 1 << 30)]
    found = collect_evidence(strategy, [Target("GPU-1", 132, 1 << 36)], [Grant(0, 0)], [record], on_gpu, [])
    assert all(item["holds"] for item in found)
    assert {item["name"]: item["observed"] for item in found}["processes of tenant 0 on the GPU"] == worker.name()


NOTED = """
import http.server, os, sys
class Noting(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "ab") as notes:
            notes.write(body + b"\\n")
        time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
import time
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Noting).serve_forever()
"""


@pytest.mark.parametrize("strategy", ["time-slicing", "mps"])
def test_every_strategy_gets_the_same_requests(tmp_path: Path, strategy: str) -> None:
    tokens = {"prompt": {"min": 4, "max": 9}, "output": {"mean": 8, "spread": 2}}
    body = '{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}'
    entry = {
        "kind": "http",
        "command": ["{python}", "-c", NOTED, "{port}", f"{tmp_path}/{{index}}"],
        "request": {"method": "POST", "body": body, "tokens": tokens},
        "min_window_seconds": 0.1,
    }
    # On a busy machine few requests may fit into the window, or none.
    for _ in range(5):
        for index in (0, 1):
            (tmp_path / str(index)).unlink(missing_ok=True)
        measured = run(tmp_path, entry, replicas=2, strategy=strategy)
        assert measured["status"] == "ok"
        if all(tenant["count"] for tenant in measured["tenants"]):
            break
    measured_request = parse_spec(measured["spec"]).workloads[0].request.model_dump()
    # The seed depends on the workload and the repeat.
    seed = zlib.crc32(b"mine/1")
    for index in (0, 1):
        seen = (tmp_path / str(index)).read_bytes().splitlines()
        for phase in (BEFORE_WINDOW, IN_WINDOW):
            planned = request_bodies.body_factory(measured_request, seed, index, phase)
            first = seen.index(planned(0))
            asked = seen[first : first + min(4, measured["tenants"][index]["count"])]
            assert asked and asked == [planned(number) for number in range(len(asked))]
