"""Data sets: folders with the layout of results/README.md, from this study or another one."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from sharebench.core.files import REPOSITORY, DamagedFile, Refusal, read_json
from sharebench.datasets import archive
from sharebench.model import run_record
from sharebench.model.config import load as configuration
from sharebench.model.question import Question, QuestionKeys
from sharebench.model.records.references import read_device
from sharebench.model.spec import canonical_json
from sharebench.model.study_config import StudyConfig
from sharebench.study.cells import is_excluded, without_excluded
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


EARLIER_CODES = "nodes/earlier_codes.json"
"""File of a joined study: by workload, the fingerprints of earlier measuring code whose records count too."""
PROBE_FILES = ("nodes/timeslice.json", "nodes/answers.json")
"""What probes of the device found, which no study needs."""
FACT_FILES = ("manifest.json", "tables/summary.csv", "tables/isolation.csv", "tables/conformance.csv")
"""What is read of other studies for the advice, as far as they have it."""
WORKLOADS_FILE = REPOSITORY / "config" / "workloads.yaml"
# At most this many patterns of excluded cells are named in a note.
MAX_NAMED_PATTERNS = 3


class DataSetError(Refusal):
    """The folder is not a data set; one line."""


def results_root(config: StudyConfig) -> Path:
    """The folder for tables, figures and report: `results`, or results/from/NAME when rebuilding a data set.

    Raises DataSetError for a name that is not that of a folder below results/from, which whoever made it has chosen.
    """
    if not config["from"]:
        return Path(config["results"])
    name = Path(config["from"][0]).resolve().name.removesuffix(archive.SUFFIX)
    if not name or name.startswith("."):
        raise DataSetError(
            f"config: from: {config['from'][0]} names no folder for what is rebuilt; rename it, such as study.zip"
        )
    return Path("results/from") / name


def verified_folder(path: Path, where: str = "config: from") -> Path:
    """The same as `archive.verified_folder`, but raises DataSetError, which begins with `where`."""
    try:
        return archive.verified_folder(path)
    except archive.ArchiveError as error:
        raise DataSetError(f"{where}: {error}") from None


def read_study(path: Path, where: str = "config: from") -> Study:
    """The study that made this data set, from its manifest. Raises DataSetError, which begins with `where`."""
    folder = verified_folder(path, where)
    try:
        manifest = read_json(folder / "manifest.json", "config", "node_kind")
        if not isinstance(manifest["config"], dict):
            raise DamagedFile(folder / "manifest.json", "config is not a mapping")
        made_by = manifest["config"] | {"from": [os.path.relpath(path)]}
        made_by = {key: value for key, value in made_by.items() if key not in ("datasets", "survey", "parts")}
        made_by |= {"node": manifest["node_kind"]}
        if (older := made_by.pop("slo_ms", None)) is not None:
            made_by["slo"] = {"latency_ms": older}
    except (OSError, DamagedFile) as error:
        # Without a damaged file's remedy, since no run would write this one from scratch.
        damage = str(error).partition("; remove it")[0]
        problem = f"manifest.json: {error.strerror}" if isinstance(error, OSError) else damage
        inside = list_published(path)
        remedy = f"one of its studies: {', '.join(inside)}" if inside else "a folder that has manifest.json and cells/"
        raise DataSetError(f"{where}: {path} is not a data set ({problem}); give {remedy}") from None
    try:
        return Study(configuration.load(made_by))
    except configuration.ConfigError as error:
        raise DataSetError(f"{where}: {path}: its {error}") from None


def open_complete(path: Path, where: str = "config: from") -> tuple[Study, Path]:
    """The study that made this data set, which has all its files, and its folder, unpacked.

    Raises DataSetError, which begins with `where`.
    """
    study = read_study(path, where)
    return study, check_complete(study, where)


def open_for_rebuild(path: Path) -> Study:
    """The study that made this data set, for a rebuild into results/from/NAME. Raises DataSetError."""
    study = read_study(path)
    made_by = study.config
    there = run_record.last_run(results_root(made_by)).get("config", {}).get("from") or made_by["from"]
    # Older runs have the only folder.
    first = there if isinstance(there, str) else there[0]
    if [first] != made_by["from"]:
        raise DataSetError(
            f"config: from: {results_root(made_by)} holds what was rebuilt from {first}; remove it, or rename a folder"
        )
    return study


def short_names(folders: Iterable[str]) -> list[str]:
    """A short name for each data set: the last part of its path in which the data sets differ."""
    parts = [Path(folder).resolve().parts for folder in folders]
    # The nodes of a cluster are measured by one config, each in a folder of its own.
    while len(parts) > 1 and len({path[-1] for path in parts}) == 1 and min(map(len, parts)) > 2:
        parts = [path[:-1] for path in parts]
    return [path[-1].removesuffix(archive.SUFFIX) for path in parts]


def combined_name(folders: Iterable[str]) -> str:
    """The name of the folder for a comparison of these data sets."""
    return "-".join(short_names(folders)) or "nothing"


def list_published(folder: Path) -> list[str]:
    """The names of the data sets below the folder: `name`, or `publication/study` for one of several."""
    manifests = [*folder.glob("*/manifest.json"), *folder.glob("*/*/manifest.json")]
    return sorted(manifest.parent.relative_to(folder).as_posix() for manifest in manifests)


def other_studies(
    paths: Sequence[Path], where: str = "config: from", note: Callable[[str], None] | None = None
) -> list[Path]:
    """The other studies that count for the advice on the first: those after it, and the others of its publication.

    A path is a study's folder, or the archive in a published one. Of a publication only studies of the same device
    count. Raises DataSetError, which begins with `where`, for a further study of another device or without tables, and
    for one of the publication that is damaged, which `note` makes a line of in place of that.
    """
    own, *others = (_published_folder(path) for path in paths)
    for folder in others:
        _check_further(folder, where)
        if _product(folder) != (product := _product(own if own.is_dir() else verified_folder(own, where))):
            raise DataSetError(f"{where}: {folder} was measured on {_product(folder)}, not on {product}; leave it out")
    if (own / archive.CHECKSUMS).is_file():
        there = sorted({file.parent for file in own.resolve().parent.glob(f"*/{archive.MANIFEST}")} - {own.resolve()})
        neighbours = [Path(os.path.relpath(folder)) for folder in there]
        product = _product(own) if neighbours else ""
        for folder in neighbours:
            try:
                _check_files(folder, where)
                others += [folder] if _product(folder) == product else []
            except DataSetError as problem:
                if note is None:
                    raise
                note(f"note: without {folder}, of the same publication: {str(problem).removeprefix(f'{where}: ')}")
    return list({folder.resolve(): folder for folder in others if folder.resolve() != own.resolve()}.values())


def _check_further(folder: Path, where: str) -> None:
    """Raise DataSetError for a further study that is none, or is not as it was published."""
    if not folder.exists():
        raise DataSetError(f"{where}: {folder} does not exist")
    if folder.is_file():
        raise DataSetError(f"{where}: {folder} is a file, and a further study is read from its folder: give that")
    if not (folder / "tables").is_dir():
        inside = list_published(folder)
        remedy = f"give one of its studies: {', '.join(inside)}" if inside else "give its whole folder"
        raise DataSetError(f"{where}: {folder} has no tables/, where its results are; {remedy}")
    _check_files(folder, where)


def _check_files(folder: Path, where: str) -> None:
    try:
        archive.check_folder(folder)
    except archive.ArchiveError as error:
        raise DataSetError(f"{where}: {error}") from None


def _published_folder(path: Path) -> Path:
    return path.parent if (path.parent / archive.CHECKSUMS).is_file() and path.name == archive.PACKED_NAME else path


def fact_files(studies: Iterable[Path]) -> list[Path]:
    """What is read of other studies for the advice."""
    return [folder / name for folder in studies for name in FACT_FILES if (folder / name).is_file()]


def _product(folder: Path) -> str:
    try:
        return read_device(folder / "nodes" / "device.json")["node"]["product"]
    except (OSError, DamagedFile):
        where = os.path.relpath(folder)
        raise DataSetError(
            f"{where}: nodes/device.json is missing or damaged, and what it measured counts here; get that study "
            "again, or move it elsewhere"
        ) from None


def set_up_strategies(study: Study) -> list[str]:
    """Sorted strategies that the study sets up; calibrations run on the exclusive device."""
    return sorted({"exclusive", *(cell.strategy for cell in study.cells)})


def needed_files(study: Study) -> list[str]:
    """The files that a data set of the study must have."""
    return [
        "nodes/device.json",
        *(cell.raw for cell in study.cells),
        *(f"calibration/{workload}.json" for workload in study.calibrated_workloads()),
        *(f"cells/{strategy}/{workload}/histograms.csv" for strategy, workload in study.strategy_workload_pairs()),
    ]


def study_files(study: Study) -> list[str]:
    """The measured files of the study: a folder may have those of other studies too, and lack optional ones."""
    return [
        *needed_files(study),
        *(f"{cell.folder}/telemetry.csv" for cell in study.cells),
        *(f"nodes/{strategy}.json" for strategy in set_up_strategies(study)),
        *PROBE_FILES,
        EARLIER_CODES,
    ]


def check_complete(study: Study, where: str = "config: from") -> Path:
    """The folder of the study's data set. Raises DataSetError where it lacks a file that its manifest promises."""
    source = study.config["from"][0]
    folder = verified_folder(Path(source), where)
    paths = needed_files(study)
    missing = [path for path in paths if not (folder / path).exists()]
    if missing:
        raise DataSetError(
            f"{where}: {source} lacks {len(missing)} of its {len(paths)} files,"
            f" such as {missing[0]}; give a complete data set"
        )
    return folder


