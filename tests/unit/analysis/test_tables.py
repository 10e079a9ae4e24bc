"""The reader of tables: booleans are read as booleans, whatever else is in the column."""

from pathlib import Path

import pandas as pd
import pytest

from sharebench.read import columns
from sharebench.read.columns import Column, csv_text, read_table


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (["True", "False"], [True, False]),
        (["True", ""], [True, False]),
        (["", ""], [False, False]),
        ([], []),
    ],
)
def test_a_boolean_is_a_mask_with_blanks_without_true_and_without_rows(
    tmp_path: Path, column: list[str], read: list[bool]
) -> None:
    table = read_table(written(tmp_path, "\n".join(["name,valid", *(f"a,{cell}" for cell in column)]) + "\n"))
    assert table["valid"].dtype == bool
    assert table["valid"].tolist() == read
    assert len(table[table["valid"]]) == sum(read)


def test_a_value_that_is_not_boolean_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="maybe"):
        read_table(written(tmp_path, "valid\nmaybe\n"))


def test_blank_texts_are_empty_and_columns_may_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, "reason,count,strategy\n,,mps\n007,3,mps\n")
    table = read_table(path)
    assert table["reason"].tolist() == ["", "007"]
    assert pd.isna(table["count"][0])
    assert list(read_table(path, columns=["count"]).columns) == ["count"]


def test_a_rule_that_names_a_column_makes_its_metric_no_text_and_no_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "mean:context_flags_interval_seconds"
    metric = Column("metrics", "context_seconds", rule, "", "")
    assert metric.names == ("context_seconds",) and metric.rule == tuple(rule.split(":"))
    monkeypatch.setattr(columns, "schema", lambda: [metric])
    assert read_table(written(tmp_path, "context_seconds\n1.5\n\n"))["context_seconds"].dtype == float


def test_a_name_that_pandas_takes_for_a_blank_is_a_name(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "strategy,workload,latency_mean_seconds\nnull,nan,0.5\nNA,None,\n"))
    assert table["strategy"].tolist() == ["null", "NA"] and table["workload"].tolist() == ["nan", "None"]
    assert table["latency_mean_seconds"].dtype == float


def test_no_text_is_a_formula_and_numbers_stay_as_they_are() -> None:
    table = pd.DataFrame(
        {
            "number": pd.array([-1, None], dtype="Int64"),
            "mixed": pd.Series([1, None], dtype=object),
            "text": ["=HYPERLINK(1)", "a=b"],
            "kind": pd.Categorical(["@x", "-y"]),
        }
    )
    assert csv_text(table) == "number,mixed,text,kind\n-1,1,'=HYPERLINK(1),'@x\n,,a=b,'-y\n"
    plain = table[["number", "mixed"]]
    assert csv_text(plain) == plain.to_csv(index=False)
