"""Rebuilds published data sets: tables, figures and report."""

import multiprocessing
import shutil
from pathlib import Path

from sharebench.core.files import Refusal
from sharebench.datasets import dataset
from sharebench.read.checker import RecordsRefused
from sharebench.read.decide import decide
from sharebench.read.figures.catalogue import names_for
from sharebench.read.figures.draw import draw_figure
from sharebench.read.report import page
from sharebench.rebuild import write_tables


def rebuild_all(names: list[str], published: Path, out: Path, workers: int = 1) -> None:
    """Rebuild each of these data sets of the folder `published` into `out`/name, in `workers` processes.

    Raises Refusal with a line for each data set that was refused.
    """
    # The largest comes first, so that no process waits for it at the end.
    in_order = sorted(names, key=lambda name: -_size(published / name))
    jobs = [(published / name, out / name) for name in in_order]
    # Forked processes share the imports of this file.
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        if refused := [line for line in pool.starmap(_rebuild_or_explain, jobs, chunksize=1) if line]:
            raise Refusal("\n".join(refused))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*"))


def _rebuild_or_explain(data: Path, out: Path) -> str:
    try:
        rebuild(data, out)
    except (dataset.DataSetError, RecordsRefused) as refusal:
        return f"{data}: {refusal}"
    except Exception as error:
        error.add_note(f"in {data}")
        raise
    return ""


def rebuild(published: Path, out: Path) -> None:
    """Write `out`/tables, manifest.json, figures and report.html from the data set `published`.

    Raises dataset.DataSetError and checker.RecordsRefused when its records are incomplete.
    """
    study, data = dataset.open_complete(published)
    write_tables(study, data, out)
    results = decide.read_results(data, out, dataset.other_studies([published]))
    decide.write_answer(results, dataset.resolve_question(study.config, (), (), study))
    if (data / "tables" / "timeslice.csv").is_file():
        shutil.copy(data / "tables" / "timeslice.csv", out / "tables")
    names = names_for(study.config, study.node_kind, out / "tables" / "summary.csv")
    probed = {"timeslice": "tables/timeslice.csv", "answers": "nodes/answers.json"}
    names += [name for name, file in probed.items() if (data / file).is_file()]
    names += ["devices"] if len((out / "tables" / "devices.csv").read_text().splitlines()) > 1 else []
    for name in names:
        draw_figure(name, data, out, ("svg",))
    page.write_report(data, out)
