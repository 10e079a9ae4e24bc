"""Data sets: any folder with the layout of results/README.md, this study's own or somebody else's."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sharebench import config as configuration
from sharebench import ownership
from sharebench.files import read_json
from sharebench.matrix import Study, canonical

MATRIX_KEYS = (
    "strategies",
    "replicas",
    "workloads",
    "interference",
    "faults",
    "fault_victims",
    "fault_repeats",
    "repeats",
)

DEVICE_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F-]{8,}")
ABSOLUTE = re.compile(r"(?<![^\s:=,'\"\[{(])/[^\s,}\]'\"]+")


class DataSetError(Exception):
    """The folder is no data set; one line."""


def results_root(config: dict[str, Any]) -> Path:
    """Where tables, figures and report go: `results`, or results/from/NAME when rebuilding from a data set."""
    return Path("results/from") / Path(config["from"]).resolve().name if config["from"] else Path(config["results"])


def open_study(folder: Path) -> Study:
    """The study that made this data set, by its manifest. Raises DataSetError."""
    try:
        manifest = read_json(folder / "manifest.json")
        made_by = manifest["config"] | {"from": os.path.relpath(folder), "node": manifest["node_kind"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataSetError(
            f"config: from: {folder} is no data set ({type(error).__name__}: {error}); "
            "give a folder that has manifest.json and cells/"
        ) from None
    there = ownership.read_run(results_root(made_by)).get("config", {}).get("from", made_by["from"])
    if there != made_by["from"]:
        raise DataSetError(
            f"config: from: {results_root(made_by)} holds what was rebuilt from {there}; remove it, or rename a folder"
        )
    return Study(configuration.load(made_by))


def portable(text: str) -> str:
    """A word of a command or a path as it may be published: of paths that lead out of here only the last part."""
    text = DEVICE_UUID.sub(r"\1-…", text)
    key, separator, value = text.rpartition("=")
    if "{" in text:
        # A mapping, such as nvidia={python: /opt/bin/python}.
        return ABSOLUTE.sub(lambda found: f"…/{Path(found.group()).name}", text)
    if not Path(value).is_absolute() and ".." not in Path(value).parts:
        return text
    inside = Path(value).resolve().is_relative_to(Path.cwd())
    return key + separator + (os.path.relpath(value) if inside else f"…/{Path(value).name}")


def check_whole(study: Study) -> None:
    """Raise DataSetError when the data set that the study was opened from lacks a file that its manifest promises."""
    folder = Path(study.config["from"])
    paths = ["nodes/device.json", *(cell.raw for cell in study.cells)]
    paths += [f"calibration/{workload}.json" for workload in study.calibrated()]
    paths += [f"cells/{strategy}/{workload}/histograms.csv" for strategy, workload in study.pairs()]
    missing = [path for path in paths if not (folder / path).exists()]
    if missing:
        raise DataSetError(
            f"config: from: {folder} lacks {len(missing)} of its {len(paths)} files, such as {missing[0]}; "
            "give a complete data set"
        )


def digest(study: Study) -> str:
    """A name for exactly what the study's tables hold: its cells, their specs and their measuring code."""
    codes = {workload: study.code(workload) for workload in study.workloads()}
    specs = [study.spec(cell) for cell in study.tabled()]
    return hashlib.sha256(canonical([codes, specs]).encode()).hexdigest()[:16]


def _words(axis: str, values: Iterable[Any]) -> str:
    return f"{axis} {', '.join(map(str, values))}"


def not_shown(study: Study, files_config: dict[str, Any]) -> str:
    """One line: what of the config files' matrix is not among the study's cells; empty when all of it is."""
    if study.config["from"]:
        return ""
    try:
        matrix = configuration.load({**study.config, **{k: files_config[k] for k in MATRIX_KEYS if k in files_config}})
    except configuration.ConfigError:
        # The files alone need not make sense on this node: the command line may be what mends them.
        return ""
    everything = Study(matrix)
    missing = set(everything.cells) - set(study.cells)
    if not missing:
        return ""
    parts = []
    for axis, name in (
        ("strategy", "strategies"),
        ("replicas", "replicas"),
        ("workload", "workloads"),
        ("repeat", "repeats"),
    ):
        shown = {getattr(cell, axis) for cell in study.cells}
        gone = {getattr(cell, axis) for cell in missing} - shown
        if gone:
            parts.append(_words(name, sorted(gone)))
    what = "; ".join(parts) or "some combinations"
    return f"Not shown: {len(missing)} of the config file's {len(everything.cells)} cells ({what})."
