"""What the figures read."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.figures import data
from sharebench.records import record


def test_the_made_up_records_are_valid(root: Path) -> None:
    paths = sorted(root.glob("cells/*/matmul/n*/r1/raw.json"))
    assert len(paths) == 10
    for path in paths:
        record.read(path)


def test_facts_name_device_label_window_and_repeats(study: data.DrawnStudy) -> None:
    assert study.facts == ["AMD EPYC 7B13", fabricated.LABEL, "2 s window", "3 repeats"]


def test_facts_do_not_repeat_a_label_that_the_product_has(study: data.DrawnStudy) -> None:
    node = study.node | {"product": "A100 (simulated)", "label": "simulated"}
    facts = data.DrawnStudy(study.data, study.results, study.config | {"repeats": 1}, node, "").facts
    assert facts == ["A100 (simulated)", "2 s window", "1 repeat"]


def test_order_is_the_catalogues_and_the_requests(study: data.DrawnStudy) -> None:
    table = pd.DataFrame({"strategy": ["mps", "alien", "exclusive"], "workload": ["new", "hashing", "matmul"]})
    assert study.strategies(table) == ["exclusive", "mps", "alien"]
    assert study.workloads(table) == ["matmul", "hashing", "new"]


def test_samples_stand_at_the_largest_number_with_a_valid_cell(study: data.DrawnStudy) -> None:
    found = {(sample.workload, sample.strategy): sample for sample in data.samples(study)}
    assert list(found)[:4] == [("matmul", name) for name in fabricated.MECHANISMS]
    assert {name: found["matmul", name].replicas for name in fabricated.MECHANISMS} == {
        "exclusive": 1, "time-slicing": 4, "mps": 4, "mig": 2
    }  # fmt: skip
    assert {sample.largest for sample in found.values()} == {4}
    assert found["matmul", "mig"].reason == fabricated.HOSTILE


def test_samples_pass_over_invalid_repeats(study: data.DrawnStudy, tmp_path: Path) -> None:
    shutil.copytree(study.results / "tables", tmp_path / "tables")
    path = tmp_path / "tables" / "cells.csv"
    table = pd.read_csv(path)
    is_mps = (table["strategy"] == "mps") & (table["workload"] == "matmul")
    table.loc[is_mps & (table["replicas"] == 4) & (table["repeat"] == 1), "valid"] = False
    table.loc[is_mps & (table["replicas"] == 4) & (table["repeat"] == 2), "count"] = 0
    table.to_csv(path, index=False)
    samples = data.samples(data.DrawnStudy(study.data, tmp_path, study.config, study.node, ""))
    mps = next(sample for sample in samples if (sample.strategy, sample.workload) == ("mps", "matmul"))
    assert (mps.replicas, mps.repeat) == (4, 3)


@pytest.mark.parametrize("rows_per_chunk", [7, 10_000])
def test_histogram_merges_repeats_and_tenants(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch, rows_per_chunk: int
) -> None:
    monkeypatch.setattr(data, "ROWS_PER_CHUNK", rows_per_chunk)
    sample = data.Sample("mps", "matmul", largest=4, replicas=2, repeat=1, reason="")
    upper_seconds, count = data.histogram(study, sample)
    expected: dict[int, int] = {}
    for repeat in (1, 3):  # the second is excluded
        raw = json.loads((study.cell_folder("mps", "matmul", 2, repeat) / "raw.json").read_text())
        for tenant in raw["tenants"]:
            for index, n in tenant["histogram"].items():
                expected[int(index)] = expected.get(int(index), 0) + n
    assert dict(zip(np.round(64 * np.log2(upper_seconds / 1e-6)).astype(int), count, strict=True)) == expected
    assert (np.diff(upper_seconds) > 0).all()


@pytest.mark.parametrize(
    ("status", "n", "words"),
    [
        ("infeasible", 0, "infeasible"),
        ("ok", 0, "excluded by a gate"),
        ("missing", 0, "not measured"),
        ("not-measured", 0, "not measured"),
        ("mixed", 0, "no valid cell"),
        ("ok", 3, "too few samples"),
    ],
)
def test_absence_says_why(status: str, n: int, words: str) -> None:
    assert data.absence({"status": status, "n": n}) == words
