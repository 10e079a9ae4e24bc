"""What can be wrong with a workload of `kind: command` or `kind: http`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sharebench.core.programs import HERE, NOTHING, OF_KIND, PLACEHOLDERS, _secret_problems, is_program


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


def missing_files(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Files of the study that a normalised catalogue entry names and that are not there."""
    for word in entry["command"] or ():
        path = word.removeprefix(HERE)
        if word.startswith(HERE) and "{" not in path and not Path(path).exists():
            yield f"{key}.command: {word!r} is not there; {{here}} is the folder that snakemake runs in"
    body = entry["request"]["body_file"]
    if body is not None and not Path(body).is_file():
        yield f"{key}.request.body_file: {body!r} is not a file; its path begins where snakemake runs"
