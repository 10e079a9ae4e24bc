"""Checks of workloads of `kind: command` and `kind: http`, which yield each problem as one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from sharebench.model.config import request_lines
from sharebench.model.config.schema import CONFIG
from sharebench.model.programs import BODY_FILES, HERE_PREFIX, KIND_KEYS, PLACEHOLDER, is_program, request_texts
from sharebench.model.user_manifest import ManifestError, split_pod
from sharebench.model.words import quoted, unknown_value
from sharebench.model.workload import Length, Request, WorkloadEntry
from tenant.contract.requests import ENV_PLACEHOLDER

DEFAULT_ENTRY = CONFIG.validate_python({"workload_catalogue": {"empty": {}}})["workload_catalogue"]["empty"]
"""A workload entry with all defaults."""
PLACEHOLDERS = ("port", "index", "replicas", "fraction", "here", "python")
"""Placeholders in a word of `command`."""
STREAM_ASKED = re.compile(r'"stream"\s*:\s*true')
STREAMED_PATHS = ("/api/generate", "/api/chat", "/generate_stream")
"""Paths, of Ollama and TGI, that stream without being asked."""
BODY_PLACEHOLDER = re.compile(r"\{(prompt|prompt_ids|output_tokens)\}")
"""Placeholders that tenant/request_bodies.py fills in."""


def problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    """Problems of a catalogue entry of any kind."""
    allowed = KIND_KEYS.get(entry["kind"], ())
    for other, options in {**KIND_KEYS, "command": (*KIND_KEYS["command"], "until")}.items():
        for option in options:
            if option not in allowed and other != entry["kind"] and _is_set(entry, option):
                yield f"{key}.{option}: has no effect on kind: {entry['kind']}; remove it, or set kind: {other}"
    if not is_program(entry) or entry["tenants"] is not None:
        return
    for option in ("module", "params"):
        if value := entry.get(option):
            yield f"{key}.{option}: {quoted(value)} has no effect on kind: {entry['kind']}; remove it"
    yield from _command_problems(key, entry)
    if entry["kind"] == "http":
        yield from _server_problems(key, entry)
    elif entry["until"] is None:
        yield from _metrics_problems(key, entry)
    else:
        for option in ("port", "ready", "metrics", "start", "load"):
            if entry.get(option) != DEFAULT_ENTRY.get(option):
                yield f"{key}.{option}: has no effect with until: exit, a program as it is; remove it"


def _is_set(entry: WorkloadEntry, option: str) -> bool:
    """Whether the entry sets this option, apart from keys that have no effect alone."""
    value, default = entry.get(option), DEFAULT_ENTRY.get(option)
    if isinstance(value, dict) and isinstance(default, dict):
        ignored = {"request": ("expect_status", "body_file"), "metrics": ("path", "labels", "unit")}.get(option, ())
        return any(key not in ignored for key in value if value[key] != default[key])
    return value != default


def placement_problems(asked: str, name: str, entry: WorkloadEntry, in_pods: bool) -> Iterator[str]:
    """Programs that lack a command to run on a host, or an image to run in pods."""
    start = f"{asked}: {name!r} is impossible"
    if not in_pods and entry["command"] is None and entry["url"] is None:
        yield f"{start} on a host, which runs no images; give it a command, or set node: kubernetes"
    if in_pods and entry["image"] is None and entry["manifest"] is None:
        yield f"{start} on the node 'kubernetes' without a container; give it an image, or a manifest"
    if in_pods and (used := [word for word in ("{here}", "{python}") if word in " ".join(entry["command"] or ())]):
        yield f"{start} on the node 'kubernetes': no container knows {used[0]}; write a path of the image"


def _command_problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    command = entry["command"]
    if entry["image"] is not None and entry["manifest"] is not None:
        yield f"{key}: has an image and a manifest; keep one"
    if entry["kind"] == "http" and entry["url"] is not None:
        if command is not None:
            yield f"{key}: has a command and a url; keep the one that answers the requests"
        if entry["image"] is not None or entry["manifest"] is not None:
            yield f"{key}: has a container and a url; keep the one that answers the requests"
        return
    if command is None and (entry["image"] is not None or entry["manifest"] is not None):
        return
    if command is None:
        also = " or a url" if entry["kind"] == "http" else ""
        yield f"{key}: kind: {entry['kind']} needs a command{also}; give the program and its arguments as a list"
        return
    if len(command) == 1 and " " in command[0]:
        yield f"{key}.command: {command[0]!r} is one word with spaces, and there is no shell; write a list of words"
    used = PLACEHOLDER.findall(" ".join(command))
    for name in used:
        if name not in PLACEHOLDERS:
            known = [f"{{{placeholder}}}" for placeholder in PLACEHOLDERS]
            yield f"{key}.command: {unknown_value(f'{{{name}}}', known, 'is not a placeholder')}"
    if entry["port"] is not None and "port" in used:
        yield f"{key}.port: {entry['port']} is fixed, but the command has '{{port}}'; remove one of the two"


def _metrics_problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    given = [name for name in (entry["metrics"]["histogram"], entry["metrics"]["summary"]) if name is not None]
    if len(given) != 1:
        how = "both are" if given else "none is"
        yield f"{key}.metrics: needs the name of a histogram or of a summary, {how} given; give exactly one"
    if entry["load"]["arrival"] != "closed":
        yield f"{key}.load: {entry['load']['arrival']} has no effect on kind: command, which has its own; remove it"


def _server_problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    request, url = entry["request"], entry["url"]
    for option in ("count", "log"):
        if entry["ready"].get(option) is not None:
            yield f"{key}.ready.{option}: has no effect on kind: http; give ready.path, or nothing: then one request"
    if url is not None and not _is_root(url):
        shown = "a URL with a name or password" if "@" in url else repr(url)
        yield f"{key}.url: {shown} is not the root of an HTTP server; write http://host:port, the rest in request.path"
    given = [name for name in ("body", *BODY_FILES) if request.get(name) is not None]
    if len(given) > 1:
        yield f"{key}.request: {' and '.join(given)} are both given; keep one"
    yield from _template_problems(f"{key}.request", request, entry["load"]["trace"] is not None)
    for text in request_texts(entry):
        if "{env:" in ENV_PLACEHOLDER.sub("", text):
            yield f"{key}.request: '{{env:' begins no variable's name; write {{env:NAME}}, of letters, digits and _"


def _is_root(url: str) -> bool:
    """Whether a URL has only a host and a port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    rest = (parts.username, parts.query or None, parts.fragment or None, parts.path.strip("/") or None)
    return parts.scheme == "http" and bool(parts.hostname) and port != 0 and rest == (None,) * 4 and " " not in url


