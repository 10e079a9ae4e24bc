"""The start and the end of a run: its claim, and its last lines."""

import contextlib
import csv
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sharebench.core import console, run_record
from sharebench.core.console import format_count
from sharebench.core.files import SCRIPTS
from sharebench.core.spec import workload_label
from sharebench.core.strategies import is_control
from sharebench.datasets import dataset
from sharebench.nodes.contract import NodeError
from sharebench.nodes.node import Node
from sharebench.run import ownership, placement
from sharebench.run.placement import Placement, nodes_of
from sharebench.run.plan import headline
from sharebench.study.cells import cell_of
from sharebench.study.study import Study

LOG_LINES = 20
# In the reason of an excluded cell.
GATE = re.compile(r"(?:^|; )([a-z_]+): ")
# Rules that need the node.
NODE_RULES = {"characterise_node", "calibrate", "configure_node", "run_cell", "restore", "measure_timeslice"}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(SCRIPTS.parent), *arguments]
    with contextlib.suppress(FileNotFoundError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


def git_state() -> run_record.RunRecord:
    """Of a run record: commit of the checkout and whether tracked files differ from it; None outside git."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit, "git_dirty": bool(changes) if commit else None}


def relative_argv(argv: Sequence[str]) -> list[str]:
    """The command as one would type it here: no absolute paths, so no user or host in the results."""
    # `python -m snakemake` calls itself __main__.py.
    return ["snakemake", *map(dataset.redact, argv[1:])]


def _let_go(node: Node) -> None:
    # What cannot be released ends by itself, as it is not renewed any more.
    with contextlib.suppress(NodeError, OSError):
        node.release()


def begin(
    study: Study,
    results: Path,
    needed: Mapping[str, Sequence[str]],
    argv: Sequence[str],
    not_shown: str,
    places: Placement | None = None,
) -> ownership.Claim:
    """Claim the results, and the node when there is something to measure; prints the plan's first line.

    `needed` maps the rules that will run to the first output of each of their jobs. `places` are those of a study on
    several devices. Raises OwnershipError.
    """
    cells = {cell_of(path) for path in needed.get("run_cell", ())}
    jobs = {name: len(outputs) for name, outputs in needed.items()}
    measuring = not NODE_RULES.isdisjoint(needed)
    try:
        if measuring:
            places = placement.of_run(study, results, places, is_way_back=set(needed) == {"restore"})
        nodes = nodes_of(study, results, places.devices if places else ()) if measuring else []
        lock_paths = [node.lock_path for node in nodes]
    except NodeError as error:
        raise ownership.OwnershipError(str(error)) from None
    record: run_record.RunRecord = {
        "config": study.config,
        "node_kind": study.node_kind,
        "order": study.order,
        "not_shown": not_shown,
        "argv": relative_argv(argv),
        "planned": len(cells),
        "jobs": jobs,
    }
    if places:
        record |= {"devices": places.devices, "placement": dict(places.numbers)}
    claim = ownership.claim(results, record | git_state(), *filter(None, lock_paths))
    os.environ[run_record.RUN_ID_VARIABLE] = claim.run_id
    for node in nodes:
        try:
            node.claim(claim.run_id)
            claim.endings.append(partial(_let_go, node))
            node.sweep()
        except (NodeError, OSError, KeyboardInterrupt) as error:
            claim.release()
            raise ownership.OwnershipError(str(error) or "interrupted") from None
    plan_line = headline(study, run_record.read_run(results), cells, jobs, places)
    print(*console.wrap_text(plan_line), sep="\n", file=sys.stderr)
    return claim


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())


def ending_lines(tables: Path, where: Path) -> list[str]:
    """What of a study did not go well, by kind, from its cells.csv: bad endings, excluded cells, and warnings.

    The file `where` shows which cells have these warnings.
    """
    with (tables / "cells.csv").open(newline="") as file:
        # A cell has a row for each tenant, which say the same of the cell.
        cells = {
            tuple(row[key] for key in ("strategy", "workload", "replicas", "repeat")): row
            for row in csv.DictReader(file)
        }
    found: dict[str, list[tuple[str, ...]]] = {}
    for cell, row in cells.items():
        if row["status"] not in ("ok", "infeasible"):
            found.setdefault(row["status"], []).append(cell)
        elif row["status"] == "ok" and row["valid"] != "True":
            found.setdefault("excluded", []).append(cell)
    lines = []
    for what, those in found.items():
        strategy, workload, replicas, _ = those[0]
        kinds = len({cell[:3] for cell in those})
        others = f" and {format_count(kinds - 1, 'other', 'others')}" if kinds > 1 else ""
        reason = cells[those[0]]["reason"].split("; ")[0]
        first = f"{workload}, {strategy} × {replicas}{others}"
        if what == "excluded":
            what += f" by {_counts(name for cell in those for name in GATE.findall(cells[cell]['reason']))}"
        lines.append(f"{len(those)} of {len(cells)} cells {what}: {first}: {reason}")
    if warned := [row["warnings"].split(";") for row in cells.values() if row["warnings"]]:
        names = _counts(name for own in warned for name in own)
        lines.append(f"{len(warned)} of {len(cells)} cells carry a warning: {names}; see {where}")
    return lines


def _result(row: Mapping[str, str]) -> str:
    """What a row of the summary says: how long, how much slower than alone, and how much of it; or why it does not."""
    missing = "no mean" if row["status"] == "ok" else row["status"]
    missing += f" ({row['reason'].split('; ')[0]})" if row["reason"] else ""

    def known(metric: str, words: str, factor: float = 1.0) -> str:
        return words.format(factor * float(row[metric])) if row.get(metric) else ""

    times = known("ttft_p50_seconds", "median TTFT {:.4g} ms", 1e3), known("tpot_p50_seconds", "TPOT {:.4g} ms", 1e3)
    mean = known("latency_mean_seconds", "{:.4g} ms", 1e3)
    rate = known("output_tokens_total_hz", "{:.4g} tokens/s in all")
    parts = (
        ", ".join(filter(None, times)) or mean or missing,
        known("slowdown", "slowdown {:.2f}"),
        rate or known("throughput_total_hz", "{:.4g}/s in all"),
        known("goodput_total_hz", "{:.4g}/s within the SLO"),
    )
    return ", ".join(filter(None, parts))


def closing_lines(results: Path) -> list[str]:
    """What a finished run says: the main table at the largest number of tenants, what did not go well, and where the
    report is.

    Workloads that only ran alone, such as the baselines of pairs, come last.
    """
    with (results / "tables" / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    compared: list[str] = []
    alone: list[str] = []
    for workload, tenant in dict.fromkeys((row["workload"], row["tenant_workload"]) for row in rows):
        own: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            if (row["workload"], row["tenant_workload"]) == (workload, tenant) and not is_control(row["strategy"]):
                own.setdefault(row["strategy"], []).append(row)
        for name, those in own.items():
            # What ended well stands for the strategy rather than the rest, and then what is larger.
            row = max(those, key=lambda each: (each["status"] == "ok", int(each["replicas"])))
            line = f"{workload_label(workload, tenant)}, {name} × {row['replicas']}: {_result(row)}"
            (alone if len(own) == 1 and row["replicas"] == "1" else compared).append(line)
    lines = compared + alone
    shown = lines[:4]
    more = f" ({len(lines) - len(shown)} more in tables/summary.md)" if len(lines) > len(shown) else ""
    label = rows[0].get("label", "") if rows else ""
    return [
        *([f"{label}:"] if label else []),
        *shown,
        *ending_lines(results / "tables", results / "report.html"),
        f"report: {results / 'report.html'}{more}",
    ]


def failed_logs(logs: Sequence[Path], started_epoch_seconds: float) -> list[str]:
    """The last lines of the logs that this run's failed jobs left."""
    lines = []
    for log in logs:
        if not log.exists() or log.stat().st_mtime < started_epoch_seconds:
            continue
        tail = console.plain_text(log.read_text(errors="replace")).strip().splitlines()[-LOG_LINES:]
        if not tail:
            tail = ["ended without a word: killed, by the kernel if memory was short (see dmesg)"]
        lines += [f"--- {log}", *(["interrupted"] if tail[-1] == "KeyboardInterrupt" else tail)]
    return lines


def leave_node(study: Study, results: Path, run: run_record.RunRecord) -> list[str]:
    """Restore a node, or each of its devices, whose state must not outlast the run; lines when that fails."""
    lines = []
    for node in nodes_of(study, results, run.get("devices", ())):
        try:
            if not node.state_outlives_run:
                node.restore()
        except (NodeError, OSError) as error:
            lines.append(f"the node could not be restored: {error}; `snakemake restore` tries again")
    return lines


def finish(claim: ownership.Claim, study: Study, unfinished: Sequence[Path] | None) -> None:
    """Release results and node, and print how the run went.

    `unfinished` is None after success, else the logs of the jobs that did not finish: they are shown, and what the
    run did measure gets tables under partial/.
    """
    results = claim.results
    run = run_record.read_run(results)
    trouble = leave_node(study, results, run) if not NODE_RULES.isdisjoint(run["jobs"]) else []
    claim.release()
    if unfinished is None:
        closing = closing_lines(results) if "report" in run["jobs"] else []
        lines = [part for line in closing for part in console.wrap_text(line)]
    else:
        lines = failed_logs(unfinished, run["started_epoch_seconds"])
        lines += [f"the node is down: {run['down']}"] if run["down"] else []
        lines += placement.given_up(run)
        if not study.config["from"]:
            script = [sys.executable, str(SCRIPTS / "job.py"), "table_failed_run", "--results", str(results)]
            try:
                made = subprocess.run(script, capture_output=True, text=True, check=False)
                lines += made.stdout.splitlines() or made.stderr.splitlines()[-1:]
            except KeyboardInterrupt:
                lines.append("interrupted again: no tables of what was measured until now")
            if (results / "partial" / "cells.csv").exists():
                lines += ending_lines(results / "partial", results / "partial" / "cells.csv")
        if not any(line.startswith("re-measure them:") for line in lines):
            lines.append("not complete: the same command again does only what is missing")
    lines += trouble
    if said := [line for line in lines if line]:
        print("\n".join(said), file=sys.stderr)
