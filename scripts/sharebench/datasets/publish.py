"""Lays out a finished study for publication: one archive, and next to it what people read."""

import contextlib
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from sharebench.core.files import SCRIPTS, Refusal, read_json, replace_atomically
from sharebench.datasets import archive, ro_crate
from sharebench.model.records.references import device_name, read_device
from sharebench.model.records.types import NodeFacts

EXTRA_FILES = ("manifest.json", "tables/timeslice.csv")
"""Files besides the measured ones: the manifest, and histograms that would not fit into nodes/timeslice.json."""
READY_TABLES = ("tables/cells.csv", "tables/summary.csv")
"""Tables for readers who do not rebuild them. They lie next to the archive, never in it."""
READY_WHERE_MADE = ("tables/isolation.csv", "tables/jobs.csv")
"""Likewise, of studies that have faults or jobs."""
READABLE = ("manifest.json", "config.yaml", "nodes/device.json")
"""Files of the archive that also lie next to it, for reading."""
TIMESTAMP = ".snakemake_timestamp"
"""Snakemake puts this file into a folder that is a rule's output."""
MAX_NAMED_FILES = 5
"""A refusal names at most this many files."""
DRAFTS = SCRIPTS / "sharebench" / "datasets" / "drafts"


class PublishError(Refusal):
    """The study cannot be published there; one line."""


def publish(data: Path, results: Path, target: Path) -> None:
    """Lay out the data set in the folder `data` as `target`, a study of the publication `target.parent`.

    The tables come from `results`. A publication without README.md and CITATION.cff gets drafts of them. Raises
    OSError, and PublishError where the publication is about another kind of device or the target has unlisted files.
    """
    _refuse_to_delete(target)
    device = read_device(data / "nodes" / "device.json")["node"]
    _refuse_another_device(device, target)
    manifest = read_json(data / "manifest.json", "config", "created_epoch_seconds")
    files = dict(ro_crate.measured_files(data, data))
    files |= {name: path.read_bytes() for name in EXTRA_FILES if (path := data / name).is_file()}
    files["config.yaml"] = ro_crate.published_config(manifest)
    building, aside = (target.with_name(f".{target.name}.{end}") for end in ("part", "old"))
    if aside.exists() and not target.exists():
        # The last one was killed between its two renames.
        aside.rename(target)
    _remove(building)
    building.mkdir(parents=True)
    try:
        archive.write(building / archive.PACKED_NAME, files, manifest["created_epoch_seconds"])
        beside = {name: files[name] for name in READABLE}
        ready = [*READY_TABLES, *(name for name in READY_WHERE_MADE if (results / name).is_file())]
        beside |= {name: (results / name).read_bytes() for name in ready}
        for name, content in beside.items():
            replace_atomically(building / name, content)
        beside[archive.PACKED_NAME] = (building / archive.PACKED_NAME).read_bytes()
        (building / archive.CHECKSUMS).write_text(archive.checksum_lines(beside))
        _replace(target, building, aside)
    finally:
        _remove(building)
    day = f"{datetime.fromtimestamp(manifest['created_epoch_seconds'], UTC):%Y-%m-%d}"
    for name in ("README.md", "CITATION.cff"):
        draft = (DRAFTS / name).read_text(encoding="utf-8")
        for key, text in {"PUBLICATION": target.parent.name, "PRODUCT": device_name(device), "DAY": day}.items():
            # CITATION.cff has them in double quotes, where YAML has the escapes of JSON.
            text = json.dumps(text, ensure_ascii=False)[1:-1] if name == "CITATION.cff" else " ".join(text.split())
            draft = draft.replace(f"@{key}@", text)
        if not (target.parent / name).exists():
            replace_atomically(target.parent / name, draft)


def _replace(target: Path, building: Path, aside: Path) -> None:
    """Put one folder in place of another. Raises OSError; then the old one is where it was, and complete."""
    _remove(aside)
    if target.exists():
        target.rename(aside)
    try:
        building.rename(target)
    except BaseException:
        if aside.exists():
            aside.rename(target)
        raise
    _remove(aside)


def _remove(folder: Path) -> None:
    """Remove a folder, also one whose subfolders are read-only, as published data may be."""
    for each in (folder, *folder.rglob("*")):
        if each.is_dir() and not each.is_symlink():
            with contextlib.suppress(OSError):
                each.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def _refuse_to_delete(target: Path) -> None:
    """Raise PublishError where replacing the target would delete files that its checksums do not list."""
    listed = {archive.CHECKSUMS, TIMESTAMP}
    with contextlib.suppress(archive.ArchiveError):
        listed.update(archive.read_checksums(target) or ())
    present = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or path.is_file()}
    if unlisted := sorted(present - listed):
        named = ", ".join(unlisted[:MAX_NAMED_FILES])
        more = f" and {len(unlisted) - MAX_NAMED_FILES} more" if len(unlisted) > MAX_NAMED_FILES else ""
        raise PublishError(
            f"{target} has files that are not in its {archive.CHECKSUMS}: {named}{more}; "
            "move them, or publish under another name"
        )


def _refuse_another_device(device: NodeFacts, target: Path) -> None:
    for other in sorted(target.parent.glob("*/nodes/device.json")):
        ours, theirs = _describe_device(device), _describe_device(read_device(other)["node"])
        if other.parents[1] != target and theirs != ours:
            raise PublishError(
                f"{target} would be of {ours}, and {other.parents[1]} is of {theirs}; publish it under another name"
            )


def _describe_device(device: NodeFacts) -> str:
    # A GPU in a host and the same GPU in pods are one kind of device; the CPU of a stand-in or a mock has a label.
    kind = "" if device["is_gpu"] else f"node {device['kind']}"
    return ", ".join(filter(None, (device["product"], device["label"], kind)))
