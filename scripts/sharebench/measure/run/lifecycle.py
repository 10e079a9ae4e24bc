"""The start and the end of a run: claiming the node, and the closing lines."""

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sharebench.core import console
from sharebench.core.emphasis import show
from sharebench.core.files import REPOSITORY, SCRIPTS
from sharebench.core.redact import redact
from sharebench.measure.cell.prometheus.checked import CheckedServer, NotPrometheus
from sharebench.measure.cell.prometheus.server import PrometheusUnavailable
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host.programs.process_tree import set_subreaper
from sharebench.measure.nodes.node import Node
from sharebench.measure.run import interrupts, leftovers, ownership, placement
from sharebench.measure.run.placement import Placement, open_nodes
from sharebench.measure.run.plan import headline, remarks
from sharebench.measure.run.progress import reading_text
from sharebench.model import run_record
from sharebench.model.study_config import to_json
from sharebench.study.cells import Cell, cell_from_path
from sharebench.study.study import Study

if TYPE_CHECKING:
    from sharebench.measure.nodes.kubernetes.node import ClusterNode

LOG_LINES = 20
# With less a disk may not take a record, or a log.
LEAST_BYTES = 65536
KILLED = ": killed with the run, or by the kernel if memory was short (see dmesg)"
# Rules that need the node.
NODE_RULES = {
    *("characterise_node", "calibrate", "configure_node", "run_cell", "restore"),
    *("measure_answers", "measure_timeslice"),
}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(SCRIPTS.parent), *arguments]
    with contextlib.suppress(FileNotFoundError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


def archived_commit(checkout: Path = REPOSITORY) -> str | None:
    """The commit that `git archive` has written into the tree; None in a checkout, and without that file."""
    path = checkout / ".git-commit"
    found = re.fullmatch(r"[0-9a-f]{40}\s*", path.read_text(encoding="utf-8")) if path.is_file() else None
    return found[0].strip() if found else None


def git_state() -> run_record.RunRecord:
    """The run record's commit of the tree, and whether tracked files of a checkout differ from it; None if unknown."""
    archived = archived_commit()
    if archived is not None:
        return {"git_commit": archived, "git_dirty": None}
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit, "git_dirty": bool(changes) if commit else None}


def relative_argv(argv: Sequence[str]) -> list[str]:
    """The command with relative paths, so that neither a user's nor a host's name gets into the results."""
    # `python -m snakemake` calls itself __main__.py.
    name = Path(argv[0]).name.replace("__main__.py", "snakemake")
    return [name, *map(redact, argv[1:])]


def release_node(node: Node) -> None:
    # A lease that cannot be released expires, since it is no longer renewed.
    with contextlib.suppress(NodeError, OSError):
        node.release()


def _check_prometheus(study: Study) -> None:
    """Raise NotPrometheus where something else answers; one that is not up yet may be when a cell asks it."""
    if (url := study.config["prometheus"]["url"]) is not None:
        try:
            CheckedServer(url).vector("vector(1)")
        except NotPrometheus as error:
            raise NotPrometheus(f"{error}; prometheus.url is {url}") from None
        except PrometheusUnavailable:
            pass


