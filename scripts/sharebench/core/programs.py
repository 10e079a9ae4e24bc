"""User programs as workloads (`kind: command` and `kind: http`): what of their config a cell depends on."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sharebench.core.config_catalogues import WorkloadEntry
from sharebench.core.spec import WorkloadSpec, runs_until_exit

PROGRAM_KINDS = ("command", "http")
# The client of `kind: http`, in tenant/workloads/.
CLIENT = "http_client"
HERE_PREFIX = "{here}/"
UNIT_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
# The keys of a catalogue entry about how each kind is run.
KIND_KEYS: Mapping[str, tuple[str, ...]] = {
    "command": ("command", "image", "manifest", "port", "ready", "metrics", "start"),
    "http": ("command", "image", "manifest", "url", "port", "ready", "request", "stream", "start"),
}
# The keys of a request that name a file.
BODY_FILES = ("body_file", "body_lines")
# Left out of specs where they are so: cells from before these keys stay as they are.
OMITTED = {"start": "together", "body_lines": None, "tokens": None, "image": None, "manifest": None}
# The same of a command that runs to its end.
UNTIL_EXIT_KEYS = ("command", "image", "manifest", "port", "until", "job")


def is_program(entry: WorkloadEntry | WorkloadSpec) -> bool:
    """Whether a catalogue entry, or the spec of what a tenant runs, is a user program."""
    return entry.get("kind") in PROGRAM_KINDS


def module_name(entry: WorkloadEntry) -> str | None:
    """The file in tenant/workloads/ that a catalogue entry runs; a command has none."""
    return CLIENT if entry["kind"] == "http" else entry["module"]


def program_spec(entry: WorkloadEntry) -> dict[str, Any]:
    """What a cell depends on besides the load: the keys of the kind, and the content of the files they name.

    Only files below the folder that snakemake runs in count: those of the study, not those of the system.
    """
    keys = UNTIL_EXIT_KEYS if runs_until_exit(entry) else KIND_KEYS[entry["kind"]]
    kept = _without_defaults({key: value for key, value in entry.items() if key in keys})
    named = [word.removeprefix(HERE_PREFIX) for word in entry["command"] or () if word.startswith(HERE_PREFIX)]
    named += [entry["manifest"]] if entry["manifest"] is not None else []
    if entry["kind"] == "http":
        kept["request"] = _without_defaults(kept["request"])
        named += [name for key in BODY_FILES if (name := kept["request"].get(key))]
    there = [name for name in named if Path(name).is_file()]
    digests = {name: _digest(Path(name).resolve(), Path(name).stat().st_mtime_ns) for name in there}
    return kept | {"files": digests}


def _without_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in OMITTED or value != OMITTED[key]}


@cache
def _digest(path: Path, _changed_ns: int) -> str:
    """Of a file as it was changed then; bodies may be many, and every cell of a study asks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def request_texts(entry: WorkloadEntry | WorkloadSpec) -> list[str]:
    """What of a catalogue entry of kind http, or of its spec, may name variables of the environment."""
    request = entry["request"]
    return [request["path"], entry["ready"]["path"] or "", *request["headers"].values()]
