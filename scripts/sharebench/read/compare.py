"""Comparison of two data sets: how each common cell has changed, and which facts differ."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from sharebench.core.files import Refusal, replace_atomically
from sharebench.datasets import dataset
from sharebench.model.records.references import device_name
from sharebench.model.records.types import Record
from sharebench.model.spec import Spec, parse_spec
from sharebench.read.cells.metrics import MEAN, QUANTILES, cell_value, optional_metrics, study_kinds
from sharebench.read.cells.rows import GROUP_COLUMNS, GroupKey, MeasuredCell, reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline, Separability, cell_slowdowns
from sharebench.read.columns import SLO, STREAMS, STUDY_KINDS, TableRow, csv_text, table_frame
from sharebench.read.figures.compare import draw
from sharebench.read.figures.page import save
from sharebench.read.figures.style import theme
from sharebench.read.gates.gates import read_judged
from sharebench.read.grouping import group_by
from sharebench.read.slo import LATENCY, format_slo, limits_of, slo_limits
from sharebench.read.statistics.intervals import Place, log_interval, welch_ratio, with_holm
from sharebench.read.text import compare_markdown
from sharebench.study.study import Study

METRICS = (
    "latency_mean_seconds",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "throughput_total_hz",
    "slowdown",
)


class NotComparable(Refusal):
    """The data sets did not measure the same; one line with the difference."""


@dataclass(frozen=True)
class MeasuredData:
    """A finished data set: its valid cells, reasons against the others, specs, and the facts that may differ."""

    name: str
    study: Study
    cells: Mapping[GroupKey, Sequence[MeasuredCell]]
    reasons: Mapping[GroupKey, str]
    baseline: Baseline
    separability: Separability
    specs: Mapping[GroupKey, Spec]
    facts: Mapping[str, str]


def write_comparison(before: Path, after: Path, out: Path) -> str:
    """Write `out`/compare.csv, .md and the figure of two data sets.

    Returns the summary. Raises DataSetError, RecordError and NotComparable.
    """
    if before.resolve() == after.resolve():
        raise NotComparable(f"not comparable: {before} and {after} are one data set; give one before and one after")
    names = dataset.short_names([str(before), str(after)])
    old, new = map(read_data, (before, after), names, ("BEFORE", "AFTER"))
    table = compare(old, new)
    text = compare_markdown(table, old.name, new.name, changed_facts(old, new))
    replace_atomically(out / "compare.csv", csv_text(table))
    replace_atomically(out / "compare.md", text)
    with theme():
        save(draw(table, old.name, new.name, [old.facts["device"], new.facts["device"]]), out, "compare")
    head = text.split("\n\n")[0]
    return f"{head}\ncomparison: {out / 'compare.md'}"


def read_data(path: Path, name: str | None = None, where: str = "DATA") -> MeasuredData:
    """Read all records of a data set, a folder or an archive; without `name` its path names it.

    Raises DataSetError, which begins with `where`, RecordError, and NotComparable where repeats measured other things.
    """
    name = name or dataset.combined_name([str(path)])
    study, folder = dataset.open_complete(path, where)
    parts: list[MeasuredCell] = []
    specs: dict[GroupKey, tuple[str, Spec]] = {}
    facts: dict[str, set[str]] = defaultdict(set)
    slo = limits_of(study.config["slo"])
    for cell in study.table_cells():
        record = read_judged(folder / cell.raw)
        parts += (own := split_by_workload(record, reduce_record(record, limits=slo), slo))
        found = f"repeat {cell.repeat} of {name}", parse_spec(record["spec"])
        for part in own:
            _refuse_difference(part.group, specs.setdefault(part.group, found), found)
        for key, text in _facts(record).items():
            facts[key].add(text)
    valid = [part for part in parts if part.valid]
    baseline = Baseline(valid, study.baseline)
    texts = {key: ", ".join(sorted(texts)) for key, texts in facts.items()} | {"repeats": str(study.config["repeats"])}
    texts |= {"SLO": told} if (told := format_slo(study.config["slo"])) else {}
    return MeasuredData(
        name=name,
        study=study,
        cells=group_by(valid, lambda part: part.group),
        reasons={part.group: part.reason or part.status for part in parts if not part.valid},
        baseline=baseline,
        separability=Separability(valid, baseline),
        specs={group: spec for group, (_, spec) in specs.items()},
        facts=texts,
    )


def compare(before: MeasuredData, after: MeasuredData) -> pd.DataFrame:
    """One row per common group and metric, in the order of `before`. Raises NotComparable.

    The ratio is that of the geometric means over the repeats, after over before, with Welch's interval, as cells of two
    data sets share no block. The p values of each metric are adjusted together (Holm).
    """
    groups = [group for group in before.specs if group in after.specs]
    if not groups:
        raise NotComparable(f"not comparable: {before.name} and {after.name} have no cells in common")
    for group in groups:
        _refuse_difference(group, *((data.name, data.specs[group]) for data in (before, after)))
    rows: dict[GroupKey, list[TableRow]] = {group: [] for group in groups}
    for metric in (*METRICS, *_shared_metrics(before, after)):
        having = [group for group in groups if _applies(metric, group, before)]
        for group, row in zip(having, with_holm([_row(before, after, group, metric) for group in having]), strict=True):
            rows[group].append(row)
    return table_frame("compare", (row for group_rows in rows.values() for row in group_rows))


def _refuse_difference(group: GroupKey, one: tuple[str, Spec], other: tuple[str, Spec]) -> None:
    """Raise NotComparable where these two, each with its name, measured different things."""
    if (found := first_difference(_comparable(one[1]), _comparable(other[1]))) is not None:
        key, text, other_text = found
        raise NotComparable(
            f"not comparable: {key} of {group[0]} × {group[3]}, {group[1]} is {text} in {one[0]} and {other_text} in "
            f"{other[0]}; compare data sets that measured the same"
        )


def _applies(metric: str, group: GroupKey, data: MeasuredData) -> bool:
    """Whether the group's tenants can have the metric, whatever was measured of them."""
    spec, workload = data.specs[group], group[2]
    if metric == "slowdown":
        # A victim is compared with itself (isolation.csv), and iterations in a queue run as if alone (jobs.csv).
        return not (spec.fault or spec.strategy.is_queue)
    streams = any(each.stream for each in spec.workloads if each.name == workload)
    if metric in optional_metrics({SLO}):
        limits = slo_limits(data.study.config["slo"], workload)
        return not spec.runs_jobs and (LATENCY in limits or (streams and bool(limits)))
    return streams or metric not in optional_metrics({STREAMS})