def begin(
    study: Study,
    results: Path,
    needed: Mapping[str, Sequence[str]],
    argv: Sequence[str],
    not_shown: str,
    places: Placement | None = None,
    config_words: Sequence[str] = (),
) -> ownership.Claim:
    """Claim the results, and the node when there is something to measure; prints the plan's first line.

    `needed` maps the rules that will run to the first output of each of their jobs. `places` is the placement of a
    study on several devices, `config_words` the options that give another command the config. Raises OwnershipError.
    """
    first_cells = map(cell_from_path, needed.get("run_cell", ()))
    cells = {cell for first in first_cells for cell in study.cells_of_start(first, results)}
    jobs = {name: len(outputs) for name, outputs in needed.items()}
    needs_node, is_restore = not NODE_RULES.isdisjoint(needed), set(needed) == {"restore"}
    try:
        if cells:
            _check_prometheus(study)
        if needs_node:
            places = placement.run_placement(study, results, places, is_restore=is_restore)
        nodes = open_nodes(study, results, places.devices if places else ()) if needs_node else []
        lock_paths = [node.lock_path for node in nodes]
    except (NodeError, NotPrometheus) as error:
        raise ownership.OwnershipError(str(error)) from None
    record: run_record.RunRecord = {
        "config": to_json(study.config),
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
    claim.restore_command = restore_command(config_words)
    os.environ |= leftovers.run_environment(claim.run_id)
    # Processes whose job is killed become children of this process, whatever environment they have.
    set_subreaper(True)
    claim.cleanups.append(partial(set_subreaper, False))
    for node in nodes:
        try:
            node.claim(claim.run_id)
            claim.cleanups.append(partial(release_node, node))
            if problem := state_lines(node)[0]:
                raise NodeError(problem)
            # The node of a cluster sweeps when it is restored, and then foreign pods may run on it.
            if not (is_restore and node.kind == "kubernetes"):
                node.sweep()
        except (NodeError, OSError) as error:
            claim.release()
            raise ownership.OwnershipError(str(error)) from None
        except KeyboardInterrupt:
            claim.release()
            left = f"; an earlier run may have left the node changed; restore it: {claim.restore_command}"
            raise ownership.OwnershipError(f"interrupted{'' if node.state_outlives_run else left}") from None
    if not is_restore:
        texts = (
            headline(study, claim.record, cells, jobs, places),
            reading_text(results, jobs),
            replaced_text(study, results, cells),
        )
        lines = [line for text in texts for line in console.wrap_text(text)]
        print(*lines, *remarks(study), sep="\n", file=sys.stderr)
    return claim


def replaced_text(study: Study, results: Path, cells: Iterable[Cell]) -> str:
    """Why records that are there are measured once more, by another version of the code; empty without any."""
    commits: Counter[str] = Counter()
    for cell in cells:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            record = json.loads((results / cell.raw).read_bytes())
            if record["code"] != study.code(cell.workload):
                commits[(record["provenance"]["git_commit"] or "unknown")[:8]] += 1
    if not commits:
        return ""
    return (
        f"{commits.total()} of these cells have a record by other code (commit {', '.join(commits)}) than this "
        "version's, so they are re-measured and replaced, one after another; a run into "
        "another folder keeps them (--config results=…)"
    )


def is_full(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free < LEAST_BYTES
    return False


def failed_logs(logs: Sequence[Path], started_epoch_seconds: float) -> list[str]:
    """The last lines of the logs of this run's failed jobs."""
    lines = []
    for log in logs:
        if not log.exists() or log.stat().st_mtime < started_epoch_seconds:
            continue
        tail = console.plain_text(log.read_text(errors="replace")).strip().splitlines()[-LOG_LINES:]
        if not tail:
            tail = ["ended without a message" + ("" if is_full(log.parent) else KILLED)]
        lines += [f"--- {log}", *(["interrupted"] if tail[-1] == "KeyboardInterrupt" else tail)]
    return lines


def restore_command(config_words: Sequence[str]) -> str:
    """What to type to restore the node with this config; the folder comes first where Snakemake has changed it."""
    folder, shell_folder = Path.cwd(), Path(os.environ.get("PWD", ""))
    is_here = shell_folder.exists() and shell_folder.samefile(folder)
    command = shlex.join(["sharebench", "restore", *config_words])
    return command if is_here else f"cd {shlex.quote(str(folder))} && {command}"


def left_line(claim: ownership.Claim, is_back: Callable[[bool], bool] = lambda _: False) -> Callable[[], str]:
    """Returns what a run says that the user leaves at that moment, before it has ended in order."""
    in_order = "left at once; the same command again does only what is missing"
    run = claim.current_record()
    nodes = open_nodes(Study(run["config"]), Path(), run.get("devices", ()))
    if NODE_RULES.isdisjoint(run["jobs"]) or all(node.state_outlives_run for node in nodes):
        return lambda: in_order
    changed = f"the node is left as it is; restore it: {claim.restore_command}"
    return lambda: in_order if is_back(False) else changed


def say_restoring(study: Study) -> None:
    # Only plugins in a cluster take long.
    seconds = study.config["kubernetes"]["switch_seconds"] if study.node_kind == "kubernetes" else None
    limit = "" if seconds is None else f", up to {console.format_duration(seconds)}"
    print(f"restoring the node{limit}; press Ctrl-C again to leave it as it is", file=sys.stderr)


def state_lines(node: Node) -> tuple[str | None, str | None]:
    """A failure and a warning on the state of a cluster's node; None for nothing. Raises NodeError."""
    if node.kind != "kubernetes":
        return None, None
    # Imported here, since the import takes a quarter of a second.
    from sharebench.measure.nodes.kubernetes.preflight import lost_state

    return lost_state.state_lines(cast("ClusterNode", node))


def _restore_nodes(
    study: Study, claim: ownership.Claim, devices: Sequence[run_record.DeviceEntry]
) -> tuple[list[str], list[str]]:
    """Restore every node whose state must not outlast the run; returns lines for failures and warnings."""
    failures: list[str] = []
    warnings: list[str] = []
    nodes = [node for node in open_nodes(study, claim.results, devices) if not node.state_outlives_run]
    if any(node.current() is not None for node in nodes):
        say_restoring(study)
    for node in nodes:
        try:
            node.restore()
            lost, unready = state_lines(node)
            failures += filter(None, [lost])
            warnings += filter(None, [unready])
        except (NodeError, OSError) as error:
            failures.append(f"the node could not be restored: {error}; restore it: {claim.restore_command}")
    return failures, warnings


def finish(
    claim: ownership.Claim,
    study: Study,
    unfinished: Sequence[Path] | None,
    closing_lines: Callable[[Path], list[str]],
    is_back: Callable[[bool], bool] = lambda _: False,
) -> bool:
    """End what is left of the run, restore the node, print how the run went, and release results and node.

    `unfinished` is None after success, else the logs of the unfinished jobs: they are shown, and the cells that were
    measured get tables under partial/. `closing_lines` are those of finished results. `is_back` returns whether the
    node was restored before, and waits for that if it may. Returns whether the node is as it was.
    """
    results = claim.results
    run = claim.current_record()
    with interrupts.left_at_once(left_line(claim, is_back)):
        claim.end_processes()
        is_done = NODE_RULES.isdisjoint(run["jobs"]) or is_back(True)
        failures, warnings = ([], []) if is_done else _restore_nodes(study, claim, run.get("devices", ()))
    no_tables = "no tables of what was measured until now; the same command again makes them"
    with interrupts.left_at_once(lambda: no_tables):
        if unfinished is None:
            closing = closing_lines(results) if "report" in run["jobs"] else []
            lines = [part for line in closing for part in console.wrap_text(line)]
            lines += [f"archive: {results / 'archive.zip'}"] * ("archive" in run["jobs"])
        else:
            lines = _failure_lines(results, study, run, unfinished)
        claim.release()
    # A closed terminal takes no text.
    with contextlib.suppress(OSError):
        for line in filter(None, lines + warnings + failures):
            show(line, sys.stderr)
    return not failures


def _failure_lines(results: Path, study: Study, run: run_record.RunRecord, unfinished: Sequence[Path]) -> list[str]:
    """What a run says that was not complete, after making tables of what it measured."""
    lines = failed_logs(unfinished, run["started_epoch_seconds"])
    # The error of a write names no path.
    if is_full(results) or any(os.strerror(errno.ENOSPC) in line for line in lines):
        lines.append(f"{results}: no space left on its disk; free some")
    lines += [f"the node is down: {run['down']}"] if run["down"] else []
    lines += placement.down_device_lines(run)
    if not study.config["from"]:
        script = [sys.executable, str(SCRIPTS / "job.py"), "table_failed_run", "--results", str(results)]
        # In a session of its own, so that a Ctrl-C ends it only through this process.
        tabling = subprocess.run(script, capture_output=True, text=True, check=False, start_new_session=True)
        lines += tabling.stdout.splitlines() or tabling.stderr.splitlines()[-1:]
    if not any(line.startswith("re-measure them:") for line in lines):
        lines.append("not complete: the same command again does only what is missing")
    return lines
