"""User programs as workloads (`kind: command` and `kind: http`), and the part of their config in a cell's spec."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sharebench.model.spec import WorkloadSpec, runs_until_exit
from sharebench.model.workload import WorkloadEntry

PROGRAM_KINDS = ("command", "http")
# The client of `kind: http`, in tenant/workloads/.
CLIENT = "http_client"
HERE_PREFIX = "{here}/"
# In a word of a command; `${name}` belongs to a shell.
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")
UNIT_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
# Keys of a catalogue entry about how each kind is run.
KIND_KEYS: Mapping[str, tuple[str, ...]] = {
    "command": ("command", "image", "manifest", "port", "ready", "metrics", "start"),
    "http": (
        *("command", "image", "manifest", "url", "port", "ready", "request", "stream", "failed_percent", "start"),
        "answers",
    ),
}
# Keys of a request that name a file.
BODY_FILES = ("body_file", "body_lines")
# Columns of a trace that fill in a body's placeholders.
TRACE_COLUMNS = {"prompt": "prompt_tokens", "prompt_ids": "prompt_tokens", "output_tokens": "output_tokens"}
# Values that specs leave out, so that cells from before these keys stay valid.
OMITTED = {
    "failed_percent": 5,
    "answers": "auto",
    "start": "together",
    "body_lines": None,
    "tokens": None,
    "image": None,
    "manifest": None,
}
# Keys of a command with `until: exit`.
UNTIL_EXIT_KEYS = ("command", "image", "manifest", "port", "until", "job")


def is_program(entry: WorkloadEntry | WorkloadSpec) -> bool:
    """Whether a catalogue entry, or the spec of what a tenant runs, is a user program."""
    return entry.get("kind") in PROGRAM_KINDS


def module_name(entry: WorkloadEntry) -> str | None:
    """The file in tenant/workloads/ that a catalogue entry runs; a command has none."""
    return CLIENT if entry["kind"] == "http" else entry["module"]


def program_spec(entry: WorkloadEntry, reads_files: bool) -> dict[str, Any]:
    """The keys of the entry's kind, and digests of the files that they name; a cell depends on both.

    Only files of the study count, which are below the folder that snakemake runs in.
    """
    keys = UNTIL_EXIT_KEYS if runs_until_exit(entry) else KIND_KEYS[entry["kind"]]
    spec = _without_defaults({key: value for key, value in entry.items() if key in keys})
    files = [word.removeprefix(HERE_PREFIX) for word in entry["command"] or () if word.startswith(HERE_PREFIX)]
    files += [entry["manifest"]] if entry["manifest"] is not None else []
    if entry["kind"] == "http":
        spec["request"] = _without_defaults(spec["request"])
        files += client_files(entry).values()
    existing = [name for name in files if reads_files and Path(name).is_file()]
    digests = {name: _digest(Path(name).resolve(), Path(name).stat().st_mtime_ns) for name in existing}
    return spec | {"files": digests}


def client_files(workload: WorkloadEntry | WorkloadSpec) -> dict[str, str]:
    """Files of the study that the client reads, by its parameter: bodies of requests, and a trace."""
    request: Mapping[str, Any] = workload.get("request") or {}
    named = {key: request.get(key) for key in BODY_FILES} | {"trace": workload["load"].get("trace")}
    return {key: str(path) for key, path in named.items() if path}


def _without_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in OMITTED or value != OMITTED[key]}


@cache
def _digest(path: Path, _changed_ns: int) -> str:
    """Digest of the file with that modification time, cached because every cell of a study asks for it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def request_texts(entry: WorkloadEntry | WorkloadSpec) -> list[str]:
    """The texts of an http workload, by its catalogue entry or its spec, that may name environment variables."""
    request = entry["request"]
    return [request["path"], entry["ready"]["path"] or "", *request["headers"].values()]
