"""report.html: one file that shows a whole study offline."""

import base64
import html
import math
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import yaml

from sharebench import figures
from sharebench.figures import data as tables
from sharebench.figures.palette import looks
from sharebench.files import read_json, replace_atomically
from sharebench.mixes import in_words
from sharebench.report_audit import audit
from sharebench.report_interference import verdicts
from sharebench.report_jobs import of_jobs

TEMPLATES = Path(__file__).resolve().parent / "templates"
LISTED = 100
"""So many cells are listed under each heading; the rest is counted, and tables/cells.csv has them all."""
SIGNIFICANT_DIGITS = 3
PIXELS_PER_POINT = 1.9
"""Makes a figure's text of 7 points as large as the report's small print."""

BASELINE = ("exclusive", 1, True)
"""Strategy and tenants of what every finding compares with, if it has a valid cell."""

POWER_AND_ENERGY = ("power_mean_watts", "energy_per_iteration_joules", "energy_above_idle_per_iteration_joules")
"""Metrics of the summary that only a GPU has."""

Row = dict[str, Any]


def write(data: Path, results: Path) -> None:
    """Write `results`/report.html from the tables and figures there and the records under `data`.

    A figure that is missing is said to be. Raises OSError when another input cannot be read, or the report
    not written.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(digits=digits, estimate=estimate, words=words)
    template = environment.get_template("report.html.j2")
    replace_atomically(results / "report.html", template.render(context(data, results)))


def context(data: Path, results: Path) -> dict[str, Any]:
    """Everything that the template shows."""
    study = tables.load(data, results)
    manifest = read_json(results / "manifest.json")
    summary = tables.summary(study)
    strategies = study.strategies(summary)
    rows: dict[str, list[Row]] = {workload: [] for workload in study.workloads(summary)}
    for row in summary.sort_values("replicas", kind="stable").to_dict("records"):
        rows[row["workload"]].append({str(column): value for column, value in row.items()})
    for of_workload in rows.values():
        of_workload.sort(key=lambda row: strategies.index(row["strategy"]))
    # A queue is in the table of jobs alone.
    described = [*strategies, *(name for name in manifest["requested"]["strategies"] if name not in strategies)]
    common = {workload: remark(of_workload) for workload, of_workload in rows.items()}
    style = looks(study.catalogue, strategies)
    drawn = [(name, figures.NAMES[name]) for name in figures.names_for(study.config)]
    return {
        "css": (TEMPLATES / "report.css").read_text(encoding="utf-8"),
        "config": study.config,
        "config_text": yaml.safe_dump(study.config, sort_keys=False, allow_unicode=True),
        "node": study.node,
        "facts": study.facts,
        "manifest": manifest,
        "created": f"{datetime.fromtimestamp(manifest['created_epoch_seconds'], UTC):%d %B %Y, %H:%M} UTC",
        "command": shlex.join(manifest["argv"]),
        "colors": {name: look.color for name, look in style.items()},
        "summary": rows,
        "common": common,
        "mixes": {workload for workload in rows if study.is_mix(workload)},
        "findings": all_findings(rows),
        "interference": verdicts(study),
        "jobs": of_jobs(study),
        "job_facts": study.job_facts,
        "powered": {workload: known for workload, of_workload in rows.items() if (known := powered(of_workload))},
        "power_and_energy": POWER_AND_ENERGY,
        "bucket_error_percent": summary.filter(like="bucket_error_percent").max().max(),
        "figures": [(entry, picture(results / "figures" / f"{name}.svg")) for name, entry in drawn],
        "audit": audit(study),
        "device": device(study.node),
        "strategies": [(name, *_strategy(study.config["strategy_catalogue"].get(name, {}))) for name in described],
        "workloads": [
            (name, entry["description"], words(entry.get("params", {})), load(entry.get("load", {})))
            for name, entry in study.config["workload_catalogue"].items()
            if name in set(summary["tenant_workload"])
        ],
        "compositions": [
            (name, entry["description"], words(entry["tenants"]))
            for name, entry in study.config["workload_catalogue"].items()
            if name in rows and study.is_mix(name)
        ],
        "listed": LISTED,
    }


def remark(rows: list[Row]) -> list[str]:
    """Give every row its `remarks`; those that all rows with a valid cell share are returned instead."""
    for row in rows:
        status = [row["status"]] if row["status"] != "ok" else []
        row["remarks"] = [*status, *filter(None, [row["reason"], *row["notes"].split("; ")])]
    measured = [row["remarks"] for row in rows if row["n"] > 0]
    shared = [each for each in measured[0] if all(each in other for other in measured)] if len(measured) > 1 else []
    for row in rows:
        row["remarks"] = [each for each in row["remarks"] if each not in shared]
    return shared


def powered(rows: list[Row]) -> list[Row]:
    """The rows that know the device's power or energy."""
    return [row for row in rows if any(not math.isnan(row[metric]) for metric in POWER_AND_ENERGY)]


class Finding(NamedTuple):
    """What the data say of one strategy, in plain words."""

    strategy: str
    text: str


def all_findings(rows: dict[str, list[Row]]) -> dict[str, list[Finding]]:
    """The findings of each workload, and of each that is part of a mix; pairs have a section of their own."""
    found = {}
    for workload, of_workload in rows.items():
        for tenant_workload in dict.fromkeys(row["tenant_workload"] for row in of_workload):
            if "+" not in workload:
                own = [row for row in of_workload if row["tenant_workload"] == tenant_workload]
                found[in_words(workload, tenant_workload)] = findings(own, rows.get(tenant_workload, []))
    return found


