"""Data sets: any folder with the layout of results/README.md, this study's own or somebody else's."""

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, cast, get_args

from sharebench.config import load as configuration
from sharebench.core import run_record
from sharebench.core.capabilities import OUTSIDE_PREFIX
from sharebench.core.files import REPOSITORY, DamagedFile, Refusal, read_json
from sharebench.core.study_config import Question, QuestionKeys, StudyConfig
from sharebench.datasets import archive
from sharebench.study.cells import canonical
from sharebench.study.study import Study

MatrixKey = Literal[
    "strategies",
    "replicas",
    "workloads",
    "interference",
    "faults",
    "fault_victims",
    "fault_repeats",
    "repeats",
    "null_cells",
    "exclude",
]
MATRIX_KEYS: tuple[MatrixKey, ...] = get_args(MatrixKey)
QUESTION_KEYS = tuple(QuestionKeys.__annotations__)

DEVICE_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F-]{8,}")
ABSOLUTE = re.compile(r"(?<![^\s:=,'\"\[{(])/[^\s,}\]'\"]+")

CATALOGUE = REPOSITORY / "config" / "workloads.yaml"
# How many of the cells that a config leaves out are named where there is little room.
NAMED = 3
NOTHING_TO_JOIN = (
    "parts: [] is nothing to join; name folders: --config 'parts=[/data/gpu0/results, /data/gpu1/results]'"
)
NOTHING_TO_COMPARE = "datasets: [] is nothing to compare; give two: --config 'datasets=[results/before, results/after]'"


class DataSetError(Refusal):
    """The folder is not a data set; one line."""


def results_root(config: StudyConfig) -> Path:
    """Where tables, figures and report go: `results`, or results/from/NAME when rebuilding from a data set."""
    if not config["from"]:
        return Path(config["results"])
    return Path("results/from") / Path(config["from"]).resolve().name.removesuffix(archive.SUFFIX)


def located(path: Path, key: str = "from") -> Path:
    """The folder of a data set, with its checksums verified: see `archive.opened`. Raises DataSetError."""
    try:
        return archive.opened(path)
    except archive.ArchiveError as error:
        raise DataSetError(f"config: {key}: {error}") from None


def study_of(path: Path, key: str = "from") -> Study:
    """The study that made this data set, by its manifest. Raises DataSetError, which names the config's key."""
    folder = located(path, key)
    try:
        manifest = read_json(folder / "manifest.json")
        made_by = manifest["config"] | {"from": os.path.relpath(path), "datasets": [], "parts": []}
        made_by |= {"node": manifest["node_kind"]}
        if (older := made_by.pop("slo_ms", None)) is not None:
            made_by["slo"] = {"latency_ms": older}
    except (OSError, DamagedFile, KeyError, TypeError) as error:
        raise DataSetError(
            f"config: {key}: {path} is not a data set ({type(error).__name__}: {error}); "
            "give a folder that has manifest.json and cells/"
        ) from None
    return Study(configuration.load(made_by))


def open_study(path: Path) -> Study:
    """The study that made this data set, to be rebuilt into results/from/NAME. Raises DataSetError."""
    study = study_of(path)
    made_by = study.config
    there = run_record.read_run(results_root(made_by)).get("config", {}).get("from", made_by["from"])
    if there != made_by["from"]:
        raise DataSetError(
            f"config: from: {results_root(made_by)} holds what was rebuilt from {there}; remove it, or rename a folder"
        )
    return study


def labels(folders: Iterable[str]) -> list[str]:
    """A short name for each data set: the last part of its path in which they differ."""
    parts = [Path(folder).resolve().parts for folder in folders]
    # Nodes of a cluster are measured in folders of their own, by the same config.
    while len(parts) > 1 and len({own[-1] for own in parts}) == 1 and min(map(len, parts)) > 2:
        parts = [own[:-1] for own in parts]
    return [own[-1].removesuffix(archive.SUFFIX) for own in parts]


def names(folders: Iterable[str]) -> str:
    """A name for what is made from these data sets together."""
    return "-".join(labels(folders)) or "nothing"


def contents(folders: Iterable[str]) -> list[str]:
    """A digest of each archive, or of a folder's manifest, which is rewritten whenever its tables are."""
    files = (Path(path) if Path(path).is_file() else Path(path) / "manifest.json" for path in folders)
    return [hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "none" for path in files]


def portable(text: str) -> str:
    """A word of a command or a path as it may be published: of paths that lead out of here only the last part."""
    text = DEVICE_UUID.sub(r"\1-…", text)
    key, separator, value = text.rpartition("=")
    if "{" in text:
        # A mapping, such as nvidia={python: /opt/bin/python}.
        return ABSOLUTE.sub(lambda found: f"{OUTSIDE_PREFIX}{Path(found.group()).name}", text)
    if not Path(value).is_absolute() and ".." not in Path(value).parts:
        return text
    inside = Path(value).resolve().is_relative_to(Path.cwd())
    return key + separator + (os.path.relpath(value) if inside else f"{OUTSIDE_PREFIX}{Path(value).name}")


