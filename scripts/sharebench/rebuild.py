"""Tables of a finished data set, from its records."""

from pathlib import Path

from sharebench.core.files import read_json
from sharebench.datasets import dataset
from sharebench.measure.run import lifecycle
from sharebench.model.question import Question
from sharebench.model.run_record import RunRecord
from sharebench.read import aggregate
from sharebench.study.study import Study


def write_tables(published: Path, out: Path, question: Question | None = None) -> tuple[Study, Path]:
    """Write `out`/tables and manifest.json from the data set `published`, with the SLO of the question.

    Returns its study, and its folder once unpacked.

    Raises dataset.DataSetError and checker.RecordsRefused when its records are incomplete.
    """
    study = dataset.read_study(published)
    dataset.check_complete(study)
    if question is not None:
        study = dataset.apply_question(study, question)
    data = dataset.verified_folder(published)
    made_by = read_json(data / "manifest.json")
    # The original's time makes the same data give the same files.
    run: RunRecord = {
        "not_shown": made_by["not_shown"],
        "run_id": made_by["run_id"],
        "created_epoch_seconds": made_by["created_epoch_seconds"],
        "argv": ["snakemake", "paper"],
    }
    aggregate.write_tables(study, data, out, run | lifecycle.git_state())
    return study, data