def _template_problems(key: str, request: Request, has_trace: bool) -> Iterator[str]:
    """Placeholders of a body without lengths, and lengths without a placeholder."""
    placeholders, tokens = set(BODY_PLACEHOLDER.findall(request["body"] or "")), request["tokens"]
    if has_trace:
        for name in ("prompt", "output"):
            if tokens is not None and tokens.get(name) is not None:
                yield f"{key}.tokens.{name}: has no effect next to load.trace, which has the lengths; remove it"
        return
    if tokens is None:
        if placeholders:
            yield f"{key}.tokens: null fills in no '{{{min(placeholders)}}}'; set lengths, such as {{prompt: 256}}"
        return
    if request["body_file"] is None and not placeholders:
        known = "{prompt}, {prompt_ids} or {output_tokens}"
        yield f"{key}.tokens: has no effect without a placeholder in the body; write {known} there, or remove it"
    if '"{prompt_ids}"' in (request["body"] or ""):
        yield f"{key}.body: '{{prompt_ids}}' between quotes is a text, not a list of ids; remove the quotes"
    for name, users in (("prompt", {"prompt", "prompt_ids"}), ("output", {"output_tokens"})):
        length = cast(Length | None, tokens.get(name))
        if length is None:
            if used := placeholders & users:
                yield f"{key}.tokens.{name}: null fills in no '{{{min(used)}}}'; give a number, or {{min, max}}"
        else:
            if placeholders and not placeholders & users:
                where = " or ".join(f"'{{{user}}}'" for user in sorted(users))
                yield f"{key}.tokens.{name}: has no effect without {where} in the body; write it there, or remove this"
            yield from _length_problems(f"{key}.tokens.{name}", length)


def _length_problems(key: str, length: Length) -> Iterator[str]:
    least, most = length["min"], length["max"]
    if length["mean"] is None and (length["spread"] is not None or least is None or most is None):
        yield f"{key}: is not a length; give a number, {{min, max}}, or {{mean, spread}}"
    elif least is not None and most is not None and least > most:
        yield f"{key}: min {least} is above max {most}; exchange them"


def missing_file_problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    """Files of the study that a catalogue entry names and that do not exist."""
    if entry["manifest"] is not None and not Path(entry["manifest"]).is_file():
        yield f"{key}.manifest: {entry['manifest']!r} is not a file; its path begins where snakemake runs"
    elif entry["manifest"] is not None:
        try:
            split_pod(entry["manifest"])
        except (ManifestError, OSError) as error:
            yield f"{key}.manifest: {error}"
    for word in entry["command"] or ():
        path = word.removeprefix(HERE_PREFIX)
        if word.startswith(HERE_PREFIX) and "{" not in path and not Path(path).exists():
            yield f"{key}.command: {word!r} is not there; {{here}} is the folder that snakemake runs in"
    for option in BODY_FILES:
        body = cast(str | None, entry["request"].get(option))
        if body is not None and not Path(body).is_file():
            yield f"{key}.request.{option}: {body!r} is not a file; its path begins where snakemake runs"
        elif body is not None and option == "body_lines":
            yield from request_lines.problems(f"{key}.request.{option}", entry)


def remarks(key: str, entry: WorkloadEntry) -> Iterator[str]:
    """What may be meant otherwise: a server that is to stream without being asked for it."""
    if entry["kind"] != "http" or not entry["stream"] or entry["request"]["path"].endswith(STREAMED_PATHS):
        return
    request = entry["request"]
    for option in ("body", *BODY_FILES):
        value = cast(str | None, request.get(option))
        if value is None or (option != "body" and not Path(value).is_file()):
            continue
        text = value if option == "body" else Path(value).read_text(encoding="utf-8", errors="replace")
        bodies = text.splitlines() if option == "body_lines" else [text]
        if any(body.lstrip().startswith("{") and not STREAM_ASKED.search(body) for body in bodies):
            yield (
                f'{key}.request.{option}: has no "stream": true, and an answer that is not streamed is an error; '
                'add it to the body, or remove "stream: true" of the workload'
            )