def published(folder: Path) -> list[str]:
    """The data sets below the folder `published`: `name` of one by itself, `publication/study` of one of several."""
    manifests = [*folder.glob("*/manifest.json"), *folder.glob("*/*/manifest.json")]
    return sorted(manifest.parent.relative_to(folder).as_posix() for manifest in manifests)


def check_whole(study: Study, key: str = "from") -> None:
    """Raise DataSetError when the data set that the study was opened from lacks a file that its manifest promises."""
    folder = located(Path(str(study.config["from"])))
    paths = ["nodes/device.json", *(cell.raw for cell in study.cells)]
    paths += [f"calibration/{workload}.json" for workload in study.calibrated()]
    paths += [f"cells/{strategy}/{workload}/histograms.csv" for strategy, workload in study.pairs()]
    missing = [path for path in paths if not (folder / path).exists()]
    if missing:
        raise DataSetError(
            f"config: {key}: {study.config['from']} lacks {len(missing)} of its {len(paths)} files,"
            f" such as {missing[0]}; give a complete data set"
        )


def digest(study: Study) -> str:
    """A name for exactly what the study's tables hold: its cells, their specs and their measuring code."""
    codes = {workload: study.code(workload) for workload in study.workloads()}
    specs = [study.spec(cell) for cell in study.tabled()]
    return hashlib.sha256(canonical([codes, specs]).encode()).hexdigest()[:16]


def refuse_ignored(given: Iterable[str]) -> None:
    """Raise DataSetError where the command line sets what has no effect on the results of a data set."""
    ignored = [key for key in given if key not in ("from", "workloads", *QUESTION_KEYS)]
    if ignored:
        raise DataSetError(
            f"config: {', '.join(ignored)}: no effect with from, whose study was measured before; leave it out, "
            f"or set what the advice is asked (workloads, {', '.join(QUESTION_KEYS)})"
        )


def question(asked: StudyConfig, given: Collection[str], typed: Collection[str], study: Study) -> Question:
    """What the advice is asked: the given keys of the config at hand, the others of the one that made the data set.

    Of `workloads`, if they were typed on the command line, these alone. Raises DataSetError for one that is not there.
    """
    by_key = {key: asked if key in given else study.config for key in QUESTION_KEYS}
    about = cast(Question, {key: cast(dict[str, object], config)[key] for key, config in by_key.items()})
    if "workloads" not in typed:
        return about
    there = study.workloads()
    if missing := [name for name in asked["workloads"] if name not in there]:
        raise DataSetError(
            f"config: workloads: {', '.join(missing)}: not in {study.config['from']}; it has {', '.join(there)}"
        )
    return {**about, "workloads": asked["workloads"]}


def with_question(study: Study, question: Question) -> Study:
    """The study with the SLO and the price that are asked for now: its tables have goodput and costs by them."""
    return Study(study.config | {"slo": question["slo"], "price_per_hour": question["price_per_hour"]})


def asked(question: Question, study: Study) -> str:
    """A name for what the advice is asked, and of which tables."""
    return hashlib.sha256(canonical([question, digest(study)]).encode()).hexdigest()[:16]


def short_windows(config: StudyConfig, names: Iterable[str]) -> dict[str, float]:
    """Those of these workloads whose windows are shorter than the minimum (seconds) in this project's catalogue.

    `config` is normalised. A study may set a lower minimum, and that is what its manifest has.
    """
    import yaml  # imported late: a parse of the Snakefile does not need it

    shipped = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))["workload_catalogue"]
    found = {}
    for name in (name for name in names if name in shipped):
        entry, own = config["workload_catalogue"][name], shipped[name]
        is_same = entry["module"] == own.get("module") and entry["params"] == own.get("params", {})
        minimum = float(own.get("min_window_seconds", 0))
        if is_same and entry["kind"] != "job" and config["window_seconds"] < minimum:
            found[name] = minimum
    return found


def short_windows_in_words(study: Study) -> str:
    """One line for tables, figures and reports; empty where no window is short."""
    short = ", ".join(
        f"{name} ({seconds:g} s)" for name, seconds in short_windows(study.config, study.calibrated()).items()
    )
    window = f"{study.config['window_seconds']:g} s"
    return f"Windows of {window} are shorter than the catalogue's minimum for {short}." if short else ""


def left_out(study: Study) -> str:
    """One line: what the config excludes; empty where that is nothing."""
    everything = Study(study.config | {"exclude": []}).cells
    missing = len(everything) - len(study.cells)
    named = study.config["exclude"]
    patterns = ", ".join([*named[:NAMED], *(["…"] if len(named) > NAMED else [])])
    return f"Left out by the config: {missing} of {len(everything)} cells ({patterns})." if missing else ""
