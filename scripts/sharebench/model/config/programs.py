"""Checks of a study's user programs: whether its kind of node can run them, and the files that they name."""

import re
from collections.abc import Iterator
from pathlib import Path

from sharebench.model.config import request_lines
from sharebench.model.config.files import is_file, is_there
from sharebench.model.traffic import TRACE_COLUMNS
from sharebench.model.user_manifest import ManifestError, split_pod
from sharebench.model.words import quoted
from sharebench.model.workload import HERE_PREFIX, Workload
from tenant.contract.trace import read_trace

STREAM_ASKED = re.compile(r'"stream"\s*:\s*true')
INTERPRETER = re.compile(r"(.*/)?(\{python\}|(python|node|bash|sh|perl|ruby)[\d.]*)")
"""A first word whose second one is a script."""
STREAMED_PATHS = ("/api/generate", "/api/chat", "/generate_stream")
"""Paths, of Ollama and TGI, that stream without being asked."""


def placement_problems(asked: str, name: str, entry: Workload, in_pods: bool) -> Iterator[str]:
    """Programs that lack a command to run on a host, or an image to run in pods."""
    start = f"{asked}: {name!r} is impossible"
    if not in_pods and entry.command is None and entry.url is None:
        yield f"{start} on a host, which runs no images; give it a command, or set node: kubernetes"
    if in_pods and entry.image is None and entry.manifest is None:
        yield f"{start} on the node 'kubernetes' without a container; give it an image, or a manifest"
    if in_pods and (used := [word for word in ("{here}", "{python}") if word in " ".join(entry.command or ())]):
        yield f"{start} on the node 'kubernetes': no container knows {used[0]}; write a path of the image"


def file_problems(key: str, entry: Workload, tenants: int) -> Iterator[str]:
    """Files of the study that do not exist or cannot be used, and totals that leave nothing for one of `tenants`."""
    if entry.manifest is not None and not is_file(entry.manifest):
        yield f"{key}.manifest: {_no_file(entry.manifest)}"
    elif entry.manifest is not None:
        try:
            split_pod(entry.manifest)
        except (ManifestError, OSError) as error:
            yield f"{key}.manifest: {error}"
    for word in entry.command or ():
        path = word.removeprefix(HERE_PREFIX)
        if word.startswith(HERE_PREFIX) and "{" not in path and not is_there(path):
            yield f"{key}.command: {quoted(word)} is not there; {{here}} is the folder that snakemake runs in"
    # A container has files of its own, and other words may be what the program writes.
    first, second = (*(entry.command or ()), "", "")[:2] if entry.image is None and entry.manifest is None else ("", "")
    scripts = [first] * ("/" in first) + [second] * bool(INTERPRETER.fullmatch(first))
    for word in filter(is_file, scripts):
        if not Path(word).is_absolute():
            yield f"{key}.command: it runs in a folder of its own, which has no {word!r}; write '{HERE_PREFIX}{word}'"
    for option, path in entry.request.files().items():
        if not is_file(path):
            yield f"{key}.request.{option}: {_no_file(path)}"
        elif option == "body_lines":
            yield from request_lines.problems(f"{key}.request.{option}", entry)
    total = entry.load.concurrency_total
    if total is not None and total < tenants:
        yield f"{key}.load.concurrency_total: {total} is below {tenants} tenants (replicas); give each one at least"
    yield from _trace_problems(key, entry, tenants)


def _no_file(path: str) -> str:
    return f"{quoted(path)} is not a file; its path begins where snakemake runs"


def _trace_problems(key: str, entry: Workload, tenants: int) -> Iterator[str]:
    """Problems of a trace's file, which needs the columns that the body has placeholders for."""
    if (path := entry.load.trace) is None:
        return
    if not is_file(path):
        yield f"{key}.load.trace: {_no_file(path)}"
        return
    body = entry.request.body or ""
    needed = {column: None for name, column in TRACE_COLUMNS.items() if f"{{{name}}}" in body}
    try:
        rows = read_trace(path, needed)
    except OSError as error:
        yield f"{key}.load.trace: {path!r} cannot be read: {error.strerror}"
    except ValueError as error:
        yield f"{key}.load.trace: {path}: {error}"
    else:
        if entry.load.rate_for == "all" and len(rows) < tenants:
            yield f"{key}.load.trace: {path}: {len(rows)} requests are too few for {tenants} tenants (replicas)"


def remarks(key: str, entry: Workload) -> Iterator[str]:
    """What may be meant otherwise: a server that is to stream without being asked for it."""
    request = entry.request
    if not entry.stream or request.path.endswith(STREAMED_PATHS):
        return
    files = {option: Path(path) for option, path in request.files().items() if is_file(path)}
    texts = {option: path.read_text(encoding="utf-8", errors="replace") for option, path in files.items()}
    for option, text in ({"body": request.body} if request.body is not None else texts).items():
        bodies = text.splitlines() if option == "body_lines" else [text]
        if any(body.lstrip().startswith("{") and not STREAM_ASKED.search(body) for body in bodies):
            yield (
                f'{key}.request.{option}: has no "stream": true, and an answer that is not streamed is an error; '
                'add it to the body, or remove "stream: true" of the workload'
            )