def tables_digest(study: Study) -> str:
    """A digest of what the study's tables show: its cells, their specs and their measuring code."""
    codes = {workload: study.code(workload) for workload in study.workloads()}
    specs = [study.spec(cell).text for cell in study.table_cells()]
    return hashlib.sha256(canonical_json([codes, specs]).encode()).hexdigest()[:16]


def refuse_ignored(given: Iterable[str]) -> None:
    """Raise DataSetError for a key on the command line that has no effect on a data set's results."""
    ignored = [key for key in given if key not in ("from", "workloads", *QUESTION_KEYS)]
    if ignored:
        raise DataSetError(
            f"config: {', '.join(ignored)}: no effect with from, whose study was measured before; leave it out, "
            f"or set what the advice is asked (workloads, {', '.join(QUESTION_KEYS)})"
        )


def resolve_question(config: StudyConfig, given: Collection[str], typed: Collection[str], study: Study) -> Question:
    """The question for the advice: given keys from `config`, the others from the config that made the data set.

    Workloads that were typed on the command line limit it. Raises DataSetError for one that the data set lacks, also in
    a typed SLO.
    """
    by_key = {key: config if key in given else study.config for key in QUESTION_KEYS}
    question = cast(Question, {key: cast(dict[str, object], source)[key] for key, source in by_key.items()})
    measured, limited = study.workloads(), question["slo"].get("workloads", {}) if "slo" in typed else {}
    # A pair has one name, by either order.
    same = {"+".join(sorted(name.split("+"))): name for name in measured}
    asked = config["workloads"] if "workloads" in typed else []
    wanted = [same.get("+".join(sorted(name.split("+"))), name) for name in asked]
    # A study of faults alone has none itself.
    if "workloads" in typed and not wanted and study.config["workloads"]:
        raise DataSetError(f"config: workloads: none is named; there are {', '.join(measured)}")
    for key, names, known in (("slo.workloads", limited, study.tenant_workloads()), ("workloads", wanted, measured)):
        if missing := [name for name in names if name not in known]:
            there = ", ".join(study.config["from"]) or "the study"
            raise DataSetError(f"config: {key}: {', '.join(missing)}: not in {there}; it has {', '.join(known)}")
    return {**question, "workloads": wanted} if "workloads" in typed else question


