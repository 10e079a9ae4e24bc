"""What all published data sets say together: findings, ours and theirs, and the documents with their numbers."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from publication import (
    bare_loop,
    marks,
    others,
    replication,
    tables,
)
from publication import (
    documents as paper_documents,
)
from publication import (
    findings as paper_findings,
)
from publication.numbers import DataSet
from sharebench import figures
from sharebench.core.files import replace_atomically
from sharebench.datasets import dataset
from sharebench.figures.page import save
from sharebench.figures.style import theme

REPOSITORY = "repository"
"""Below what is made: documents and images as the repository should hold them."""
THEIRS_SECTION = (
    "## Ours and theirs",
    "Every ratio is to a baseline of its own side: other devices, drivers and ways of measuring. Published numbers "
    'have no intervals. The error given to theirs is our guess: 25 % where it is said to be "about", 10 % where it is '
    "read off buckets, 5 % for one run.",
    "![Ours and theirs](images/findings/ours-and-theirs.svg)",
)


@dataclass(frozen=True)
class Together:
    """Findings and pairs of a checkout, filled in, and its documents with their numbers, by path in the checkout."""

    filler: paper_findings.Filler
    findings: list[paper_findings.Finding]
    pairs: list[others.Pair]
    images: dict[str, dict[str, Any]]
    """Name → figure of a block, as `figure` of a finding."""
    documents: dict[Path, str]


def read(root: Path, made: Path) -> Together:
    """From published/, docs/findings.yaml and the documents of `root`, and the tables in `made`.

    Raises paper_findings.Contradicted when the data do not say what the findings do.
    """
    published = root / "published"
    source = paper_findings.read_source(root / paper_findings.SOURCE)
    filler = paper_findings.Filler(source, published, made)
    filler.add(main_table=tables.main_table, strategy_table=tables.strategy_table)
    filler.add(unsteady=tables.unsteady_in_words)
    filler.add(model_table=tables.model_table, widest_percent=tables.widest_percent)
    filler.add(latency=tables.latency_in_words, latencies=tables.range_in_words)
    filler.add(rate=tables.rate_in_words, replication=replication.of)
    filler.add(measured_in=paper_documents.measured_in)
    filler.add(lit=others.Literature(published / "literature.csv"))
    filler.add(bare_loop=lambda publication: bare_loop.read(published / publication))
    datasets = {name: DataSet(name, published, made) for name in dataset.published(published)}

    def across_devices(publication: str, workload: str) -> dict[str, float]:
        own = {name: data for name, data in datasets.items() if name.split("/")[0] == publication}
        return paper_documents.across_devices(own, workload)

    filler.add(across_devices=across_devices)
    findings = [filler.finding(entry) for entry in source["findings"]]
    pairs = others.pairs(source["theirs"], filler)
    text = paper_findings.page(findings, filler, filler.text("introduction", source["introduction"]))
    documents = {paper_findings.PAGE: text + "\n" + "\n\n".join([*THEIRS_SECTION, others.table(pairs)]) + "\n"}
    for path in marks.documents(root):
        documents[path] = paper_documents.filled(path, root, filler, source["blocks"], datasets)
    return Together(filler, findings, pairs, source["images"], documents)


def write(root: Path, made: Path, out: Path, workers: int = 1) -> None:
    """Write `out`/repository and `out`/theirs.* of what `read` gives; so many processes draw. Raises as `read`."""
    together = read(root, made)
    for path, text in together.documents.items():
        replace_atomically(out / REPOSITORY / path, text)
    rows = others.as_csv(together.pairs)
    replace_atomically(out / "theirs.csv", pd.DataFrame(rows).to_csv(index=False))
    _draw(together, rows, out, workers)


def _draw(together: Together, rows: list[dict[str, Any]], out: Path, workers: int) -> None:
    from publication import others_figure

    filler, images = together.filler, out / REPOSITORY / paper_findings.IMAGES
    wanted = {each.name: each for each in together.findings if not each.is_open}
    jobs = []
    for name, figure in (together.images | {key: each.figure for key, each in wanted.items()}).items():
        target = images / f"{name}.svg"
        if figure["draw"] == "numbers":
            _draw_numbers(wanted[name], filler, target)
            continue
        drawn, workloads = filler.of[figure["of"]], figure.get("workloads", ())
        jobs.append((figure["draw"], dataset.located(drawn.folder), drawn.made, workloads, target))
    # What was imported above is there in each of them.
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.starmap(figures.draw_of, jobs, chunksize=1)
    devices = list(dict.fromkeys(data.device["product"] for data in filler.of.values()))
    with theme():
        page = others_figure.draw(rows, devices)
        save(page, out, "theirs")
        save(page, images, "ours-and-theirs", ("svg",))


def _draw_numbers(finding: paper_findings.Finding, filler: paper_findings.Filler, target: Path) -> None:
    """The figure of a finding that no figure of its study shows: its own numbers, by what `labels` calls them."""
    from publication import numbers_figure

    known = {label: finding.numbers[key] for key, label in finding.figure["labels"].items()}
    ends = {label: (number.value, number.low, number.high) for label, number in known.items()}
    facts = [filler.of[finding.figure["of"]].device["product"]]
    with theme():
        page = numbers_figure.draw(finding.figure["title"], facts, ends, finding.figure["axis"])
        save(page, target.parent, target.stem, ("svg",))
