"""Run the real `snakemake` in a copy of the project, and see which jobs it ran."""

from __future__ import annotations

import compileall
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from dying import is_dying
from pipeline.prefork import Forked
from pipeline.prefork_client import CODE

from sharebench.read.gates.gates import evaluate

REPOSITORY = Path(__file__).resolve().parents[2]
PIPELINE_TESTS = Path(__file__).resolve().parent
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
TIMEOUT_SECONDS = 1800  # for a run that hangs; no run takes so long, even on a busy machine

# These jobs take most of the time of a rerun and have tests of their own, so a stub only makes their files.
STUBBED = ("figures", "report", "decide")
STUB_SCRIPT = """import os, sys
sys.path.append({tests!r})
from pipeline import prefork_client
name, *arguments = sys.argv[1:]
if name not in {stubbed!r}:
    real = os.path.join(os.path.dirname(__file__), "real_job.py")
    if prefork_client.SERVER in os.environ:
        sys.exit(prefork_client.run_in_server([real, *sys.argv[1:]]))
    import runpy
    runpy.run_path(real, run_name="__main__")
from pathlib import Path
options = dict(zip(arguments[::2], arguments[1::2]))
results = Path(options["--results"])
if name == "figures":
    names = arguments[arguments.index("--figures") + 1 :]
    outputs = [results / f"figures/{{name}}.{{suffix}}" for name in names for suffix in ("svg", "pdf", "png")]
elif name == "report":
    outputs = [results / "report.html"]
else:
    names = ("cost.csv", "capacity.csv", "advice.csv", "advice.md", "advice.json")
    outputs = [results / f"tables/{{name}}" for name in names]
    outputs.append(Path(options["--decided"]))
for path in outputs:
    path.parent.mkdir(exist_ok=True)
    path.write_text('{{"answers": []}}' if path.suffix == ".json" else "a stub")
"""

Jobs = dict[str, set[str]]


def make_checkout(root: Path) -> None:
    """Copy what a user has after cloning, add the tests' studies and workloads, and stub the jobs of STUBBED."""
    root.mkdir(parents=True)
    ignored = shutil.ignore_patterns(".*")
    for name in ("config", "rules", "scripts", "envs", "profiles", "examples"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=ignored)
    shutil.copy(REPOSITORY / "Snakefile", root)
    for study in (PIPELINE_TESTS / "studies").glob("*.yaml"):
        shutil.copy(study, root)
    for workload in (PIPELINE_TESTS / "workloads").glob("*.py"):
        shutil.copy(workload, root / "scripts/tenant/workloads")
    (root / "scripts/job.py").rename(root / "scripts/real_job.py")
    (root / "scripts/ask.py").write_text("from sharebench.cli import main\n\nmain()\n")
    write_stub(root, STUBBED)
    # Byte code is copied with the checkout; PYTHONDONTWRITEBYTECODE has no effect here.
    compileall.compile_dir(root / "scripts", quiet=1)
    (root / "tmp").mkdir()


def write_stub(root: Path, stubbed: Sequence[str]) -> None:
    (root / "scripts/job.py").write_text(STUB_SCRIPT.format(stubbed=stubbed, tests=str(PIPELINE_TESTS.parent)))


# A busy machine may fail these gates in a cell that is otherwise correct.
BUSY_MACHINE_GATES = {"clock_error", "cpu_throttled", "generator_late", "scrape_error", "window_coverage"}


def is_disturbed(record: Any) -> bool:
    """Whether the busy machine made the cell invalid; fails where another gate did."""
    failed = {gate["name"] for gate in evaluate(record) if gate["severity"] == "invalid" and not gate["passed"]}
    assert failed <= BUSY_MACHINE_GATES
    return bool(failed)


def unstub_jobs(checkout: Checkout, *names: str) -> None:
    """Run these jobs for real in this checkout, or all of them without names."""
    write_stub(checkout.root, [name for name in STUBBED if names and name not in names])


