"""Tables on whether cells count: gates.csv, evidence.csv, and outcomes.csv for cells that did not end well."""

from collections.abc import Iterator

from sharebench.model.records.types import Record
from sharebench.read.columns import TableRow

PASSED, FAILED, UNJUDGED = "passed", "failed", "unjudged"
COMMIT, LOCAL_CHANGES, UNKNOWN = "commit of the measuring code", " with local changes", "not known"


def gate_rows(record: Record) -> Iterator[TableRow]:
    """A row for each verdict on the cell; `unjudged` where its kind of node cannot know the value."""
    for gate in record["gates"]:
        outcome = FAILED if not gate["passed"] else PASSED if gate["value"] is not None else UNJUDGED
        yield {**record["cell"], **gate, "gate": gate["name"], "outcome": outcome}


def evidence_rows(record: Record) -> Iterator[TableRow]:
    for item in record["evidence"]:
        yield {**record["cell"], **item, "evidence": item["name"]}


def outcome_rows(record: Record) -> Iterator[TableRow]:
    """The row of a cell whose status is not `ok`, with the last lines of the log of the first tenant that has one."""
    if record["status"] == "ok":
        return
    tails = ((tenant["index"], tenant["exit"]["log_tail"]) for tenant in record["tenants"] if tenant["exit"])
    logs = (f"tenant {index}: {tail}" for index, tail in tails if tail)
    yield {**record["cell"], "status": record["status"], "reason": record["reason"], "log": next(logs, None)}


def provenance(record: Record) -> dict[str, str]:
    """By name (run, Python, a package …) where the record comes from."""
    found = record["provenance"]
    commit = found["git_commit"] or UNKNOWN
    return {
        "run": found["run_id"],
        COMMIT: commit + LOCAL_CHANGES * bool(found["git_dirty"]),
        "Python of the tenants": found["python"],
        "platform": found["platform"],
        **found["packages"],
    }
