"""Check of a file of requests (`request.body_lines`), for the forms in which benchmarks keep their prompts."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sharebench.model.words import quoted
from sharebench.model.workload import Workload
from tenant.contract.request_lines import batch_entry, numbered_lines

# Parsing takes about 20 µs per line, at each parse of the Snakefile.
MAX_CHECKED_LINES = 10_000
MAX_SHOWN_TEXT = 30
# The keys of which a body needs one, by the end of its path. The first that fits counts.
API_KEYS = {
    "/chat/completions": ("messages",),
    "/completions": ("prompt", "prompt_embeds"),
    "/completion": ("prompt",),
    "/responses": ("input", "prompt"),
    "/messages": ("messages",),
    "/embeddings": ("input", "messages"),
    "/api/chat": ("messages",),
    "/api/generate": ("prompt",),
}
# Where prompts are in the files of vLLM's benchmark, MT-Bench, ShareGPT, OpenAI's chat and instruction data.
PROMPT_KEYS = ("prompt", "turns", "conversations", "messages", "value", "content", "input", "question", "instruction")


def problems(key: str, entry: Workload) -> Iterator[str]:
    """The first line that the server can only refuse, with the line to write instead."""
    request = entry.request
    name, path = str(request.body_lines), request.path.partition("?")[0].rstrip("/")
    required = next((keys for end, keys in API_KEYS.items() if path.endswith(end)), ())
    try:
        with Path(name).open("rb") as file:
            lines = list(islice(numbered_lines(file), MAX_CHECKED_LINES))
    except OSError as error:
        yield f"{key}: {name!r} cannot be read: {error.strerror}"
        return
    if not lines:
        yield f"{key}: {name!r} has no line; write one body per line"
        return
    if not required and not lines[0][1].startswith(b"{"):
        # A server of its own kind, with bodies of any kind.
        return
    for number, line in lines:
        if problem := _line_problem(line, required, path, entry.stream):
            yield f"{key}: line {number} of {name!r} {problem}"
            return


def _line_problem(line: bytes, required: tuple[str, ...], path: str, is_stream: bool) -> str | None:
    try:
        document = json.loads(line.decode())
    except UnicodeDecodeError:
        return "is not UTF-8; save the file as UTF-8"
    except (ValueError, RecursionError):
        shown = quoted(line.decode()[:MAX_SHOWN_TEXT])
        return f"is not JSON, but {shown}; write one body per line, such as {_example(required, None, is_stream)}"
    if (entry := batch_entry(document)) is not None:
        document, url = entry["body"], entry.get("url", path)
        if url != path:
            return f"is a request of {quoted(url)}; set request.path: {url}, or write a file for each path"
    if not required or (isinstance(document, dict) and document.keys() & set(required)):
        return None
    return (
        f"has no {' or '.join(map(repr, required))}, which {path} needs; "
        f"write one body per line, such as {_example(required, document, is_stream)}"
    )


def _example(required: tuple[str, ...], document: object, is_stream: bool) -> str:
    """The body that the API takes, with the prompt of this line where its form is known."""
    key, text = next(iter(required), "prompt"), _prompt(document)[:MAX_SHOWN_TEXT]
    body: dict[str, object] = {key: [{"role": "user", "content": text}] if key == "messages" else text}
    return json.dumps(body | ({"stream": True} if is_stream else {}), ensure_ascii=False)


def _prompt(document: object) -> str:
    """The first text below one of PROMPT_KEYS."""
    if isinstance(document, dict):
        return next((_prompt(document[key]) for key in PROMPT_KEYS if key in document), "…")
    if isinstance(document, list) and document:
        return _prompt(document[0])
    return document if isinstance(document, str) else "…"
