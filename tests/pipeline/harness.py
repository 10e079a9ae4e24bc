"""A checkout in a temporary folder, the real `snakemake` run in it, and what that run did."""

from __future__ import annotations

import compileall
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pipeline.prefork import Forked

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
TIMEOUT_SECONDS = 900  # of what hangs, on however busy a machine

# Drawing and deciding take most of the time of a rerun and are tested elsewhere: here these jobs only make files.
STUBBED = ("figures", "report", "decide")
STUB = """import os, runpy, sys
from pathlib import Path
sys.path.append({tests!r})
from pipeline import asking
name, *arguments = sys.argv[1:]
if name not in {stubbed!r}:
    real = str(Path(__file__).with_name("real_job.py"))
    if asking.SERVER in os.environ:
        sys.exit(asking.become([real, *sys.argv[1:]]))
    runpy.run_path(real, run_name="__main__")
given = dict(zip(arguments[::2], arguments[1::2]))
results = Path(given["--results"])
if name == "figures":
    names = arguments[arguments.index("--figures") + 1 :]
    made = [results / f"figures/{{name}}.{{suffix}}" for name in names for suffix in ("svg", "pdf", "png")]
elif name == "report":
    made = [results / "report.html"]
else:
    made = [results / f"tables/{{name}}" for name in ("cost.csv", "capacity.csv", "advice.csv", "advice.md")]
    made.append(Path(given["--decided"]))
for path in made:
    path.parent.mkdir(exist_ok=True)
    path.write_text("a stub")
"""

Jobs = dict[str, set[str]]


def make_checkout(root: Path) -> None:
    """A copy of what a user has after cloning, with the tests' studies and workloads, and with drawing stubbed."""
    root.mkdir(parents=True)
    ignored = shutil.ignore_patterns(".*")
    for name in ("config", "rules", "scripts", "envs", "profiles", "examples"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=ignored)
    shutil.copy(REPOSITORY / "Snakefile", root)
    for study in (HERE / "studies").glob("*.yaml"):
        shutil.copy(study, root)
    for workload in (HERE / "workloads").glob("*.py"):
        shutil.copy(workload, root / "scripts/tenant/workloads")
    (root / "scripts/job.py").rename(root / "scripts/real_job.py")
    (root / "scripts/job.py").write_text(STUB.format(stubbed=STUBBED, tests=str(HERE.parent)))
    # Once for all copies, whatever PYTHONDONTWRITEBYTECODE says.
    compileall.compile_dir(root / "scripts", quiet=1)
    (root / "tmp").mkdir()


# What a busy machine does to a measurement, besides the truth.
BUSY = {"cpu_throttled", "generator_late", "window_coverage"}


def is_spoilt(record: dict[str, Any]) -> bool:
    """Whether the busy machine made the cell invalid; nothing else may have."""
    broken = {gate["name"] for gate in record["gates"] if gate["severity"] == "invalid" and not gate["passed"]}
    assert broken <= BUSY
    return bool(broken)


def draw_really(checkout: Checkout, *names: str) -> None:
    """Undo the stubs of `make_checkout`, or those of these names."""
    stubbed = tuple(name for name in STUBBED if names and name not in names)
    (checkout.root / "scripts/job.py").write_text(STUB.format(stubbed=stubbed, tests=str(HERE.parent)))


def draw(results: Path, *names: str, data: Path | None = None) -> None:
    """Draw these figures of a study and no others, which takes seconds each."""
    where = ["--data", str(data or results), "--results", str(results)]
    command = [sys.executable, str(REPOSITORY / "scripts/job.py"), "figures", *where, "--figures", *names]
    subprocess.run(command, check=True)
    assert all((results / f"figures/{name}.svg").stat().st_size > 10_000 for name in names)


def decide_really(checkout: Checkout) -> None:
    """Undo that of the decision."""
    draw_really(checkout, "decide")


@dataclass
class Result:
    """One run of snakemake: its exit code, what it printed, the jobs that it started, those of them that failed."""

    code: int
    out: str
    jobs: Jobs
    failed: Jobs
    moves: list[str | None]
    """The states that the node entered, in order; None is the original one."""

    @property
    def cells(self) -> set[str]:
        """The cells that were measured, as strategy/workload/replicas/repeat."""
        return self.jobs.get("run_cell", set())

    def ok(self) -> Result:
        """Itself, after checking that the run succeeded."""
        assert self.code == 0, self.out
        return self


