"""The decision in the report: advice, capacity and cost."""

from typing import NamedTuple

from sharebench.model.question import MARGIN_PERCENT
from sharebench.read.decide.answers import Answer, read_decision
from sharebench.read.figures.data import DrawnStudy, Row, table_rows


class Advice(NamedTuple):
    """The question, and the answer and rows of each workload; empty where there is no advice."""

    caption: str
    answers: dict[str, Answer]
    rows: dict[str, list[Row]]
    has_price: bool
    margin_percent: float = MARGIN_PERCENT


def advice(study: DrawnStudy) -> Advice:
    """Read tables/advice.json and advice.csv."""
    decided = read_decision(study.results / "tables" / "advice.json")
    table = study.table("advice")
    return Advice(
        caption=decided.caption,
        answers={answer.workload: answer for answer in decided.answers},
        rows={str(name): table_rows(rows) for name, rows in table.groupby("workload", sort=False)},
        has_price=bool(table["price_per_hour"].notna().any()),
        margin_percent=decided.margin_percent,
    )


def capacity(study: DrawnStudy, workloads: dict[str, list[Row]]) -> list[Row]:
    """Rows of tables/capacity.csv of these workloads that were judged by an SLO, or have a number for memory."""
    table = study.table("capacity")
    table = table[(table["percentile"] != "") | table["max_tenants_by_memory"].notna()]
    return table_rows(table[table["workload"].isin(workloads.keys())])


def cost(study: DrawnStudy) -> list[Row]:
    """Rows of tables/cost.csv; none where no price is set."""
    return table_rows(study.table("cost").dropna(subset=["price_per_hour"]))
