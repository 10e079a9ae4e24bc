"""The studies of edition two have the cells, minutes and outcomes of their design, and the code that is frozen."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gpu import visit
from gpu.part import Part
from gpu.visit import FROZEN, Edition

from publication.edition import OutcomeEntry, read_outcomes
from sharebench.core.files import Refusal
from sharebench.datasets import archive

pytestmark = pytest.mark.thorough

FOLDER = visit.EDITION
DESIGN = (FOLDER / "DESIGN.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([A-Z]) \| `([a-z-]+)` \|[^|]*\| (\d+) \| ([0-9.]+) \| (\d+) \|", DESIGN, flags=re.MULTILINE)
LONGEST_MINUTES = {"L": 11, "X": 9.5}
"""Of a block; 7.5 where no server of a language model is started."""


@pytest.fixture(scope="module")
def edition() -> Edition:
    """The edition, opened on a host that need not have a GPU."""
    return Edition(FOLDER, {"nvidia": {"python": sys.executable}, "measured_elsewhere": True}, device_count=2)


def test_the_design_has_the_modules_with_their_cells_minutes_and_blocks(edition: Edition) -> None:
    planned = []
    for part in edition.parts:
        first = [blocks[0] for blocks in part.blocks.values()]
        minutes = max((part.seconds([block]) for block in first), default=part.seconds([])) / 60
        assert minutes <= LONGEST_MINUTES.get(part.module, 7.5)
        cells, repeats = sum(map(len, first)), part.study.config["repeats"]
        planned.append((part.module, part.study_name, str(cells), f"{minutes:.1f}", str(repeats)))
    assert planned == ROWS


def test_a_block_has_its_baselines(edition: Edition) -> None:
    for part in edition.parts:
        for block in (block for blocks in part.blocks.values() for block in blocks):
            alone = {cell.workload for cell in block if cell.replicas == 1}
            assert {name for cell in block for name in part.study.calibrated_workloads(cell)} <= alone


def test_ten_visits_to_two_gpus_measure_every_block_once(edition: Edition, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: set[tuple[str, object]] = set()
    monkeypatch.setattr(Part, "checked", lambda *_: set())
    monkeypatch.setattr(
        Edition, "carried", lambda _, part: {cell for cell in part.study.cells if (part.study_name, cell) in measured}
    )
    whole: dict[str, int] = {}
    parts = [part for part in edition.parts if not part.in_cluster]
    for number in range(1, 11):
        left = 24 * 60.0
        for part in parts:
            blocks = edition.next_blocks(part, left)
            new = {(part.study_name, cell) for block in blocks for cell in block}
            assert measured.isdisjoint(new)
            measured |= new
            if blocks or (part.is_probe and number == 7):
                left -= part.seconds(blocks, 2 if part.uses_all_devices else 1)
            if measured >= {(part.study_name, cell) for cell in part.study.cells}:
                whole.setdefault(part.module, number)
    assert set(whole) == {part.module for part in parts} - {"S", "P"}, whole
    assert whole["C"] == whole["H"] == 3


def test_four_devices_take_a_block_each_and_split_none(edition: Edition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "checked", lambda *_: set())
    monkeypatch.setattr(Edition, "carried", lambda *_: set())
    core, batch = (part for part in edition.parts if part.module in "CB")
    chosen = {part.module: replace(edition, device_count=4).next_blocks(part) for part in (core, batch)}
    assert len(chosen["C"]) == 4 * 3
    assert core.seconds(chosen["C"], 4) == core.seconds([own[0] for own in core.blocks.values()])
    assert len(chosen["B"]) == 2 * 3
    assert batch.seconds(chosen["B"], 4) == batch.seconds(chosen["B"], 3), "two of four devices have two blocks"


def test_the_workloads_with_the_fewest_blocks_come_first(edition: Edition, monkeypatch: pytest.MonkeyPatch) -> None:
    (llm,) = (part for part in edition.parts if part.module == "L")
    monkeypatch.setattr(Part, "checked", lambda *_: set())
    monkeypatch.setattr(Edition, "carried", lambda _, part: {*part.blocks["large"][0]})
    assert [block[0].workload for block in edition.next_blocks(llm)] == ["large-open", "small", "large"]


def test_all_whole_blocks_of_a_study_are_published_and_no_others(edition: Edition) -> None:
    llm, mix = (part for part in edition.parts if part.study_name in ("llm", "server-and-services"))
    (large, again), half, (opened, *_) = llm.blocks["large"][:2], llm.blocks["small"][0][1:], llm.blocks["large-open"]
    there = {*large, *again, *half, *opened}
    assert llm.whole_blocks(there) == {"large": 2, "large-open": 1, "small": 0}
    changes = llm.dataset_changes(there)
    assert changes["workloads"] == ["large", "large-open"] and changes["exclude"][-1] == "*/large-open/n*/r2"
    published = replace(llm, changes={**llm.changes, **changes}).study
    assert {*published.cells} == there - {*half}
    every = mix.dataset_changes({*mix.study.cells})
    assert every == {key: mix.study.config[key] for key in ("workloads", "repeats", "exclude")}
    # A block whose machine was lost leaves a gap.
    assert {*replace(llm, changes={**llm.changes, **llm.dataset_changes({*again})}).study.cells} == {*again}
    assert llm.dataset_changes({*half}) == {}


def test_pods_and_their_host_have_the_same_cells_and_fit_into_eight_minutes(edition: Edition) -> None:
    host, pods = (part for part in edition.parts if part.in_cluster)
    assert (host.study.node_kind, pods.study.node_kind) == ("nvidia", "kubernetes")
    assert host.study.cells == pods.study.cells and host.study.config["repeats"] == 1
    assert all(
        host.study.spec(cell).window_seconds == pods.study.spec(cell).window_seconds for cell in pods.study.cells
    )
    blocks = [[block for own in part.blocks.values() for block in own] for part in (host, pods)]
    assert host.seconds(blocks[0]) + pods.seconds(blocks[1]) < 8 * 60


def test_the_code_is_the_frozen_code(edition: Edition) -> None:
    """Without frozen.yaml nothing is measured yet, and all code is right."""
    edition.check_frozen(FOLDER)


def test_other_code_and_other_packages_than_frozen_are_refused(edition: Edition, tmp_path: Path) -> None:
    frozen = edition.frozen()
    assert {"node nvidia", "answers", "timeslice", "core/yolos-graph", "llm/large-open"} <= set(frozen["roots"])
    (tmp_path / FROZEN).write_text(yaml.safe_dump(frozen))
    edition.check_frozen(tmp_path)
    changed = {"packages": "0", "specs": "0", "roots": frozen["roots"] | {"core/yolos-graph": "measuring code 0"}}
    (tmp_path / FROZEN).write_text(yaml.safe_dump(changed))
    with pytest.raises(Refusal, match="another for core/yolos-graph, packages, specs; take the commit"):
        edition.check_frozen(tmp_path)


def test_a_rehearsal_is_not_merged(edition: Edition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "visit.zip"
    archive.write(made, {archive.MANIFEST: json.dumps({}).encode()}, 0)
    with pytest.raises(Refusal, match="a rehearsal, which is not published"):
        list(edition.merge(made))


@pytest.mark.parametrize("path", sorted(visit.REPOSITORY.glob("published/*/visits/*.zip")), ids=lambda path: path.stem)
def test_the_code_of_each_published_visit_is_frozen_or_was_before(
    edition: Edition, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Edition, "publish", lambda _, names: iter([str(names)]))
    (studies,) = edition.merge(path)
    assert "sentinel" in studies or "llm" in studies


@pytest.mark.parametrize(
    ("product", "folder"),
    [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H200", "h200-two"), ("A100 80GB PCIe (simulated)", "a100")],
)
def test_each_product_has_its_own_publication(product: str, folder: str) -> None:
    assert visit.publication_of(product) == folder


def test_the_outcomes_are_those_of_the_design() -> None:
    units = dict(re.findall(r"^\| [A-Z] \| `([a-z-]+)` \| (\w+) \|", DESIGN, flags=re.MULTILINE))
    assert all(each.unit == units[each.study] for each in read_outcomes(visit.REPOSITORY))
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \| .* \| ([^|]+) \| ([^|]+) \|$", DESIGN, flags=re.MULTILINE)
    claims = {"within": "within {0.within_percent:g} %"}
    expected = [
        (str(each.outcome), each.study, each.edition_one, claims.get(each.claim, "{0.claim} {0.limit:g}").format(each))
        for each in read_outcomes(visit.REPOSITORY)
    ]
    assert rows == expected


@pytest.mark.parametrize("entry", read_outcomes(visit.REPOSITORY), ids=lambda entry: str(entry.outcome))
def test_the_study_of_every_outcome_has_its_cells(edition: Edition, entry: OutcomeEntry) -> None:
    (part,) = (part for part in edition.parts if part.study_name == entry.study)
    for side in (entry.over, entry.under):
        point = (side["strategy"], side["workload"], side["replicas"])
        own = [cell for cell in part.study.cells if (cell.strategy, cell.workload, cell.replicas) == point]
        assert len(own) == part.study.config["repeats"]
        assert side.get("tenant_workload", side["workload"]) in part.study.components(own[0])
