"""tables/summary.md and compare.md: readable tables in ms, with intervals and the reason of every blank."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sharebench.model.spec import workload_label
from sharebench.model.strategies import is_control
from sharebench.model.study_config import StudyConfig
from sharebench.read.columns import STUDY_KINDS, columns, meaning
from sharebench.read.statistics.intervals import CONFIDENCE
from sharebench.study.cells import Cell, without_excluded

BLANK = "-"
SIGNIFICANT_FIGURES = 3
MS = 1e3
REMARKS = {"no": "not separable"}


@dataclass(frozen=True)
class MetricLook:
    """How a metric is shown; an optional one has a column only where a row has a value."""

    metric: str
    title: tuple[str, str] = ("", "")
    """Heading and unit in the report; empty where it has no column there."""
    factor: float = 1.0
    """To the unit."""
    heading: str = ""
    """In the readable summary; empty where it has no column there."""
    interval: bool = True
    """Whether the readable summary has its interval."""
    interval_in_report: bool = True
    is_optional: bool = False

    @property
    def header(self) -> tuple[str, str, str]:
        """Heading and unit in the report, and what the metric is."""
        return (*self.title, meaning("metrics", self.metric))


METRIC_LOOKS = (
    MetricLook("latency_mean_seconds", ("Mean", "ms"), MS, "mean (ms)"),
    MetricLook("latency_p50_seconds", ("p50", "ms"), MS, "p50 (ms)", interval=False),
    MetricLook("latency_p95_seconds", ("p95", "ms"), MS, "p95 (ms)", interval=False),
    MetricLook("latency_p99_seconds", ("p99", "ms"), MS, "p99 (ms)", interval=False),
    MetricLook("throughput_per_tenant_hz", ("Per tenant", "iterations/s"), 1.0, "per tenant (1/s)", interval=False),
    MetricLook("throughput_total_hz", ("Total", "iterations/s"), 1.0, "total (1/s)"),
    MetricLook("slowdown", ("Slowdown", ""), 1.0, "slowdown"),
    MetricLook("memory_per_tenant_mib", ("Memory per tenant", "MiB"), 1.0, "memory (MiB)", False, False),
    MetricLook("ttft_p50_seconds", ("TTFT p50", "ms"), MS, "TTFT p50 (ms)", interval=False, is_optional=True),
    MetricLook("ttft_p99_seconds", ("TTFT p99", "ms"), MS, is_optional=True),
    MetricLook("tpot_p50_seconds", ("TPOT p50", "ms"), MS, "TPOT p50 (ms)", interval=False, is_optional=True),
    MetricLook("output_tokens_total_hz", ("Output", "tokens/s"), 1.0, "tokens (1/s)", is_optional=True),
    MetricLook("goodput_total_hz", ("Within the SLO", "requests/s"), 1.0, "goodput (1/s)", is_optional=True),
    MetricLook("energy_per_iteration_joules", heading="energy (J/iteration)", interval=False, is_optional=True),
)
"""The columns of summary.md, and of the report's numbers. All other places name the metrics that they show."""
TEXT_COLUMNS = ("strategy", "workload")


def repeats_text(config: StudyConfig, workloads: Collection[str] = ()) -> str:
    """`3 repeats`, or `2 to 4 repeats` where the study excludes whole repeats of some of these workloads, or of any.

    Workloads that it excludes altogether do not count.
    """
    counts = {_repeats_of(name, config) for name in workloads or config["workloads"] or [""]} - {0}
    ends = sorted({min(counts, default=0), max(counts, default=0)})
    return f"{' to '.join(map(str, ends))} repeat{'s' * (ends[-1] != 1)}"


def _repeats_of(workload: str, config: StudyConfig) -> int:
    # Cells of no strategy and no number of tenants: only a pattern that is about all of them matches.
    cells = [Cell("", workload, 0, repeat) for repeat in range(1, config["repeats"] + 1)]
    return len(without_excluded(cells, config["exclude"]))


def caption(*, device: str, window_seconds: float, repeats: str, remarks: Sequence[str] = ()) -> str:
    facts = f"{device}, {window_seconds:g} s window, {repeats}."
    method = "Geometric means over repeats, with 95 % intervals."
    return " ".join(part for part in (facts, method, *remarks) if part)


def known_looks(summary: pd.DataFrame, looks: Sequence[MetricLook] = METRIC_LOOKS) -> list[MetricLook]:
    """Those of the metrics that rows of the summary have, and all columns of it that are not optional."""
    known = summary.notna().any()
    return [look for look in looks if known.get(look.metric, False) or (not look.is_optional and look.metric in known)]


def summary_markdown(summary: pd.DataFrame, caption: str) -> str:
    table, notes = _text_table(summary)
    table = table.map(lambda text: text.replace("|", r"\|"))
    sides = ["left" if column in TEXT_COLUMNS else "right" for column in table.columns]
    body = table.to_markdown(index=False, disable_numparse=True, colalign=sides)
    lines = [f"- ({mark}) {note}" for note, mark in notes.items()]
    return "\n".join([caption, "", body, *([""] if lines else []), *lines, ""])


