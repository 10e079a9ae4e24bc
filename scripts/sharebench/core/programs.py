"""User programs as workloads (`kind: command` and `kind: http`): their config, and what of it a cell depends on.

It runs at every parse of the Snakefile and imports nothing heavy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tenant.contract import VARIABLE

KINDS = ("command", "http")
# The client of `kind: http`, in tenant/workloads/.
CLIENT = "http_client"
# What a word of `command` may hold, and what stands there when it is started.
PLACEHOLDERS = {
    "port": "the tenant's own port",
    "index": "the tenant's number",
    "here": "the folder that snakemake runs in",
    "python": "the interpreter of the tenants",
}
HERE = "{here}/"
UNIT_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
# The keys of a catalogue entry that say how each kind is run.
OF_KIND: Mapping[str, tuple[str, ...]] = {
    "command": ("command", "port", "ready", "metrics"),
    "http": ("command", "url", "port", "ready", "request", "stream"),
}
# What carries a secret: names of headers, and of parameters in a query.
SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key")
SCHEMES = ("Bearer", "Basic", "Token")
SECRET_PARAMETERS = ("key", "api_key", "api-key", "apikey", "token", "access_token", "auth", "secret", "password")
NOTHING: tuple[Any, ...] = (None, False, {}, [])


def is_program(entry: Mapping[str, Any]) -> bool:
    """Whether a catalogue entry, or the spec of what a tenant runs, is a user program."""
    return entry.get("kind") in KINDS


def module(entry: Mapping[str, Any]) -> str | None:
    """The file in tenant/workloads/ that a catalogue entry runs; a command has none."""
    name: str | None = CLIENT if entry["kind"] == "http" else entry["module"]
    return name


def spec_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell depends on besides the load: the keys of the kind, and the content of the files they name.

    Only files below the folder that snakemake runs in count: those of the study, not those of the system.
    """
    kept = {key: entry[key] for key in OF_KIND[entry["kind"]]}
    named = [word.removeprefix(HERE) for word in entry["command"] or () if word.startswith(HERE)]
    if entry["kind"] == "http" and entry["request"]["body_file"]:
        named.append(entry["request"]["body_file"])
    digests = {name: _digest(Path(name)) for name in named if Path(name).is_file()}
    return kept | {"files": digests}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def texts_of_request(entry: Mapping[str, Any]) -> list[str]:
    """What of a catalogue entry of kind http, or of its spec, may name variables of the environment."""
    request = entry["request"]
    return [request["path"], entry["ready"]["path"] or "", *request["headers"].values()]


def _secret_problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Secrets as literals: they would be in every record, table and archive."""
    request, kept = entry["request"], "it would be in every record and archive"
    for name, value in request["headers"].items():
        if name.lower() in SECRET_HEADERS and value and not VARIABLE.search(value):
            scheme = next((f"{each} " for each in SCHEMES if value.lower().startswith(each.lower())), "")
            yield f"{key}.request.headers.{name}: {kept}; export it as NAME, and write '{scheme}{{env:NAME}}' here"
    for option, path in (("request.path", request["path"]), ("ready.path", entry["ready"]["path"] or "")):
        for name, value in parse_qsl(urlsplit(path).query):
            if name.lower() in SECRET_PARAMETERS and not VARIABLE.search(value):
                yield f"{key}.{option}: the value of {name!r}: {kept}; export it as NAME, and write {name}={{env:NAME}}"
    for text in texts_of_request(entry):
        if "{env:" in VARIABLE.sub("", text):
            yield f"{key}.request: '{{env:' begins no variable's name; write {{env:NAME}}, of letters, digits and _"