def _shared_metrics(before: MeasuredData, after: MeasuredData) -> list[str]:
    """The optional metrics of both studies; goodput only where both have the same SLO."""
    one, other = before.study.config, after.study.config
    kinds = study_kinds(one) & study_kinds(other)
    return optional_metrics(kinds if one["slo"] == other["slo"] else kinds - {SLO})


def changed_facts(before: MeasuredData, after: MeasuredData) -> list[tuple[str, str, str]]:
    """Name and both values of each fact that differs."""
    names = dict.fromkeys([*before.facts, *after.facts])
    pairs = [(name, before.facts.get(name, "none"), after.facts.get(name, "none")) for name in names]
    return [(name, one, other) for name, one, other in pairs if one != other]


def first_difference(one: object, other: object, key: str = "") -> tuple[str, str, str] | None:
    """Dotted key and both values, as JSON, of the first place in which two specs differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            found = first_difference(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))
            if found is not None:
                return found
        return None
    return None if one == other else (key, json.dumps(one), json.dumps(other))


def _comparable(spec: Spec) -> Mapping[str, object]:
    """The spec without what may differ; only the kind of its node, as the device may have changed."""
    return spec.model_dump(mode="json", exclude={"repeat": True, "environment": True, "node": {"options"}})


def _facts(record: Record) -> dict[str, str]:
    provenance, node = record["provenance"], record["node"]
    details = {f"device: {key}": json.dumps(value) for key, value in node["details"].items()}
    return {
        "device": device_name(node),
        "identity of the device (hashed)": node["device"],
        **details,
        "date": f"{datetime.fromtimestamp(provenance['started_epoch_seconds'], UTC):%Y-%m-%d}",
        "Python": provenance["python"],
        "platform": provenance["platform"],
        **{f"package {name}": text for name, text in provenance["packages"].items()},
        "commit": str(provenance["git_commit"]),
        "measuring code": record["code"],
    }


def _values(data: MeasuredData, group: GroupKey, metric: str) -> tuple[list[float], list[Place]]:
    """The metric of the group's cells that have it, and the place of each."""
    cells = data.cells.get(group, [])
    values = (
        cell_slowdowns(cells, data.baseline) if metric == "slowdown" else [cell_value(cell, metric) for cell in cells]
    )
    known = [(value, cell.place) for value, cell in zip(values, cells, strict=True) if value]
    return [value for value, _ in known], [place for _, place in known]


def _blank_reason(data: MeasuredData, group: GroupKey, metric: str) -> str:
    if group in data.reasons:
        return data.reasons[group]
    if metric == "slowdown":
        return "no valid baseline"
    return "too few iterations" if metric in QUANTILES else "0 or not known"


def _row(before: MeasuredData, after: MeasuredData, group: GroupKey, metric: str) -> TableRow:
    (old, on_old), (new, on_new) = (_values(data, group, metric) for data in (before, after))
    row: TableRow = {
        **dict(zip(GROUP_COLUMNS, group, strict=True)),
        "metric": metric,
        "before": log_interval(old, on_old).value if old else None,
        "after": log_interval(new, on_new).value if new else None,
        "n_before": len(old),
        "n_after": len(new),
    }
    if not old or not new:
        without = [data for data, values in ((before, old), (after, new)) if not values]
        reasons = (f"no value in {data.name}: {_blank_reason(data, group, metric)}" for data in without)
        return row | {"reason": "; ".join(reasons)}
    if single := [data.name for data, values in ((before, old), (after, new)) if len(values) < 2]:
        row["reason"] = f"one value in {' and '.join(single)}"
    ratio = welch_ratio(new, old, (on_new, on_old))
    control_metric = metric if metric in optional_metrics(STUDY_KINDS) else MEAN
    verdicts = {data.separability.verdict(group[2], ratio, control_metric) for data in (before, after)} - {None}
    return row | {
        **ratio.columns("ratio"),
        "p": ratio.probability,
        "separable": "no" if "no" in verdicts else next(iter(verdicts), None),
    }
