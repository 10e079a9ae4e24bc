"""Builds the findings, the comparison with published numbers, and the documents, from all published data sets."""

import multiprocessing
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from publication import cross_checks, edition, gates, promises, ready, replication, slices, tables
from publication.documents import BLOCK, documents_with_blocks
from publication.findings import (
    IMAGE_FOLDER,
    PAGE_FILE,
    Contradicted,
    Filler,
    Finding,
    Source,
    findings_page,
    read_source,
)
from publication.numbers import DataSet, Number
from sharebench.core.files import replace_atomically
from sharebench.datasets import dataset
from sharebench.read.figures import draw
from sharebench.read.figures.page import save, sheet
from sharebench.read.figures.panels import draw_ratio, set_ratio_axes
from sharebench.read.figures.style import theme

ROW_INCHES = 0.25
REPOSITORY = "repository"
"""Folder of the output with documents and images as the repository should hold them."""
THEIRS_SECTION = (
    "## Ours and theirs",
    "Each ratio is to a baseline of its own side. Published numbers have no intervals; the error given to theirs is "
    'our guess: 25 % where it is said to be "about", 10 % where it is read off buckets, 5 % for one run.',
    "![Ours and theirs](images/findings/ours-and-theirs.svg)",
)


@dataclass(frozen=True)
class DocumentSet:
    """Findings and published ratios, filled in, and the documents and ready tables of the checkout, by path."""

    filler: Filler
    findings: list[Finding]
    ratios: list[cross_checks.PublishedRatio]
    files: dict[Path, str]


def build_documents(root: Path, rebuilt: Path) -> DocumentSet:
    """Build from published/, docs/findings.yaml and the documents of `root`, and from the tables in `rebuilt`.

    Raises Contradicted where the data contradict a finding.
    """
    published = root / "published"
    source = read_source(root)
    filler = Filler(source, published, rebuilt)
    filler.add_functions(main_table=tables.main_table, strategy_table=tables.strategy_table)
    filler.add_functions(unsteady_clause=tables.unsteady_clause, widest_percent=tables.widest_percent)
    filler.add_functions(describe_measurement=tables.describe_measurement, replication=replication.compare_collections)
    filler.add_functions(latency=tables.format_latency, latencies=tables.format_latency_range, rate=tables.format_rate)
    filler.add_functions(take=tables.take)
    filler.add_functions(literature=partial(cross_checks.literature_value, published / "literature.csv"))
    filler.add_functions(bare_loop=lambda publication: cross_checks.read_bare_loop(published / publication))
    filler.add_functions(slices=lambda publication: slices.read_slices(published / publication))
    datasets = {name: DataSet(name, published, rebuilt) for name in dataset.list_published(published)}
    filler.add_functions(
        device_spread=lambda name, workload: tables.device_spread(_studies_of(name, datasets), workload)
    )
    findings = [filler.fill_finding(entry) for entry in source.findings]
    ratios = cross_checks.published_ratios(source, filler)
    text = findings_page(findings, filler, filler.render("introduction", source.introduction))
    files = {PAGE_FILE: text + "\n" + "\n\n".join([*THEIRS_SECTION, cross_checks.ratios_table(ratios)]) + "\n"}
    for path in documents_with_blocks(root):
        files[path] = fill_blocks(path, root, filler, source, datasets)
    for name, data in datasets.items():
        folder = published.relative_to(root) / name
        files |= {folder / path: text for path, text in ready.ready_files(data.folder, data.rebuilt).items()}
    return DocumentSet(filler, findings, ratios, files)


def _studies_of(publication: str, datasets: Mapping[str, DataSet]) -> dict[str, DataSet]:
    return {name: data for name, data in datasets.items() if name.split("/")[0] == publication}


STUDY_BLOCKS: Mapping[str, Callable[[Mapping[str, DataSet]], str]] = {
    "facts": tables.facts_table,
    "setup": tables.setup_list,
    "devices": tables.devices_table,
    "gates": gates.table,
    "promises": promises.promises_table,
    "answers": promises.answers_table,
}
"""Name of a block → its text from the studies of the publication whose document has it."""


