"""A finished study laid out to be published: its records with checksums, packed where they are many."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from sharebench.core.files import SCRIPTS, Refusal, read_json, replace_atomically
from sharebench.datasets import archive, ro_crate
from sharebench.records.references import device_name, read_device
from sharebench.records.types import NodeFacts

PLAIN_BYTES = 5 * 2**20
"""Records that take more than this are packed."""
ALSO = ("manifest.json", "tables/timeslice.csv")
"""Besides what is measured: what the study was, and the histograms that nodes/timeslice.json has no room for."""
READY = ("tables/cells.csv", "tables/summary.csv")
"""Tables for readers who do not rebuild them: next to a package, never in it."""
READABLE = ("manifest.json", "config.yaml", "nodes/", "calibration/")
"""What of a packed data set lies next to the package, to be read."""
TIMESTAMP = ".snakemake_timestamp"
"""Snakemake's own mark in a folder that a rule made."""
NAMED = 5
"""How many files a refusal names."""
DRAFTS = SCRIPTS / "sharebench" / "datasets" / "drafts"


class Unpublishable(Refusal):
    """The study cannot be published there; one line."""


def publish(data: Path, results: Path, target: Path) -> None:
    """Lay the data set in the folder `data` out as `target`, a study of the publication `target.parent`.

    Its tables are those of `results`. A publication without README.md and CITATION.cff gets drafts of them. Raises
    Unpublishable where the publication holds studies of another kind of device, or the target something that was not
    published; OSError.
    """
    _refuse_to_delete(target)
    device = read_device(data / "nodes" / "device.json")["node"]
    _refuse_another_device(device, target)
    manifest = read_json(data / "manifest.json", "config", "created_epoch_seconds")
    files = {name: path.read_bytes() for name, path in ro_crate.found(data, (*ro_crate.MEASURED, *ALSO))}
    files["config.yaml"] = ro_crate.config_of(manifest)
    building = target.with_name(f".{target.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        if sum(len(content) for name, content in files.items() if name.endswith("raw.json")) > PLAIN_BYTES:
            archive.write(building / archive.PACKED, files, manifest["created_epoch_seconds"])
            files = {name: content for name, content in files.items() if name.startswith(READABLE)}
        files |= {name: (results / name).read_bytes() for name in READY}
        for name, content in files.items():
            (building / name).parent.mkdir(parents=True, exist_ok=True)
            (building / name).write_bytes(content)
        if (building / archive.PACKED).is_file():
            files[archive.PACKED] = (building / archive.PACKED).read_bytes()
        (building / archive.CHECKSUMS).write_text(archive.listed(files))
        shutil.rmtree(target, ignore_errors=True)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    day = f"{datetime.fromtimestamp(manifest['created_epoch_seconds'], UTC):%Y-%m-%d}"
    for name in ("README.md", "CITATION.cff"):
        draft = (DRAFTS / name).read_text(encoding="utf-8")
        for key, text in {"PUBLICATION": target.parent.name, "PRODUCT": device_name(device), "DAY": day}.items():
            # In CITATION.cff these are within double quotes, in which YAML has the escapes of JSON.
            text = json.dumps(text, ensure_ascii=False)[1:-1] if name == "CITATION.cff" else " ".join(text.split())
            draft = draft.replace(f"@{key}@", text)
        if not (target.parent / name).exists():
            replace_atomically(target.parent / name, draft)


def _refuse_to_delete(target: Path) -> None:
    """Raise Unpublishable where replacing the target would delete what its checksums do not list."""
    if not target.is_dir():
        return
    try:
        lines = (target / archive.CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    listed = {archive.CHECKSUMS, TIMESTAMP, *(line.partition("  ")[2] for line in lines)}
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or path.is_file()}
    if unlisted := sorted(there - listed):
        more = f" and {len(unlisted) - NAMED} more" if len(unlisted) > NAMED else ""
        raise Unpublishable(
            f"{target} has files that are not in its {archive.CHECKSUMS}: {', '.join(unlisted[:NAMED])}{more}; "
            "move them, or publish under another name"
        )


def _refuse_another_device(device: NodeFacts, target: Path) -> None:
    for other in sorted(target.parent.glob("*/nodes/device.json")):
        known = read_device(other)["node"]
        if other.parents[1] != target and _words(known) != _words(device):
            raise Unpublishable(
                f"{target} would be of {_words(device)}, and {other.parents[1]} is of {_words(known)}; "
                "publish it under another name"
            )


def _words(device: NodeFacts) -> str:
    # A GPU of a host and the same in pods are one kind of device; the CPU of a stand-in or a mock has a label.
    kind = "" if device["is_gpu"] else f"node {device['kind']}"
    return ", ".join(filter(None, (device["product"], device["label"], kind)))
