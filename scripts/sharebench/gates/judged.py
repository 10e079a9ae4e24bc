"""Records with the verdicts of today's gates, so that all data sets are held to the same limits."""

from pathlib import Path

from sharebench.gates import gates
from sharebench.records import record
from sharebench.records.types import Record


def read_judged(path: Path) -> Record:
    """The record in the file, judged by the gates as they are now. Raises RecordError as `record.read` does."""
    found = record.read(path)
    return {**found, "gates": gates.evaluate(found)}
