"""What all published data sets say together: findings, ours and theirs, and the documents with their numbers."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from publication import gates, others, replication, tables
from publication.documents import BLOCK, marked
from publication.findings import IMAGES, PAGE, SOURCE, Contradicted, Filler, Finding, page, read_source
from publication.numbers import DataSet
from sharebench.core.files import replace_atomically
from sharebench.datasets import dataset
from sharebench.figures import draw
from sharebench.figures.page import Sheet, save, sheet
from sharebench.figures.style import GREY, log_axis, theme

COLOR = "#1b4f9c"
ROW_INCHES = 0.25
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

    filler: Filler
    findings: list[Finding]
    pairs: list[others.Pair]
    images: dict[str, dict[str, Any]]
    """Name → figure of a block, as `figure` of a finding."""
    documents: dict[Path, str]


def read(root: Path, made: Path) -> Together:
    """From published/, docs/findings.yaml and the documents of `root`, and the tables in `made`.

    Raises Contradicted when the data do not say what the findings do.
    """
    published = root / "published"
    source = read_source(root / SOURCE)
    filler = Filler(source, published, made)
    filler.add(main_table=tables.main_table, strategy_table=tables.strategy_table)
    filler.add(unsteady=tables.unsteady_in_words)
    filler.add(model_table=tables.model_table, widest_percent=tables.widest_percent)
    filler.add(latency=tables.latency_in_words, latencies=tables.range_in_words)
    filler.add(rate=tables.rate_in_words, replication=replication.of)
    filler.add(measured_in=tables.measured_in)
    filler.add(lit=others.Literature(published / "literature.csv"))
    filler.add(bare_loop=lambda publication: others.bare_loop(published / publication))
    datasets = {name: DataSet(name, published, made) for name in dataset.published(published)}

    def across_devices(publication: str, workload: str) -> dict[str, float]:
        own = {name: data for name, data in datasets.items() if name.split("/")[0] == publication}
        return tables.across_devices(own, workload)

    filler.add(across_devices=across_devices)
    findings = [filler.finding(entry) for entry in source["findings"]]
    pairs = others.pairs(source["theirs"], filler)
    text = page(findings, filler, filler.text("introduction", source["introduction"]))
    documents = {PAGE: text + "\n" + "\n\n".join([*THEIRS_SECTION, others.table(pairs)]) + "\n"}
    for path in marked(root):
        documents[path] = filled(path, root, filler, source["blocks"], datasets)
    return Together(filler, findings, pairs, source["images"], documents)


OF_A_PUBLICATION: Mapping[str, Callable[[Mapping[str, DataSet]], str]] = {
    "facts": tables.facts,
    "setup": tables.setup,
    "devices": tables.devices,
    "gates": gates.table,
}
"""Blocks about the studies of the publication whose document has them."""


def filled(path: Path, root: Path, filler: Filler, blocks: Mapping[str, Any], datasets: Mapping[str, DataSet]) -> str:
    """The document with its blocks filled in; `datasets` are all that is published, by name. Raises Contradicted."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name in OF_A_PUBLICATION:
            own = {key: data for key, data in datasets.items() if key.split("/")[0] == path.parent.name}
            content = OF_A_PUBLICATION[name](own)
        elif name == others.BARE_LOOP:
            content = others.bare_loop(root / path.parent).table()
        elif name in blocks:
            content = filler.block(name, blocks[name])
        else:
            known = ", ".join([*OF_A_PUBLICATION, others.BARE_LOOP, *blocks])
            raise Contradicted(f"{path}: there is no block {name}; known are {known}")
        return f"{found[1]}{content}\n{found[4]}"

    return BLOCK.sub(block, (root / path).read_text(encoding="utf-8"))


def write(root: Path, made: Path, out: Path, workers: int = 1) -> None:
    """Write `out`/repository and `out`/theirs.* of what `read` gives; so many processes draw. Raises as `read`."""
    together = read(root, made)
    for path, text in together.documents.items():
        replace_atomically(out / REPOSITORY / path, text)
    rows = others.as_csv(together.pairs)
    replace_atomically(out / "theirs.csv", pd.DataFrame(rows).to_csv(index=False))
    _draw(together, rows, out, workers)


def _draw(together: Together, rows: list[dict[str, Any]], out: Path, workers: int) -> None:
    filler, images = together.filler, out / REPOSITORY / IMAGES
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
        pool.starmap(draw.as_svg, jobs, chunksize=1)
    devices = list(dict.fromkeys(data.device["product"] for data in filler.of.values()))
    with theme():
        page = others.draw(rows, devices)
        save(page, out, "theirs")
        save(page, images, "ours-and-theirs", ("svg",))


def _draw_numbers(finding: Finding, filler: Filler, target: Path) -> None:
    """The figure of a finding that no figure of its study shows: its own numbers, by what `labels` calls them."""
    known = {label: finding.numbers[key] for key, label in finding.figure["labels"].items()}
    ends = {label: (number.value, number.low, number.high) for label, number in known.items()}
    facts = [filler.of[finding.figure["of"]].device["product"]]
    with theme():
        page = _numbers_page(finding.figure["title"], facts, ends, finding.figure["axis"])
        save(page, target.parent, target.stem, ("svg",))


def _numbers_page(
    title: str, facts: Sequence[str], numbers: Mapping[str, tuple[float, float | None, float | None]], x_label: str
) -> Sheet:
    """One line per number: its name, value, and the ends of its interval where it has one; a log scale."""
    page = sheet(
        title,
        facts,
        1,
        x_label=x_label,
        y_label="",
        note="Bars are 95 % intervals; a mark without one was measured once.",
        panel_inches=ROW_INCHES * (len(numbers) + 1),
        left_inches=1.3,
    )
    (ax,) = page.axes
    values = [value for number in numbers.values() for value in number if value is not None]
    log_axis(ax, "x", min([*values, 1.0]) / 1.3, max([*values, 1.0]) * 1.3)
    ax.set_yticks(range(len(numbers)), list(numbers))
    ax.set_ylim(len(numbers) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.axvline(1, color=GREY, lw=0.8, zorder=1)
    for y, (name, (value, low, high)) in enumerate(numbers.items()):
        if low is not None and high is not None:
            ax.plot([low, high], [y, y], color=COLOR, lw=1.2, solid_capstyle="butt")
        ax.plot([value], [y], marker="o", color=COLOR)
        page.words.append(f"{name}: {value:.3g}")
    return page
