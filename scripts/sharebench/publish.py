"""A finished study laid out to be published: its records with checksums, packed where they are many."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from sharebench import archive, crate
from sharebench.code import SCRIPTS
from sharebench.files import read_json, replace_atomically

PLAIN_BYTES = 5 * 2**20
"""Records that take more than this are packed."""
ALSO = ("manifest.json", "tables/timeslice.csv")
"""Besides what is measured: what the study was, and the histograms that nodes/timeslice.json has no room for."""
READABLE = ("manifest.json", "config.yaml", "nodes/", "calibration/")
"""What of a packed data set lies beside the package, to be read."""
DRAFTS = SCRIPTS / "sharebench" / "drafts"


class Unpublishable(Exception):
    """The study cannot be published there; one line."""


def publish(data: Path, target: Path) -> None:
    """Lay the data set in the folder `data` out as `target`, a study of the publication `target.parent`.

    A publication without README.md and CITATION.cff gets drafts of them. Raises Unpublishable where the publication
    holds studies of another kind of device, OSError.
    """
    device = read_json(data / "nodes" / "device.json")["node"]
    _refuse_another_device(device, target)
    manifest = read_json(data / "manifest.json")
    files = {name: path.read_bytes() for name, path in crate.found(data, (*crate.MEASURED, *ALSO))}
    config = yaml.safe_dump(manifest["config"] | {"from": None}, sort_keys=False, allow_unicode=True)
    files["config.yaml"] = config.encode()
    building = target.with_name(f".{target.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        if sum(len(content) for name, content in files.items() if name.endswith("raw.json")) > PLAIN_BYTES:
            archive.write(building / archive.PACKED, files, manifest["created_epoch_seconds"])
            files = {name: content for name, content in files.items() if name.startswith(READABLE)}
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
    product = device["product"] if device["label"] in device["product"] else f"{device['product']} ({device['label']})"
    for name in ("README.md", "CITATION.cff"):
        draft = (DRAFTS / name).read_text(encoding="utf-8")
        for key, text in {"PUBLICATION": target.parent.name, "PRODUCT": product, "DAY": day}.items():
            draft = draft.replace(f"@{key}@", text)
        if not (target.parent / name).exists():
            replace_atomically(target.parent / name, draft)


def _refuse_another_device(device: dict[str, Any], target: Path) -> None:
    for other in sorted(target.parent.glob("*/nodes/device.json")):
        known = read_json(other)["node"]
        if other.parents[1] != target and any(known[key] != device[key] for key in ("product", "label", "kind")):
            raise Unpublishable(
                f"{target} would be of {_words(device)}, and {other.parents[1]} is of {_words(known)}; "
                "publish it under another name"
            )


def _words(device: dict[str, Any]) -> str:
    return ", ".join(filter(None, (device["product"], device["label"], f"node {device['kind']}")))