def draw_figures(results: Path, *names: str, data: Path | None = None) -> None:
    """Draw only these figures of a study: each takes seconds."""
    folders = ["--data", str(data or results), "--results", str(results)]
    command = [sys.executable, str(REPOSITORY / "scripts/job.py"), "figures", *folders, "--figures", *names]
    subprocess.run(command, check=True)
    assert all((results / f"figures/{name}.svg").stat().st_size > 10_000 for name in names)


@dataclass
class Result:
    """One finished run of snakemake: its exit code, output, started jobs and failed jobs."""

    code: int
    out: str
    jobs: Jobs
    failed: Jobs
    switches: list[str | None]
    """The states that the node entered, in order; None is its original state."""

    @property
    def cells(self) -> set[str]:
        """The cells whose measurement started, as strategy/workload/replicas/repeat."""
        return self.jobs.get("run_cell", set())

    def ok(self) -> Result:
        """Assert that the run succeeded; returns this result."""
        assert self.code == 0, self.out
        return self


@dataclass
class Running:
    """A run of snakemake in progress, and the files of its output and its jobs."""

    checkout: Checkout
    process: Forked
    output: Path
    ledger: Path
    switches_before: int
    results: Path

    def text(self) -> str:
        """The output so far."""
        return self.output.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; fails when the run ends before."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            # A run may end between two looks.
            has_ended = self.process.has_ended()
            if condition():
                return
            assert not has_ended, f"the run ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} in {TIMEOUT_SECONDS} s:\n{self.text()}"
            time.sleep(0.02)

    def wait_for_text(self, text: str) -> None:
        self.wait_for(lambda: text in self.text(), repr(text))

    def signal(self, number: int, group: bool = False) -> None:
        """Send a signal to snakemake alone, or to its process group as a terminal does."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def wait(self) -> Result:
        """Wait until the run ends; one that hangs is killed with all its processes, and fails."""
        try:
            code = self.process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            kill_processes(self.checkout.processes())
            raise AssertionError(f"still running after {TIMEOUT_SECONDS} s:\n{self.text()}") from None
        jobs: dict[str, Jobs] = {"started": {}, "failed": {}}
        for line in self.ledger.read_text().splitlines() if self.ledger.exists() else ():
            entry = json.loads(line)
            names = jobs[entry["event"]].setdefault(entry["rule"], set())
            assert entry["what"] not in names, f"{entry} twice in one run"
            names.add(entry["what"])
        jobs["started"].pop("all", None)
        switches = self.checkout.journal(self.results)[self.switches_before :]
        return Result(code, self.text(), jobs["started"], jobs["failed"], switches)


@dataclass
class Checkout:
    """A copy of the project; `study` is its default config file."""

    root: Path
    study: str = "simulated.yaml"
    numbers: Iterator[int] = field(default_factory=itertools.count)
    copied_code: dict[Path, int] = field(init=False)

    def __post_init__(self) -> None:
        self.copied_code = self.code()

    def code(self) -> dict[Path, int]:
        """Each source file of the library, and when it last changed."""
        return {path: path.stat().st_mtime_ns for path in (self.root / "scripts").glob("*/**/*.py")}

    @property
    def results(self) -> Path:
        """The default results folder."""
        return self.root / "results"

    def start(
        self,
        *targets: str,
        cores: int = 1,
        study: str | None = None,
        config: Sequence[str] = (),
        options: Sequence[str] = (),
        results: Path | None = None,
        environment: dict[str, str] | None = None,
        forks_jobs: bool = False,
    ) -> Running:
        """Start a run in the background; where a test sends signals, its jobs must be ordinary processes."""
        number = next(self.numbers)
        output, ledger = self.root / f"tmp/run-{number}.out", self.root / f"tmp/run-{number}.ledger"
        results = results or self.results
        command = [str(SNAKEMAKE), *targets, "--cores", str(cores), "--logger", "ledger", *options]
        command += ["--configfile", study or self.study]
        command += ["--config", *config] if config else []
        switches_before = len(self.journal(results))
        process = Forked(command, self.root, self.environment(ledger) | (environment or {}), output, forks_jobs)
        return Running(self, process, output, ledger, switches_before, results)

    def run(self, *targets: str, **options: Any) -> Result:
        """Run to the end; its jobs are forked too, which is faster."""
        return self.start(*targets, forks_jobs=True, **options).wait()

    def asking(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command `sharebench` of this checkout, in an interpreter of its own."""
        environment = self.environment(self.root / "tmp/asked.ledger") | environment
        environment["PYTHONPATH"] = str(self.root / "scripts")
        command, pipe = [sys.executable, str(self.root / "scripts/ask.py"), *words], subprocess.PIPE
        return subprocess.Popen(command, cwd=self.root, env=environment, stdout=pipe, stderr=pipe, text=True)

    def ask(self, *words: str, code: int = 0) -> str:
        """What the command `sharebench` of this checkout prints, and its stderr where it is to fail."""
        out, error = (self.root / f"tmp/asked.{stream}" for stream in ("out", "err"))
        environment = self.environment(self.root / "tmp/asked.ledger") | {"PYTHONPATH": str(self.root / "scripts")}
        command = [str(self.root / "scripts/ask.py"), *words]
        ended = Forked(command, self.root, environment, out, errors=error).wait(TIMEOUT_SECONDS)
        assert ended == code, out.read_text() + error.read_text()
        return out.read_text() + (error.read_text() if code else "")

    def plan(self, *config: str, study: str | None = None) -> str:
        """What `sharebench plan` says, in one line."""
        pairs = ["--config", *config] if config else []
        return " ".join(self.ask("plan", "--configfile", study or self.study, *pairs).split())

    def environment(self, ledger: Path) -> dict[str, str]:
        """The environment of a run; the checkout's `tmp` holds scratch folders and the host's lock."""
        return {
            **os.environ,
            "PYTHONPATH": str(PIPELINE_TESTS / "plugins"),
            "SHAREBENCH_TEST_LEDGER": str(ledger),
            "TMPDIR": str(self.root / "tmp"),
            "SHAREBENCH_LOCK_FOLDER": str(self.root / "tmp"),
            # A hypervisor may take CPU time from this machine; the gate of stolen time has unit tests.
            "SHAREBENCH_STEAL_PERCENT": "100",
            **({CODE: str(self.root / "scripts")} if self.code() == self.copied_code else {}),
        }

    def save_first_run(self, result: Result) -> None:
        """Save what the run of a finished study did, for the tests that share the study."""
        saved = {"jobs": {rule: sorted(what) for rule, what in result.jobs.items()}, "switches": result.switches}
        (self.root / "first.json").write_text(json.dumps(saved))

    def first_run(self) -> tuple[Jobs, list[str | None]]:
        """The jobs of the run that finished this study, on four cores, and the states that the node entered."""
        saved = json.loads((self.root / "first.json").read_text())
        return {rule: set(what) for rule, what in saved["jobs"].items()}, saved["switches"]

    def journal(self, results: Path | None = None) -> list[str | None]:
        """All states that the node ever entered."""
        path = (results or self.results) / ".sharebench/node/journal.jsonl"
        return [json.loads(line)["to"] for line in path.read_text().splitlines()] if path.exists() else []

    def measured_cells(self) -> set[str]:
        """The cells that have a record."""
        parts = (path.parts[-5:-1] for path in self.results.glob("cells/*/*/n*/r*/raw.json"))
        return {f"{strategy}/{workload}/{n[1:]}/{r[1:]}" for strategy, workload, n, r in parts}

    def record_path(self, cell: str) -> Path:
        """The file of a cell's record; the cell is strategy/workload/replicas/repeat."""
        strategy, workload, replicas, repeat = cell.split("/")
        return self.results / f"cells/{strategy}/{workload}/n{replicas}/r{repeat}/raw.json"

    def record(self, cell: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.record_path(cell).read_text())
        return record

    def edit_record(self, cell: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a cell's record without the pipeline."""
        record = self.record(cell)
        change(record)
        self.record_path(cell).write_text(json.dumps(record))

    def delete_records(self, *cells: str) -> None:
        for cell in cells:
            self.record_path(cell).unlink()

    def plant_outage(self, outage: dict[str, Any] | None) -> None:
        """Break the simulated device (see `sharebench.measure.nodes.simulated.node`), or repair it."""
        path = self.results / ".sharebench/node/outage.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(outage)) if outage else path.unlink()

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that the file holds once."""
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))

    def files(self) -> set[str]:
        """Every file except caches and logs, and the tests' own files."""
        ignored = ("tmp", ".snakemake/log", ".snakemake/iocache", ".snakemake/sharebench/parsed")
        paths = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return {str(path) for path in paths if not str(path).startswith(ignored) and "__pycache__" not in path.parts}

    def processes(self) -> list[psutil.Process]:
        """All processes of this checkout's runs, recognised by their TMPDIR."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                folder = Path(process.environ().get("TMPDIR", "/"))
                if folder.is_relative_to(self.root / "tmp") and not is_dying(process.pid):
                    found.append(process)
        return found

    def scratch_folders(self) -> list[str]:
        """The scratch folders of tenants that exist."""
        return sorted(path.name for path in (self.root / "tmp").glob("sharebench-*/"))


class Hold:
    """Keeps the tenants of a run loading, and so its cell unfinished, until it is released."""

    def __init__(self, checkout: Checkout) -> None:
        self.file = checkout.root / "tmp/hold"
        self.file.touch()
        self.environment = {"SHAREBENCH_TEST_HOLD": str(self.file)}

    def devices(self) -> set[str]:
        """The devices on which a tenant waits."""
        return {path.suffix[1:] for path in self.file.parent.glob("hold.reached.*")}

    def release(self) -> None:
        self.file.unlink()


def start_held_in_first_cell(checkout: Checkout, **environment: str) -> tuple[Running, Hold]:
    """Start a run, and hold its first cell once a tenant is loading."""
    hold = Hold(checkout)
    running = checkout.start(environment=hold.environment | environment)
    running.wait_for(lambda: bool(hold.devices()), "a tenant of the first cell")
    return running, hold


def kill_processes(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes and wait for their end."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=120)


def export_names(cells: Iterable[str]) -> set[str]:
    """The strategy/workload of these cells: one export each."""
    return {"/".join(cell.split("/")[:2]) for cell in cells}


def node_states(cells: Iterable[str]) -> set[str]:
    """The node states of these cells under `order: blocks`, for strategies that do not depend on replicas."""
    return {f"{strategy} block {repeat}" for strategy, _, _, repeat in (cell.split("/") for cell in cells)}


def table_jobs(exported: Iterable[str]) -> Jobs:
    """The jobs of exporting these strategy/workload pairs, and of the tables and all that follows."""
    return {**({"export_histograms": set(exported)} if exported else {}), "aggregate": {""}, **JOBS_AFTER_TABLES}


JOBS_AFTER_TABLES: Jobs = {"decide": {""}, "figures": {""}, "report": {""}}
"""The jobs that follow whenever the tables are rebuilt."""


def measuring_jobs(cells: Iterable[str]) -> Jobs:
    """The jobs of measuring these cells and all that follows."""
    cells = set(cells)
    return {"run_cell": cells, **table_jobs(export_names(cells))}


def dry_run_counts(out: str) -> dict[str, int]:
    """The job counts that a dry run prints, without the total."""
    table = out.split("Job stats:")[1].split("\n\n")[0]
    counts = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE)}
    return {name: count for name, count in counts.items() if name not in ("total", "all")}
