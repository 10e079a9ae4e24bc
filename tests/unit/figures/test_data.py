"""The input of figures."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.read.figures import data
from sharebench.read.finished import NoResults


def test_facts_name_device_label_window_and_repeats(study: data.DrawnStudy) -> None:
    assert study.facts == ["AMD EPYC 7B13", fabricated.LABEL, "2 s window", "3 repeats"]


def test_facts_do_not_repeat_a_label_that_the_product_has(study: data.DrawnStudy) -> None:
    node = study.node | {"product": "A100 (simulated)", "label": "simulated"}
    facts = data.DrawnStudy(study.data, study.results, study.config | {"repeats": 1}, node, "").facts
    assert facts == ["A100 (simulated)", "2 s window", "1 repeat"]


def test_facts_say_where_some_workloads_have_fewer_repeats(study: data.DrawnStudy) -> None:
    for pattern, text in (
        ("*/hashing/n*/r3", "2 to 3 repeats"),
        ("mps/hashing/n2/r3", "3 repeats"),
        ("*/hashing/*", "3 repeats"),
    ):
        assert replace(study, config=study.config | {"exclude": [pattern]}).facts[-1] == text
    fewer = replace(study, config=study.config | {"exclude": ["*/hashing/n*/r3"]})
    assert replace(fewer, only_workloads=frozenset({"hashing"})).facts[-1] == "2 repeats"


def test_rows_are_in_the_order_of_catalogue_and_config(study: data.DrawnStudy) -> None:
    table = pd.DataFrame({"strategy": ["mps", "alien", "exclusive"], "workload": ["new", "hashing", "matmul"]})
    assert study.strategies(table) == ["exclusive", "mps", "alien"]
    assert study.workloads(table) == ["matmul", "hashing", "new"]


def test_results_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoResults, match=rf"no finished results in {tmp_path} \({tmp_path}/manifest.json is missing\)"):
        data.load_study(tmp_path, tmp_path)