@dataclass
class Traces:
    """What a run of snakemake leaves to be read."""

    checkout: Checkout
    output: Path
    ledger: Path
    moves_before: int
    results: Path

    def text(self) -> str:
        """What was printed so far."""
        return self.output.read_text(errors="replace")

    def ended(self, wait: Callable[[float], int], seconds: float) -> Result:
        """The result of a run that `wait` waits for; killed with all its processes when that takes longer."""
        try:
            code = wait(seconds)
        except subprocess.TimeoutExpired:
            end(self.checkout.processes())
            raise AssertionError(f"still running after {seconds} s:\n{self.text()}") from None
        jobs: dict[str, Jobs] = {"started": {}, "failed": {}}
        for line in self.ledger.read_text().splitlines() if self.ledger.exists() else ():
            entry = json.loads(line)
            known = jobs[entry["event"]].setdefault(entry["rule"], set())
            assert entry["what"] not in known, f"{entry} twice in one run"
            known.add(entry["what"])
        jobs["started"].pop("all", None)
        moves = self.checkout.journal(self.results)[self.moves_before :]
        return Result(code, self.text(), jobs["started"], jobs["failed"], moves)


@dataclass
class Running(Traces):
    """A run of snakemake in progress, in a process of its own from the first."""

    process: subprocess.Popen[bytes]

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
        """Until the condition holds; fails when the run ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} in {seconds} s:\n{self.text()}"
            time.sleep(0.02)

    def signal(self, number: int, group: bool = False) -> None:
        """To snakemake alone, or to its process group as a terminal's Ctrl-C is."""
        os.killpg(self.process.pid, number) if group else self.process.send_signal(number)

    def wait(self, seconds: float = TIMEOUT_SECONDS) -> Result:
        """Until it ends."""
        return self.ended(self.process.wait, seconds)


@dataclass
class Checkout:
    """A copy of the project; `study` is its default config file."""

    root: Path
    study: str = "simulated.yaml"
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def results(self) -> Path:
        """Default results root."""
        return self.root / "results"

    def _asked(
        self,
        *targets: str,
        cores: int = 1,
        study: str | None = None,
        config: Sequence[str] = (),
        options: Sequence[str] = (),
        results: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> tuple[list[str], dict[str, str], Traces]:
        """`snakemake TARGETS --cores N --configfile STUDY OPTIONS --config CONFIG`, its environment and its traces."""
        number = next(self.numbers)
        output, ledger = self.root / f"tmp/run-{number}.out", self.root / f"tmp/run-{number}.ledger"
        results = results or self.results
        command = [str(SNAKEMAKE), *targets, "--cores", str(cores), "--logger", "ledger", *options]
        command += ["--configfile", study or self.study]
        command += ["--config", *config] if config else []
        traces = Traces(self, output, ledger, len(self.journal(results)), results)
        return command, self.environment(ledger) | (environment or {}), traces

    def start(self, *targets: str, **how: Any) -> Running:
        """A run in the checkout's folder, in the background."""
        command, environment, traces = self._asked(*targets, **how)
        with traces.output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # As in a terminal, even where whoever runs the tests ignores Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        return Running(**vars(traces), process=process)

    def run(self, *targets: str, seconds: float = TIMEOUT_SECONDS, **how: Any) -> Result:
        """A run in the checkout's folder to its end, by a process that has loaded snakemake before."""
        command, environment, traces = self._asked(*targets, **how)
        return traces.ended(Forked(command, self.root, environment, traces.output).wait, seconds)

    def environment(self, ledger: Path) -> dict[str, str]:
        """Of a run: a temporary folder of its own holds scratch folders and the host's lock."""
        return {
            **os.environ,
            "PYTHONPATH": str(HERE / "plugins"),
            "SHAREBENCH_TEST_LEDGER": str(ledger),
            "TMPDIR": str(self.root / "tmp"),
            "SHAREBENCH_LOCK_FOLDER": str(self.root / "tmp"),
            # Cells pass however much a hypervisor takes from the tests' machine; the gate has unit tests of its own.
            "SHAREBENCH_STEAL_PERCENT": "100",
        }

    def keep_first(self, result: Result) -> None:
        """Note what the run of a finished study did, for the tests that share the study."""
        kept = {"jobs": {rule: sorted(what) for rule, what in result.jobs.items()}, "moves": result.moves}
        (self.root / "first.json").write_text(json.dumps(kept))

    def first(self) -> tuple[Jobs, list[str | None]]:
        """The jobs of the run that finished this study, on four cores, and the states that the node entered."""
        kept = json.loads((self.root / "first.json").read_text())
        return {rule: set(what) for rule, what in kept["jobs"].items()}, kept["moves"]

    def journal(self, results: Path | None = None) -> list[str | None]:
        """All states that the node ever entered."""
        path = (results or self.results) / ".sharebench/node/journal.jsonl"
        return [json.loads(line)["to"] for line in path.read_text().splitlines()] if path.exists() else []

    def cells(self) -> set[str]:
        """The cells that have a record."""
        found = (path.parts[-5:-1] for path in self.results.glob("cells/*/*/n*/r*/raw.json"))
        return {f"{strategy}/{workload}/{n[1:]}/{r[1:]}" for strategy, workload, n, r in found}

    def raw(self, cell: str) -> Path:
        """The record of a cell (strategy/workload/replicas/repeat)."""
        strategy, workload, replicas, repeat = cell.split("/")
        return self.results / f"cells/{strategy}/{workload}/n{replicas}/r{repeat}/raw.json"

    def record(self, cell: str) -> dict[str, Any]:
        """A cell's record."""
        found: dict[str, Any] = json.loads(self.raw(cell).read_text())
        return found

    def edit_record(self, cell: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a cell's record behind the pipeline's back."""
        record = self.record(cell)
        change(record)
        self.raw(cell).write_text(json.dumps(record))

    def delete(self, *cells: str) -> None:
        """Delete the records of these cells."""
        for cell in cells:
            self.raw(cell).unlink()

    def plant(self, outage: dict[str, Any] | None) -> None:
        """Break the simulated device (see `sharebench.nodes.simulated.node`), or repair it."""
        path = self.results / ".sharebench/node/outage.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(outage)) if outage else path.unlink()

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a piece of a source file that occurs once."""
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))

    def files(self) -> set[str]:
        """Every file but what is of no account: Python's and Snakemake's caches and logs, and the tests' own."""
        ignored = ("tmp", ".snakemake/log", ".snakemake/iocache")
        paths = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return {str(path) for path in paths if not str(path).startswith(ignored) and "__pycache__" not in path.parts}

    def processes(self) -> list[psutil.Process]:
        """All processes of this checkout's runs, by the folder for temporary files that they were given."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if Path(process.environ().get("TMPDIR", "/")).is_relative_to(self.root / "tmp"):
                    found.append(process)
        return found

    def scratch(self) -> list[str]:
        """The tenants' scratch folders that are there."""
        return sorted(path.name for path in (self.root / "tmp").glob("sharebench-*/"))


