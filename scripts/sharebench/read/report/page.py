"""report.html: one file that shows a whole study offline."""

import base64
import hashlib
import html
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
import yaml

from sharebench.core.files import REPOSITORY, read_json, replace_atomically
from sharebench.model.config.files import OWN_FILES, merged
from sharebench.model.records.types import NodeFacts
from sharebench.model.strategies import control_name
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import StudyConfig, has_streams, is_job, sweeps_by_entry, to_json
from sharebench.model.workload import Workload
from sharebench.read import promises
from sharebench.read.figures import catalogue
from sharebench.read.figures.data import DrawnStudy, Row, load_study
from sharebench.read.figures.looks import COLORS, strategy_label, strategy_looks
from sharebench.read.report import words
from sharebench.read.report.audit import audit
from sharebench.read.report.sections import advice, cards, comparisons, promise_rows, statements
from sharebench.read.text import known_looks

TEMPLATES = Path(__file__).resolve().parent / "templates"
SECTIONS = {
    "cards": "The answer",
    "conformance": "Promises",
    "curves": "Latency and throughput",
    "interference": "Interference",
    "isolation": "Faults",
    "jobs": "Jobs",
    "advice": "Advice",
    "numbers": "Numbers",
    "comparisons": "Comparisons",
    "energy": "Power, energy and memory",
    "figures": "Figures",
    "trust": "Checks",
    "outcomes": "Other outcomes",
    "setup": "Set-up",
    "repeat": "Repeat and cite",
}
"""Template and heading of each section, the answers first."""
OPEN_SECTIONS = ("conformance", "cards", "curves", "interference", "isolation", "jobs")
"""Sections that are open at first; the others are collapsed."""
CURVE_FIGURES = ("latency", "throughput", "serving", "progress")
SWEEP_FIGURES = ("load-curve", "replicas")
"""Figures next to the cards of sweeps."""
PIXELS_PER_POINT = 1.9
"""Makes a figure's text of 7 points as large as the report's small print."""
UNKNOWN_UNITS = "not known: neither the node nor a tenant says"
MAX_LISTED = 100
"""The most cells listed under a heading; tables/cells.csv has all."""
MAX_ROWS, MIN_ROWS = 800, 40
"""The most rows of the summary that are shown in total, and the least of a workload; tables/summary.csv has all."""

UNASKED_KEYS = ("from", "results", "strategy_catalogue", "workload_catalogue")
"""Where data are read and written, and the catalogues, whose entries in use are shown in tables."""

POWER_AND_ENERGY = ("power_mean_watts", "energy_per_iteration_joules", "energy_above_idle_per_iteration_joules")
"""Metrics of the summary that only a GPU has."""


class FigureImage(NamedTuple):
    """A figure as an element of the page, so that its points can be asked, and its width on the screen."""

    svg: str
    width_pixels: int


def write_report(data: Path, results: Path) -> None:
    """Write `results`/report.html from the tables and figures there and the facts of the node under `data`.

    A figure that is missing gets a note. Raises OSError when another input cannot be read, or the report not written.
    """
    replace_atomically(results / "report.html", _template().render(report_context(data, results)))


@cache
def _template() -> jinja2.Template:
    """The page's template, compiled once per process."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(digits=words.format_number, estimate=words.format_interval, text=words.value_text)
    environment.filters["label"] = strategy_label
    return environment.get_template("report.html.j2")


def _load_text(entry: Workload) -> str:
    return "once, from its start to its exit" if entry.runs_until_exit else words.load_text(entry.load)


def repeat_command(manifest: Mapping[str, Any], data: Path) -> str:
    """The command that repeats the study: the data set's, if the tables come from one."""
    source = manifest["config"]["from"]
    if not source:
        return shlex.join(manifest["argv"])
    config = Path(source[0]) / "config.yaml"
    if config.is_file():
        return f"snakemake --cores 1 --configfile {shlex.quote(str(config))} --config results=results/mine"
    return shlex.join(read_json(data / "manifest.json")["argv"])


