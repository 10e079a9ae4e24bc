"""What all published data sets say together: findings, ours and theirs, and the documents with their numbers."""

import multiprocessing
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from publication import edition, gates, others, ready, replication, tables
from publication.documents import BLOCK, marked
from publication.findings import IMAGES, PAGE, SOURCE, Contradicted, Filler, Finding, Source, page, read_source
from publication.numbers import DataSet, Number
from sharebench.core.files import replace_atomically
from sharebench.datasets import dataset
from sharebench.figures import draw
from sharebench.figures.page import save, sheet
from sharebench.figures.panels import Ratio, draw_ratio, ratio_axes
from sharebench.figures.style import theme

ROW_INCHES = 0.25
REPOSITORY = "repository"
"""Below what is made: documents and images as the repository should hold them."""
THEIRS_SECTION = (
    "## Ours and theirs",
    "Each ratio is to a baseline of its own side. Published numbers have no intervals; the error given to theirs is "
    'our guess: 25 % where it is said to be "about", 10 % where it is read off buckets, 5 % for one run.',
    "![Ours and theirs](images/findings/ours-and-theirs.svg)",
)


@dataclass(frozen=True)
class Together:
    """Findings and pairs of a checkout, filled in, and what it holds by rule, by path in the checkout.

    That is documents with their numbers, and ready tables.
    """

    filler: Filler
    findings: list[Finding]
    pairs: list[others.Pair]
    documents: dict[Path, str]


def read(root: Path, made: Path) -> Together:
    """From published/, docs/findings.yaml and the documents of `root`, and the tables in `made`.

    Raises Contradicted when the data contradict a finding.
    """
    published = root / "published"
    source = read_source(root / SOURCE)
    filler = Filler(source, published, made)
    filler.add(main_table=tables.main_table, strategy_table=tables.strategy_table, unsteady=tables.unsteady_in_words)
    filler.add(widest_percent=tables.widest_percent, measured_in=tables.measured_in, replication=replication.of)
    filler.add(latency=tables.latency_in_words, latencies=tables.range_in_words, rate=tables.rate_in_words)
    filler.add(lit=partial(others.literature, published / "literature.csv"))
    filler.add(bare_loop=lambda publication: others.bare_loop(published / publication))
    datasets = {name: DataSet(name, published, made) for name in dataset.list_published(published)}

    def across_devices(publication: str, workload: str) -> dict[str, float]:
        own = {name: data for name, data in datasets.items() if name.split("/")[0] == publication}
        return tables.across_devices(own, workload)

    filler.add(across_devices=across_devices)
    findings = [filler.finding(entry) for entry in source.findings]
    pairs = others.pairs(source, filler)
    text = page(findings, filler, filler.text("introduction", source.introduction))
    documents = {PAGE: text + "\n" + "\n\n".join([*THEIRS_SECTION, others.table(pairs)]) + "\n"}
    for path in marked(root):
        documents[path] = filled(path, root, filler, source, datasets)
    for name, data in datasets.items():
        folder = published.relative_to(root) / name
        documents |= {folder / path: text for path, text in ready.files(data.folder, data.made).items()}
    return Together(filler, findings, pairs, documents)


OF_A_PUBLICATION: Mapping[str, Callable[[Mapping[str, DataSet]], str]] = {
    "facts": tables.facts,
    "setup": tables.setup,
    "devices": tables.devices,
    "gates": gates.table,
}
"""Blocks about the studies of the publication whose document has them."""


def filled(path: Path, root: Path, filler: Filler, source: Source, datasets: Mapping[str, DataSet]) -> str:
    """The document with its blocks filled in; `datasets` are all that is published, by name. Raises Contradicted."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        own = {key: data for key, data in datasets.items() if key.split("/")[0] == path.parent.name}
        if name in OF_A_PUBLICATION:
            content = OF_A_PUBLICATION[name](own)
        elif name in edition.BLOCKS:
            content = edition.BLOCKS[name](own, datasets, root)
        elif name == others.BARE_LOOP:
            content = others.bare_loop(root / path.parent).table()
        elif name in source.blocks:
            content = filler.block(name, source.blocks[name])
        else:
            known = ", ".join([*OF_A_PUBLICATION, *edition.BLOCKS, others.BARE_LOOP, *source.blocks])
            raise Contradicted(f"{path}: there is no block {name}; known are {known}")
        return f"{found[1]}{content}\n{found[4]}"

    return BLOCK.sub(block, (root / path).read_text(encoding="utf-8"))


def write(root: Path, made: Path, out: Path, workers: int = 1) -> None:
    """Write `out`/repository and `out`/theirs.* of what `read` gives; `workers` processes draw. Raises as `read`."""
    together = read(root, made)
    for path, text in together.documents.items():
        replace_atomically(out / REPOSITORY / path, text)
    replace_atomically(out / "theirs.csv", others.as_table(together.pairs).to_csv(index=False))
    _draw(together, out, workers)


def _draw(together: Together, out: Path, workers: int) -> None:
    filler, images = together.filler, out / REPOSITORY / IMAGES
    devices = list(dict.fromkeys(data.device["product"] for data in filler.of.values()))
    with theme():
        page = others.draw(together.pairs, devices)
        save(page, out, "theirs")
        save(page, images, "ours-and-theirs", ("svg",))
    jobs = []
    for finding in together.findings:
        if finding.is_open:
            continue
        figure, target = finding.entry.figure, images / f"{finding.entry.name}.svg"
        if figure.draw == "numbers":
            draw_numbers(finding, filler, target)
        else:
            data = filler.of[figure.of]
            jobs.append((figure.draw, dataset.verified_folder(data.folder), data.made, figure.workloads, target))
    # Forked processes have what is imported here.
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.starmap(draw.as_svg, jobs, chunksize=1)


def draw_numbers(finding: Finding, filler: Filler, target: Path) -> None:
    """The figure of a finding that no figure of its study shows: its own numbers, by what `labels` calls them.

    One line per number, with the ends of its interval where it has one; a log scale.
    """
    figure = finding.entry.figure
    numbers = {label: cast(Number, finding.numbers[key]) for key, label in figure.labels.items()}
    with theme():
        page = sheet(
            figure.title,
            [filler.of[figure.of].device["product"]],
            1,
            "Bars are 95 % intervals; a mark without one was measured once.",
            x_label=figure.axis,
            panel_inches=ROW_INCHES * (len(numbers) + 1),
        )
        (ax,) = page.axes
        values = [1.0, *(end for number in numbers.values() for end in (number.value, *number.ends))]
        ratio_axes(ax, list(numbers), min(values) / 1.3, max(values) * 1.3)
        for y, (label, number) in enumerate(numbers.items()):
            draw_ratio(ax, y, Ratio(number.value, number.low, number.high))
            page.words.append(f"{label}: {number.value:.3g}")
        save(page, target.parent, target.stem, ("svg",))
