"""Applies today's gates to published records that have the verdicts of their time: what they newly say."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from publication.numbers import DataSet
from publication.tables import markdown
from sharebench.core.files import read_json
from sharebench.datasets import dataset
from sharebench.model.records import record
from sharebench.model.records.types import GateVerdict, Record
from sharebench.read.gates import gates

Group = tuple[str, str, str, int]
"""Gate, strategy, workload and number of tenants."""


def table(datasets: Mapping[str, DataSet]) -> str:
    """By study: cells that only today's gates exclude, or only the verdicts in their records, and new warnings."""
    rows = []
    for name, data in sorted(datasets.items()):
        excluded, valid = Counter[Group](), Counter[Group]()
        marked, judged = Counter[str](), Counter[str]()
        for own in _records(data.folder):
            cell, then, now = own["cell"], own["gates"], gates.evaluate(own)
            where = (str(cell["strategy"]), str(cell["workload"]), int(cell["replicas"]))
            excluded.update((gate, *where) for gate in _failed(now, "invalid") - _failed(then, "invalid"))
            valid.update((gate, *where) for gate in _failed(then, "invalid") - _failed(now, "invalid"))
            judged[where[1]] += 1
            marked[where[1]] += bool(_failed(now, "warning") - _failed(then, "warning"))
        warned = [f"`{workload}` {count} of {judged[workload]}" for workload, count in marked.items() if count]
        if excluded or valid or warned:
            rows.append(
                {
                    "study": name.split("/")[-1],
                    "excluded only today": _format_groups(excluded),
                    "excluded only then": _format_groups(valid),
                    "marked only today": ", ".join(warned),
                }
            )
    return markdown(rows)


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(dataset.verified_folder(folder).glob("cells/**/raw.json")):
        own = record.with_current_status(read_json(path))
        if own["status"] == "ok" and "gates" in own:
            yield own


def _failed(verdicts: Sequence[GateVerdict], severity: str) -> set[str]:
    return {gate["name"] for gate in verdicts if gate["severity"] == severity and not gate["passed"]}


def _format_groups(changed: Counter[Group]) -> str:
    return ", ".join(
        f"{strategy}, `{workload}` × {replicas}: {count} (`{gate}`)"
        for (gate, strategy, workload, replicas), count in changed.items()
    )
