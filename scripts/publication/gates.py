"""Published records whose gates have changed since: which cells count no more, and which carry a warning now."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from publication.numbers import DataSet
from publication.tables import markdown
from sharebench.core.files import read_json
from sharebench.datasets import dataset
from sharebench.gates import gates
from sharebench.records import record
from sharebench.records.types import Record

Group = tuple[str, str, str, int]
"""Gate, strategy, workload and number of tenants."""


def table(datasets: Mapping[str, DataSet]) -> str:
    """By study: cells that count only by the verdicts in their records or only by those of today, and new warnings."""
    rows = []
    for name, data in sorted(datasets.items()):
        gone, back, marked, judged = _changes(data.folder)
        if gone or back or marked:
            warned = (f"`{workload}` {count} of {judged[workload]}" for workload, count in marked.items())
            rows.append(
                {
                    "study": name.split("/")[-1],
                    "excluded only today": _in_words(gone),
                    "excluded only then": _in_words(back),
                    "marked only today": ", ".join(warned),
                }
            )
    return markdown(rows)


def _changes(folder: Path) -> tuple[Counter[Group], Counter[Group], Counter[str], Counter[str]]:
    gone: Counter[Group] = Counter()
    back: Counter[Group] = Counter()
    marked: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for own in _records(folder):
        cell = own["cell"]
        then, now = ({gate["name"]: gate for gate in verdicts} for verdicts in (own["gates"], gates.evaluate(own)))
        where = (str(cell["strategy"]), str(cell["workload"]), int(cell["replicas"]))
        gone.update((gate, *where) for gate in _failed(now, "invalid") - _failed(then, "invalid"))
        back.update((gate, *where) for gate in _failed(then, "invalid") - _failed(now, "invalid"))
        judged[where[1]] += 1
        marked[where[1]] += bool(_failed(now, "warning") - _failed(then, "warning"))
    return gone, back, +marked, judged


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(dataset.verified_folder(folder).glob("cells/**/raw.json")):
        own = record.with_current_status(read_json(path))
        if own["status"] == "ok":
            yield own


def _failed(verdicts: Mapping[str, Mapping[str, object]], severity: str) -> set[str]:
    return {name for name, gate in verdicts.items() if gate["severity"] == severity and not gate["passed"]}


def _in_words(changed: Counter[Group]) -> str:
    return ", ".join(
        f"{strategy}, `{workload}` × {replicas}: {count} (`{gate}`)"
        for (gate, strategy, workload, replicas), count in changed.items()
    )