def findings(rows: list[Row], plain: list[Row]) -> list[Finding]:
    """One finding per strategy at its largest number of tenants, from all `rows` of a workload, in order.

    Where that has no valid measurement, the finding says why and goes on with the largest that has one. The workload
    alone is among `plain`, the same rows unless those are of a mix.
    """
    alone = next((row for row in plain if (row["strategy"], row["replicas"], row["n"] > 0) == BASELINE), None)
    found = []
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        own = [row for row in rows if row["strategy"] == strategy]
        measured = [row for row in own if row["n"] > 0]
        sentences = []
        if own[-1]["n"] == 0:
            reason = f" ({own[-1]['reason']})" if own[-1]["reason"] else ""
            sentences.append(f"{_tenants(own[-1])}: {tables.absence(own[-1])}{reason}.")
        if measured:
            sentences += _sentences(measured[-1], alone)
        found.append(Finding(strategy, " ".join(sentences)))
    return found


def _tenants(row: Row) -> str:
    if row["tenant_workload"] != row["workload"]:
        return f"Among {row['replicas']} tenants"
    return "One tenant" if row["replicas"] == 1 else f"{row['replicas']} tenants"


def _sentences(row: Row, alone: Row | None) -> list[str]:
    total_hz, slowdown = row["throughput_total_hz"], estimate(row, "slowdown")
    if row is alone or alone is None or not slowdown.value:
        p50_ms = digits(1e3 * row["latency_p50_seconds"]) or "unknown"
        sentences = [f"{_tenants(row)}: median latency {p50_ms} ms, {digits(total_hz)} iterations/s in total."]
    else:
        within = f" (95 % interval {slowdown.low} to {slowdown.high})" if slowdown.low else ""
        alone_hz = alone["throughput_total_hz"]
        sentences = [
            f"{_tenants(row)}: an iteration took on average {slowdown.value} times as long as alone{within}.",
            f"In total {total_hz / alone_hz:.2f} times the work of one exclusive tenant"
            f" ({digits(total_hz)} against {digits(alone_hz)} iterations/s).",
        ]
    if row["n"] < row["n_expected"]:
        sentences.append(f"From {row['n']} of {row['n_expected']} repeats.")
    if row["warnings"]:
        sentences.append(f"Cells with a warning: {row['warnings']} of {row['n_expected']}.")
    return sentences


def picture(svg: Path) -> dict[str, Any] | None:
    """An svg file as a data URI, its width on the screen and what it says in words; None if missing."""
    if not svg.is_file():
        return None
    content = svg.read_bytes()
    text = content.decode()
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', text)
    about = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    return {
        "uri": "data:image/svg+xml;base64," + base64.b64encode(content).decode(),
        "width_pixels": round(PIXELS_PER_POINT * float(width[1])) if width else 640,
        "words": html.unescape(about[1]) if about else "",
    }


def device(node: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of what is known about the node."""
    memory = node["memory_bytes"]
    facts = [
        ("device", node["product"]),
        ("label", node["label"]),
        ("kind of node", node["kind"]),
        (f"number of {node['units_name']}", words(node["units"])),
        ("memory", f"{digits(memory / 2**30)} GiB" if memory else ""),
        ("identity (hashed)", node["device"]),
        *((name.replace("_", " "), words(value)) for name, value in node["details"].items()),
    ]
    return [(name, value) for name, value in facts if value]


def _strategy(entry: dict[str, Any]) -> tuple[str, str]:
    settings = {name: value for name, value in entry.items() if name != "description" and value is not None}
    return entry.get("description", ""), words(settings)


def load(entry: dict[str, Any]) -> str:
    """The load of a workload in words."""
    if entry.get("arrival", "closed") == "closed":
        return "closed: the next iteration begins when the last has ended"
    rate = f"{words(entry.get('rate_hz'))} per second"
    if entry.get("rate_of_capacity") is not None:
        rate = f"{words(entry['rate_of_capacity'])} of what one exclusive tenant can do"
    return f"open: {entry['arrival']} arrivals, {rate}"


def digits(value: float) -> str:
    """A number to three significant digits, or to the whole beyond, without exponent; empty for NaN."""
    return "" if math.isnan(value) else _fixed(value, _decimals(value))


def _decimals(value: float) -> int:
    return max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))) if value else 0


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


class Estimate(NamedTuple):
    """A metric with its interval as text, all with the decimals of the value; empty where there is none."""

    value: str
    low: str
    high: str


def estimate(row: Row, metric: str, factor: float = 1.0) -> Estimate:
    """`metric` of a row of the summary or another table, times `factor`; not every metric has an interval."""
    ends = [factor * row.get(f"{metric}{end}", math.nan) for end in ("", "_low", "_high")]
    decimals = 0 if math.isnan(ends[0]) else _decimals(ends[0])
    return Estimate(*("" if math.isnan(end) else _fixed(end, decimals) for end in ends))


def words(value: Any) -> str:
    """A value of config or facts for people: `size 256, dtype float64`, `0, 1`, `yes`, `not known`."""
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(words(item) for item in value)
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
