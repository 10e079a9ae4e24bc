"""Records with the verdicts of the current gates, so that the same limits apply to all data sets."""

from pathlib import Path

from sharebench.model.records import record
from sharebench.model.records.types import Record
from sharebench.read.gates import gates


def read_judged(path: Path) -> Record:
    """The record in the file with the verdicts of the current gates. Raises RecordError as `record.read` does."""
    stored = record.read(path)
    return {**stored, "gates": gates.evaluate(stored)}
