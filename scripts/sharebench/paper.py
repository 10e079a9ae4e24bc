"""A published data set drawn again for papers: its tables, and every figure in the widths of one column and of two."""

from __future__ import annotations

from pathlib import Path

from sharebench import aggregate, dataset, decide, figures, lifecycle
from sharebench.files import read_json


def draw(data: Path, out: Path) -> None:
    """Write `out`/tables, manifest.json and figures from the data set `data`.

    Raises dataset.DataSetError and aggregate.Refused when its records are not whole.
    """
    study = dataset.study_of(data)
    dataset.check_whole(study)
    made_by = read_json(data / "manifest.json")
    run = {key: made_by[key] for key in ("not_shown", "run_id")} | {"argv": ["snakemake", "paper"]}
    aggregate.table(study, data, out, run | lifecycle.git_state())
    results = decide.read(data, out)
    catalogue = study.config["workload_catalogue"]
    decide.write_model(results, {name: catalogue[name]["class"] for name in study.calibrated()})
    decide.write_answer(results, study.config)
    for name in figures.names_for(study.config, study.node_kind):
        figures.draw(name, data, out, for_paper=True)
