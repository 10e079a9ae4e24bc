"""Tables of a finished data set, from its records."""

from pathlib import Path

from sharebench.core.files import read_json
from sharebench.measure.run import lifecycle
from sharebench.model.run_record import RunRecord
from sharebench.read import aggregate
from sharebench.study.study import Study


def write_tables(study: Study, data: Path, out: Path) -> None:
    """Write `out`/tables and manifest.json from a complete data set. Raises checker.RecordsRefused."""
    made_by = read_json(data / "manifest.json")
    # The original's time makes the same data give the same files.
    run: RunRecord = {
        "not_shown": made_by["not_shown"],
        "run_id": made_by["run_id"],
        "created_epoch_seconds": made_by["created_epoch_seconds"],
        "argv": ["snakemake", "paper"],
    }
    aggregate.write_tables(study, data, out, run | lifecycle.git_state())