def apply_question(study: Study, question: Question) -> Study:
    """The study with the question's SLO and price, from which its tables compute goodput and costs."""
    return Study(study.config | {"slo": question["slo"], "price_per_hour": question["price_per_hour"]})


def question_digest(question: Question, study: Study) -> str:
    """A digest of the question for the advice and of the tables that it is about."""
    return hashlib.sha256(canonical_json([question, tables_digest(study)]).encode()).hexdigest()[:16]


def short_windows(config: StudyConfig, names: Iterable[str]) -> dict[str, float]:
    """Workloads whose window is shorter than the minimum of this project's catalogue → that minimum in seconds.

    `config` is normalised. Its own minimum may be lower, so the shipped catalogue is read.
    """
    import yaml  # imported late, since parsing the Snakefile does not need it

    shipped = yaml.safe_load(WORKLOADS_FILE.read_text(encoding="utf-8"))["workload_catalogue"]
    found = {}
    for name in (name for name in names if name in shipped):
        entry, own = config["workload_catalogue"][name], shipped[name]
        is_same = entry.module == own.get("module") and entry.params == own.get("params", {})
        minimum = float(own.get("min_window_seconds", 0))
        if is_same and entry.kind != "job" and config["window_seconds"] < minimum:
            found[name] = minimum
    return found


def short_windows_note(study: Study, workloads: Collection[str] = ()) -> str:
    """A sentence for tables, figures and reports, about these `workloads` or all; empty where no window is short."""
    names = [name for name in study.calibrated_workloads() if not workloads or name in workloads]
    short = ", ".join(f"{name} ({seconds:g} s)" for name, seconds in short_windows(study.config, names).items())
    window = f"{study.config['window_seconds']:g} s"
    return f"Windows of {window} are shorter than the catalogue's minimum for {short}." if short else ""


def excluded_cells_note(study: Study, workloads: Collection[str] = ()) -> str:
    """A sentence on the cells that the config excludes, of these `workloads` or all; empty where there are none."""
    all_cells = Study(study.config | {"exclude": []}).cells
    all_cells = [cell for cell in all_cells if not workloads or cell.workload in workloads]
    excluded = [each for each in study.config["exclude"] if any(is_excluded(cell, each) for cell in all_cells)]
    missing = len(all_cells) - len(without_excluded(all_cells, excluded))
    patterns = ", ".join([*excluded[:MAX_NAMED_PATTERNS], *(["…"] if len(excluded) > MAX_NAMED_PATTERNS else [])])
    if not missing:
        return ""
    baseline, kept = study.config["baseline"], without_excluded(all_cells, excluded)
    is_lost = baseline in {cell.strategy for cell in all_cells} - {cell.strategy for cell in kept}
    lost = f" Without {baseline}, the baseline, nothing is compared with it." if is_lost else ""
    return f"Left out by the config: {missing} of {len(all_cells)} cells ({patterns}).{lost}"