def report_context(data: Path, results: Path) -> dict[str, Any]:
    study = load_study(data, results)
    manifest = read_json(results / "manifest.json", "config", "not_shown", "provenance")
    summary = study.table("summary")
    rows = study.rows_by_workload(summary)
    common_remarks = {workload: add_remarks(of_workload) for workload, of_workload in rows.items()}
    shared = shared_workloads(rows, study.config["baseline"])
    style = strategy_looks(study.catalogue, study.strategies(summary))
    names = catalogue.names_for(study.config, study.node["kind"], results / "tables" / "summary.csv")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").strip()
    advice_data, entries = advice.advice(study), study.config["workload_catalogue"]
    tested = promises.promise_workloads(entries)
    return {
        "sections": SECTIONS,
        "open_sections": OPEN_SECTIONS,
        "cards": cards.cards(
            advice_data,
            rows,
            [name for name in shared if not (study.is_mix(name) or is_job(study.config, name) or name in tested)],
            sweeps_by_entry(study.config),
        ),
        "sweep_figures": [name for name in SWEEP_FIGURES if name in names],
        "css": (TEMPLATES / "report.css").read_text(encoding="utf-8"),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "config": study.config,
        "changed_keys": changed_keys(study.config),
        "config_text": yaml.safe_dump(to_json(study.config), sort_keys=False, allow_unicode=True),
        "node": study.node,
        "facts": study.facts,
        "manifest": manifest,
        "created": f"{datetime.fromtimestamp(manifest['created_epoch_seconds'], UTC):%d %B %Y, %H:%M} UTC",
        "command": repeat_command(manifest, data),
        "is_from_data_set": bool(manifest["config"]["from"] or study.config["measured_elsewhere"]),
        "colors": {name: look.color for name, look in style.items()},
        "square_swatches": list(style)[len(COLORS) :],
        "summary": rows,
        "common": common_remarks,
        "looks": {
            workload: [look for look in known_looks(of_workload) if any(look.title)]
            for workload, of_workload in study.by_workload(summary).items()
        },
        "mixes": {workload for workload in rows if study.is_mix(workload)},
        "advice": advice_data,
        "has_streams": has_streams(study.config),
        "capacity": advice.capacity(study, shared),
        "cost": advice.cost(study),
        "interference": statements.interference(study),
        "jobs": statements.jobs(study),
        "job_facts": study.job_facts,
        "has_programs": any(name in entries and entries[name].runs_until_exit for name in summary["tenant_workload"]),
        "isolation": statements.isolation(study),
        "conformance": promise_rows.promise_rows(study),
        "contrasts": comparisons.contrast_rows(study),
        "devices": comparisons.device_rows(study),
        "controls": comparisons.control_rows(rows),
        "several_tenants": comparisons.several_tenants(rows),
        "cell_metrics": comparisons.CELL_METRICS,
        "power_rows": study.rows_by_workload(summary.dropna(subset=[*POWER_AND_ENERGY], how="all")),
        "power_and_energy": POWER_AND_ENERGY,
        "bucket_error_percent": summary.filter(like="bucket_error_percent").max().max(),
        "figures": {name: (catalogue.ENTRIES[name], read_image(results, name)) for name in names},
        "curve_figures": CURVE_FIGURES if advice_data.rows else (),
        "audit": audit(study),
        "device": device_facts(study.node, study.node["units"] or manifest.get("device_units")),
        **_descriptions(study, summary, manifest["requested"]["strategies"]),
        "max_listed": MAX_LISTED,
        "max_rows": max(MIN_ROWS, MAX_ROWS // max(len(rows), 1)),
    }


def changed_keys(config: StudyConfig) -> list[tuple[str, str]]:
    """The keys whose values are not the defaults, and the values, as text; without the catalogues."""
    own = merged([REPOSITORY / "config" / name for name in OWN_FILES], [])

    def changed(values: Mapping[str, Any], defaults: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        for key, value in values.items():
            default = defaults.get(key)
            if isinstance(value, dict) and isinstance(default, dict):
                yield from changed(value, default, f"{path}{key}.")
            elif value != default:
                text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
                yield f"{path}{key}", text.removesuffix("...\n").strip()

    asked = {key: value for key, value in to_json(config).items() if key not in UNASKED_KEYS}
    return list(changed(asked, own, ""))


def read_image(results: Path, name: str) -> FigureImage | None:
    """The figure of this name; None if it has not been drawn."""
    path = results / "figures" / f"{name}.svg"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', text)
    description = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    said = html.escape(f"{catalogue.ENTRIES[name].title}. {html.unescape(description[1]) if description else ''}")
    element = re.sub("^.*?(?=<svg)|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Figures are on one page, where an id may occur once.
    element = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", element)
    return FigureImage(
        svg=element.replace("<svg", f'<svg role="img" aria-label="{said} The values are in the tables."', 1),
        width_pixels=round(PIXELS_PER_POINT * float(width[1])) if width else 640,
    )


def shared_workloads(rows: dict[str, list[Row]], baseline: str) -> dict[str, list[Row]]:
    """The workloads that also ran under other strategies than the baseline; all if there are none."""
    baselines = (baseline, control_name(baseline))
    shared = {name: own for name, own in rows.items() if any(row["strategy"] not in baselines for row in own)}
    return shared or rows


def _descriptions(study: DrawnStudy, summary: pd.DataFrame, requested: list[str]) -> dict[str, list[tuple[str, ...]]]:
    """Descriptions of the study's strategies, workloads and mixes; includes queues, which the summary lacks."""
    tabled = study.strategies(summary)
    strategies, workloads = study.config["strategy_catalogue"], study.config["workload_catalogue"]
    names = [*tabled, *(name for name in requested if name not in tabled)]
    workloads_run, tenant_workloads = set(summary["workload"]), set(summary["tenant_workload"])
    return {
        "strategies": [(name, *_strategy_texts(strategies.get(name))) for name in names],
        "workloads": [
            (name, entry.description, words.value_text(entry.params), _load_text(entry))
            for name, entry in workloads.items()
            if name in tenant_workloads
        ],
        "compositions": [
            (name, entry.description, words.value_text(entry.tenants))
            for name, entry in workloads.items()
            if name in workloads_run and study.is_mix(name)
        ],
    }


def add_remarks(rows: list[Row]) -> list[str]:
    """Add `remarks` to every row. Remarks common to all rows with a valid cell are returned instead."""
    for row in rows:
        status = [row["status"]] if row["status"] != "ok" else []
        row["remarks"] = [*status, *filter(None, [row["reason"], *row["notes"].split("; ")])]
    measured = [row["remarks"] for row in rows if row["n"] > 0]
    common = [each for each in measured[0] if all(each in other for other in measured)] if len(measured) > 1 else []
    for row in rows:
        row["remarks"] = [each for each in row["remarks"] if each not in common]
    return common


def device_facts(node: NodeFacts, units: int | None) -> list[tuple[str, str]]:
    """Names and values of the known facts about the node; `units` are its SMs or cores."""
    memory = node["memory_bytes"]
    facts = [
        ("device", node["product"]),
        ("label", node["label"]),
        ("kind of node", node["kind"]),
        (f"number of {node['units_name']}", UNKNOWN_UNITS if units is None else str(units)),
        ("memory", f"{words.format_number(memory / 2**30)} GiB" if memory else ""),
        ("identity (hashed)", node["device"]),
        *((name.replace("_", " "), words.value_text(value)) for name, value in node["details"].items()),
    ]
    return [(name, value) for name, value in facts if value]


def _strategy_texts(strategy: Strategy | None) -> tuple[str, str]:
    if strategy is None:
        return "", ""
    settings = {name: value for name, value in strategy.spec().items() if name not in ("name", "description")}
    return strategy.description, words.value_text(settings)