def fill_blocks(path: Path, root: Path, filler: Filler, source: Source, datasets: Mapping[str, DataSet]) -> str:
    """The document with its blocks filled in; `datasets` has all published data sets by name. Raises Contradicted."""
    own = _studies_of(path.parent.name, datasets)
    known: dict[str, Callable[[], str]] = {name: partial(block, own) for name, block in STUDY_BLOCKS.items()}
    known |= {name: partial(block, own, datasets, root) for name, block in edition.BLOCKS.items()}
    known[cross_checks.BARE_LOOP_FOLDER] = lambda: cross_checks.read_bare_loop(root / path.parent).table()
    known |= {name: partial(filler.fill_block, name, text) for name, text in source.blocks.items()}

    def fill(found: re.Match[str]) -> str:
        if found[2] not in known:
            raise Contradicted(f"{path}: there is no block {found[2]}; known are {', '.join(known)}")
        return f"{found[1]}{known[found[2]]()}\n{found[4]}"

    return BLOCK.sub(fill, (root / path).read_text(encoding="utf-8"))


def write(root: Path, made: Path, out: Path, workers: int = 1) -> None:
    """Write `out`/repository and `out`/theirs.*; `workers` processes draw the figures. Raises Contradicted."""
    documents = build_documents(root, made)
    for path, text in documents.files.items():
        replace_atomically(out / REPOSITORY / path, text)
    replace_atomically(out / "theirs.csv", cross_checks.ratios_frame(documents.ratios).to_csv(index=False))
    _draw(documents, out, workers)


def _draw(documents: DocumentSet, out: Path, workers: int) -> None:
    filler, images = documents.filler, out / REPOSITORY / IMAGE_FOLDER
    with theme():
        page = cross_checks.draw_ratios(documents.ratios)
        save(page, out, "theirs")
        save(page, images, "ours-and-theirs", ("svg",))
    jobs = []
    for finding in documents.findings:
        if finding.is_open:
            continue
        figure, target = finding.entry.figure, images / finding.entry.name
        if figure.draw == "numbers":
            draw_numbers(finding, filler, target)
        else:
            data = filler.data_sets[figure.of]
            note = remark_on(data, figure.workloads)
            jobs.append((figure.draw, data.unpacked, data.rebuilt, ("svg",), figure.workloads, target, note))
    # Forked processes share the imports of this file.
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.starmap(draw.draw_figure, jobs, chunksize=1)


def remark_on(data: DataSet, workloads: list[str]) -> str:
    """The data set's remark on what it lacks, without what concerns other workloads only."""
    study, remark = dataset.read_study(data.folder), str(data.manifest["not_shown"])
    for note in (dataset.excluded_cells_note, dataset.short_windows_note):
        if whole := note(study):
            remark = remark.replace(whole, note(study, workloads))
    return " ".join(remark.split())


def draw_numbers(finding: Finding, filler: Filler, target: Path) -> None:
    """Draw a finding that no figure of its study shows: one line for each of its numbers that `labels` names.

    Intervals are drawn where there are any, on a log scale.
    """
    figure = finding.entry.figure
    numbers = {label: cast(Number, finding.numbers[key]) for key, label in figure.labels.items()}
    with theme():
        page = sheet(
            figure.title,
            [filler.data_sets[figure.of].device["product"]],
            1,
            "Bars are 95 % intervals, where there are any; some are shorter than their mark.",
            x_label=figure.axis,
            panel_inches=ROW_INCHES * (len(numbers) + 1),
        )
        (ax,) = page.axes
        values = [1.0, *(end for number in numbers.values() for end in (number.value, *number.ends))]
        set_ratio_axes(ax, list(numbers), min(values) / 1.3, max(values) * 1.3)
        for y, (label, number) in enumerate(numbers.items()):
            draw_ratio(ax, y, number.value, number.ends)
            page.alt_text.append(f"{label}: {number.value:.3g}")
        save(page, target.parent, target.name, ("svg",))
