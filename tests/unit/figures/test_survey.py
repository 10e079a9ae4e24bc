"""The figure of a survey."""

import pytest
from planted_gpus import PROFILING, Planted, cluster, steady
from unit.analysis.test_survey import survey_of

from sharebench.read.figures import survey as figure
from sharebench.read.survey.judge import workload_table

pytestmark = pytest.mark.usefixtures("themed")


def widths(page: figure.Sheet) -> list[float]:
    return [round(patch.get_width(), 2) for patch in page.axes[0].containers for patch in patch]


def test_a_row_for_each_workload_with_its_activity_traffic_and_memory() -> None:
    page = figure.draw(workload_table(survey_of(cluster())), ["24 h"])
    labels = [label.get_text() for label in page.axes[0].get_yticklabels()]
    assert labels[:3] == ["team/llm  [1]", "team/api  [1]", "team/notebook-0  [1]"] and len(labels) == 6
    assert widths(page)[:3] == [15.0, 35.0, 41.73]
    assert "team/train-0: activity 93 %" in page.alt_text


def test_an_unknown_value_has_no_bar() -> None:
    page = figure.draw(workload_table(survey_of(cluster()[:1], without=PROFILING)), [])
    assert len(widths(page)) == 2 and "team/api: memory traffic not known" in page.alt_text


def test_names_are_plain_text_and_long_ones_are_cut() -> None:
    many = [Planted(str(i), f"{'long-' * 12}$x_{i}$", steady(0.5)) for i in range(50)]
    page = figure.draw(workload_table(survey_of(many)), [])
    labels = [label.get_text() for label in page.axes[0].get_yticklabels()]
    assert len(labels) == figure.MAX_ROWS and all(label.startswith("…") for label in labels)
    assert any("10 more are in workloads.csv" in word for word in page.alt_text)
    page.figure.draw_without_rendering()


def test_an_empty_survey_is_explained() -> None:
    page = figure.draw(workload_table(survey_of(cluster()[-1:])).iloc[:0], [])
    assert "Nothing to draw: no workload was seen." in page.alt_text