def _text_table(summary: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The table as text, and its notes with their marks in order of appearance."""
    notes: dict[str, str] = {}
    rows = []
    columns = [look for look in known_looks(summary) if look.heading]
    for row in summary.to_dict("records"):
        texts = [text for text in (row["reason"], row["notes"]) if isinstance(text, str)]
        # The table has no p99.9.
        note = "; ".join(part for text in texts for part in text.split("; ") if part and not part.startswith("p99.9 "))
        mark = f" ({notes.setdefault(note, str(len(notes) + 1))})" if note else ""
        cells = f"{row['n']}" if row["n"] == row["n_expected"] else f"{row['n']} of {row['n_expected']}"
        shown = {shown.heading: _value(row, shown) for shown in columns}
        if row["n"] == 0:
            shown[METRIC_LOOKS[0].heading] = row["status"].replace("-", " ") if row["status"] != "ok" else "invalid"
        rows.append(
            {
                "strategy": row["strategy"],
                "workload": workload_label(row["workload"], row["tenant_workload"]),
                "tenants": str(row["replicas"]),
                "cells": cells + mark,
                **shown,
            }
        )
    return pd.DataFrame(rows), notes


def _value(row: Mapping[Hashable, Any], shown: MetricLook) -> str:
    value = row[shown.metric]
    if pd.isna(value):
        return BLANK
    value *= shown.factor
    if value == 0:
        return "0"
    decimals = max(0, SIGNIFICANT_FIGURES - 1 - math.floor(math.log10(value)))
    low, high = row[f"{shown.metric}_low"], row[f"{shown.metric}_high"]
    if not shown.interval or pd.isna(low):
        return f"{value:.{decimals}f}"
    return f"{value:.{decimals}f} [{low * shown.factor:.{decimals}f}, {high * shown.factor:.{decimals}f}]"


def compare_markdown(table: pd.DataFrame, before: str, after: str, differences: Sequence[tuple[str, str, str]]) -> str:
    """compare.md: mean latencies of two data sets, the ratios beyond chance, and the facts that differ."""
    means = table[table["metric"] == "latency_mean_seconds"]
    slower, faster = _beyond_chance(means)
    untested = means[means["p"].isna()]
    head = f"{after} against {before}, {len(means)} mean latencies: {slower} longer and {faster} shorter"
    head += " beyond chance and beyond what the baseline differs from itself"
    if not untested.empty:
        reason, *others = untested["reason"].unique()
        is_said = isinstance(reason, str) and not others
        head += f"; {len(untested)} could not be tested" + f" ({reason})" * is_said
    head += "."
    rows = [
        {
            "strategy": row["strategy"],
            "workload": workload_label(row["workload"], row["tenant_workload"]),
            "tenants": str(row["replicas"]),
            f"{before} (ms)": _plain(MS * row["before"]),
            f"{after} (ms)": _plain(MS * row["after"]),
            "ratio": _value(row, MetricLook("ratio")),
            "p (Holm)": _plain(row["p_holm"]),
            "remark": row["reason"] if isinstance(row["reason"], str) else REMARKS.get(row["separable"], ""),
        }
        for row in means.to_dict("records")
    ]
    body = pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)
    special = [metric for metric in columns("metrics", STUDY_KINDS) if metric not in columns("metrics")]
    for metric, own in table[table["metric"].isin(special)].groupby("metric", sort=False):
        more, less = _beyond_chance(own)
        body += f"\n\n`{metric}`: beyond the same {more} of {len(own)} above 1, and {less} below."
    different = [f"- {name}: {one} → {other}" for name, one, other in differences] or ["- nothing"]
    best = ["Shortest mean latency, as measured:", "", *(_shortest(table, before, after) or ["- nothing"])]
    return "\n".join([head, "", body, "", *best, "", "What else differs:", "", *different, ""])


def _beyond_chance(rows: pd.DataFrame) -> tuple[int, int]:
    """How many ratios are above and below 1, beyond chance and beyond the A/A difference of the baseline."""
    significant = rows[(rows["p_holm"] < 1 - CONFIDENCE) & (rows["separable"] != "no")]
    return int((significant["ratio"] > 1).sum()), int((significant["ratio"] < 1).sum())


def _shortest(table: pd.DataFrame, before: str, after: str) -> list[str]:
    """A line per workload and number of tenants: strategy and data set with the shortest mean latency.

    Strategies compete where they have a slowdown.
    """
    point = ["workload", "tenant_workload", "replicas"]
    means, slowdowns = (table[table["metric"] == name] for name in ("latency_mean_seconds", "slowdown"))
    measured = means.merge(slowdowns[[*point, "strategy"]])
    plain = [not is_control(name) for name in measured["strategy"]]
    measured = measured.loc[plain].rename(columns={"before": before, "after": after})
    long = measured.melt([*point, "strategy"], [before, after], "data set", "seconds").dropna(subset="seconds")
    best = long.loc[long.groupby(point, sort=False)["seconds"].idxmin()]
    return [
        f"- {workload_label(row['workload'], row['tenant_workload'])} × {row['replicas']}: "
        f"{row['strategy']} in {row['data set']}, {_plain(MS * row['seconds'])} ms"
        for row in best.to_dict("records")
    ]


def _plain(value: float) -> str:
    return BLANK if pd.isna(value) else f"{value:.{SIGNIFICANT_FIGURES}g}"
