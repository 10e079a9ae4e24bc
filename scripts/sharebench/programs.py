"""Programs of anyone's as workloads (`kind: command` and `kind: http`): their config, and what of it a cell depends on.

It runs at every parse of the Snakefile and imports nothing heavy.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tenant.from_environment import VARIABLE

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
    """Whether a catalogue entry, or the spec of what a tenant runs, is a program of anyone's."""
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


def problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a normalised catalogue entry, whatever its kind; each a line for a person."""
    kind = entry["kind"]
    yield from _of_other_kinds(key, entry)
    if not is_program(entry) or entry["tenants"] is not None:
        return
    for option in ("module", "params"):
        if entry[option]:
            yield f"{key}.{option}: {json.dumps(entry[option])} has no effect on kind: {kind}; remove it"
    yield from _command_problems(key, entry)
    if kind == "command":
        yield from _metrics_problems(key, entry)
    else:
        yield from _server_problems(key, entry)


def _of_other_kinds(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Keys that only another kind has."""
    own = OF_KIND.get(entry["kind"], ())
    for other, options in OF_KIND.items():
        for option in options:
            if option not in own and _is_given(option, entry[option]):
                yield f"{key}.{option}: has no effect on kind: {entry['kind']}; remove it, or set kind: {other}"


def _is_given(option: str, value: Any) -> bool:
    if option == "request":
        return bool(value["path"] != "/" or value["method"] != "GET" or value["headers"] or value["body"] is not None)
    if option == "metrics":
        return value["histogram"] is not None or value["summary"] is not None
    if isinstance(value, dict):
        return any(item not in NOTHING for item in value.values())
    return value not in NOTHING


def _command_problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    command = entry["command"]
    if entry["kind"] == "http" and entry["url"] is not None:
        if command is not None:
            yield f"{key}: has a command and a url; keep the one that answers the requests"
        return
    if command is None:
        also = " or a url" if entry["kind"] == "http" else ""
        yield f"{key}: kind: {entry['kind']} needs a command{also}; give the program and its arguments as a list"
        return
    if len(command) == 1 and " " in command[0]:
        yield f"{key}.command: {command[0]!r} is one word with spaces, and there is no shell; write a list of words"
    for word in command:
        for name in re.findall(r"\{([a-z_]+)\}", word):
            if name not in PLACEHOLDERS:
                close = difflib.get_close_matches(name, PLACEHOLDERS, n=1, cutoff=0.5)
                meant = f"did you mean '{{{close[0]}}}'?" if close else "use a known one."
                known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                yield f"{key}.command: '{{{name}}}' is no placeholder; {meant} Known: {known}"
    if entry["port"] is not None and any("{port}" in word for word in command):
        yield f"{key}.port: {entry['port']} is fixed, but the command has '{{port}}'; remove one of the two"


def _metrics_problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    metrics, ready = entry["metrics"], entry["ready"]
    given = [option for option in ("histogram", "summary") if metrics[option] is not None]
    if len(given) != 1:
        how = "both are" if given else "none is"
        yield f"{key}.metrics: needs the name of a histogram or of a summary, {how} given; give exactly one"
    rules = [option for option, value in ready.items() if value is not None]
    if len(rules) > 1:
        yield f"{key}.ready: {' and '.join(rules)} are two rules; keep one"
    if entry["load"]["arrival"] != "closed":
        yield f"{key}.load: {entry['load']['arrival']} has no effect on kind: command, which has its own; remove it"


def _server_problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    request, url = entry["request"], entry["url"]
    for option in ("count", "log"):
        if entry["ready"][option] is not None:
            yield f"{key}.ready.{option}: has no effect on kind: http; give ready.path, or nothing: then one request"
    if url is not None and not re.fullmatch(r"http://[^/\s:]+(:\d{1,5})?/?", url):
        yield f"{key}.url: {url!r} is no root of an HTTP server; write http://host:port, and the rest in request.path"
    if url is not None and entry["port"] is not None:
        yield f"{key}.port: {entry['port']} has no effect beside a url; remove it"
    if request["body"] is not None and request["body_file"] is not None:
        yield f"{key}.request: body and body_file are both given; keep one"
    yield from _secret_problems(key, entry)


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


def missing_files(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Files of the study that a normalised catalogue entry names and that are not there."""
    for word in entry["command"] or ():
        path = word.removeprefix(HERE)
        if word.startswith(HERE) and "{" not in path and not Path(path).exists():
            yield f"{key}.command: {word!r} is not there; {{here}} is the folder that snakemake runs in"
    body = entry["request"]["body_file"]
    if body is not None and not Path(body).is_file():
        yield f"{key}.request.body_file: {body!r} is not a file; its path begins where snakemake runs"