class Hold:
    """Keeps the tenants of a run in loading, and so its cell in the middle, until it is released."""

    def __init__(self, checkout: Checkout) -> None:
        self.file = checkout.root / "tmp/hold"
        self.file.touch()
        self.environment = {"SHAREBENCH_TEST_HOLD": str(self.file)}

    def is_reached(self) -> bool:
        return self.file.with_name("hold.reached").exists()

    def release(self) -> None:
        self.file.unlink()


def in_mid_cell(checkout: Checkout) -> tuple[Running, Hold]:
    """A run whose first cell has started its tenants."""
    hold = Hold(checkout)
    running = checkout.start(environment=hold.environment)
    running.wait_for(hold.is_reached, "a tenant of the first cell")
    return running, hold


def end(processes: Iterable[psutil.Process]) -> None:
    """Kill these processes and wait for their end."""
    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def pairs(cells: Iterable[str]) -> set[str]:
    """The strategy/workload of these cells."""
    return {"/".join(cell.split("/")[:2]) for cell in cells}


def plots(cells: Iterable[str]) -> set[str]:
    """The node states of these cells under `order: blocks`, for strategies that do not depend on replicas."""
    return {f"{strategy} block {repeat}" for strategy, _, _, repeat in (cell.split("/") for cell in cells)}


def tabled(exported: Iterable[str]) -> Jobs:
    """The jobs that follow when the exports of these strategy/workload pairs and the tables are redone."""
    exports = {"export_histograms": set(exported)} if exported else {}
    return {**exports, "aggregate": {""}, **DERIVED}


DERIVED: Jobs = {"decide": {""}, "figures": {""}, "report": {""}}
"""What follows whenever the tables are redone."""


def measured(cells: Iterable[str]) -> Jobs:
    """The jobs of measuring these cells and all that follows from it."""
    cells = set(cells)
    return {"run_cell": cells, **tabled(pairs(cells))}


def dry_counts(out: str) -> dict[str, int]:
    """The job counts that a dry run prints, without the total."""
    table = out.split("Job stats:")[1].split("\n\n")[0]
    counts = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE)}
    return {name: count for name, count in counts.items() if name not in ("total", "all")}
