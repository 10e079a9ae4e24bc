"""Checks across the keys of a workload: each problem with the key that has it, and the rest of the error line."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from sharebench.model.traffic import BODY_FILES, BODY_PLACEHOLDER, Length, Load, Request
from sharebench.model.words import quoted, unknown_value
from sharebench.model.workload import PLACEHOLDER, PROGRAM_OPTIONS, Model, Workload
from tenant.contract.requests import ENV_PLACEHOLDER

PLACEHOLDERS = ("port", "index", "replicas", "fraction", "here", "python")
# Near its capacity the queue of a server whose requests take seconds grows, and no window of minutes shows it.
MAX_STREAMED_RATE = 0.85
# More than our client can send, or hold open.
MOST = {"rate_hz": 50_000, "concurrency": 10_000, "concurrency_total": 100_000}


def problems(workload: Workload) -> Iterator[tuple[str, str]]:
    """Problems of the entry on any kind of node."""
    own = PROGRAM_OPTIONS.get(workload.kind, ())
    for kind, options in PROGRAM_OPTIONS.items():
        for option in _set_options(workload, *options):
            if option not in own:
                yield option, f"has no effect on kind: {workload.kind}; remove it, or set kind: {kind}"
    if workload.tenants is not None:
        for option in _set_options(workload, "module", "params", "job", "simulated", "load"):
            yield option, "has no effect on a mix; remove it, its tenants have their own"
        return
    if workload.is_program:
        yield from _program_problems(workload)
    yield from _load_problems(workload)
    if workload.kind == "job" and workload.job is None:
        yield "job", "null is not enough for a job; set its work, such as {iterations: 1000}"
    if workload.kind != "job" and workload.job is not None and not workload.runs_until_exit:
        job = quoted(workload.job.model_dump())
        yield "job", f"{job} has no effect on a {workload.kind}; remove it or set kind: job"
    if workload.kind == "job" and workload.load.arrival != "closed":
        problem = f"{workload.load.arrival!r} is not possible, a job's iterations follow each other; remove it"
        yield "load.arrival", problem


def _set_options(workload: Workload, *options: str) -> list[str]:
    """Those of the options that do not have their default."""
    return [option for option in options if getattr(workload, option) != workload.default_of(option)]


def _program_problems(workload: Workload) -> Iterator[tuple[str, str]]:
    for option in _set_options(workload, "module", "params"):
        yield option, f"{quoted(getattr(workload, option))} has no effect on kind: {workload.kind}; remove it"
    yield from _start_problems(workload)
    if workload.kind == "http":
        yield from _server_problems(workload)
    elif workload.until is None:
        given = [name for name in (workload.metrics.histogram, workload.metrics.summary) if name is not None]
        if len(given) != 1:
            how = "both are" if given else "none is"
            yield "metrics", f"needs the name of a histogram or of a summary, {how} given; give exactly one"
        if (arrival := workload.load.arrival) != "closed":
            yield "load", f"{arrival} has no effect on kind: command, which has its own; remove it"
    else:
        for option in _set_options(workload, "port", "ready", "metrics", "start", "load"):
            yield option, "has no effect with until: exit, a program as it is; remove it"


def _start_problems(workload: Workload) -> Iterator[tuple[str, str]]:
    command, has_container = workload.command, workload.image is not None or workload.manifest is not None
    if workload.image is not None and workload.manifest is not None:
        yield "", "has an image and a manifest; keep one"
    if workload.kind == "http" and workload.url is not None:
        if command is not None or has_container:
            what = "command" if command is not None else "container"
            yield "", f"has a {what} and a url; keep the one that answers the requests"
        return
    if command is None:
        if not has_container:
            also = " or a url" if workload.kind == "http" else ""
            yield "", f"kind: {workload.kind} needs a command{also}; give the program and its arguments as a list"
        return
    if len(command) == 1 and " " in command[0]:
        yield "command", f"{command[0]!r} is one word with spaces, and there is no shell; write a list of words"
    used = PLACEHOLDER.findall(" ".join(command))
    for name in used:
        if name not in PLACEHOLDERS:
            known = [f"{{{placeholder}}}" for placeholder in PLACEHOLDERS]
            yield "command", unknown_value(f"{{{name}}}", known, "is not a placeholder")
    if workload.port is not None and "port" in used:
        yield "port", f"{workload.port} is fixed, but the command has '{{port}}'; remove one of the two"


def _server_problems(workload: Workload) -> Iterator[tuple[str, str]]:
    for option in ("count", "log"):
        if getattr(workload.ready, option) is not None:
            yield f"ready.{option}", "has no effect on kind: http; give ready.path, or nothing: then one request"
    if workload.url is not None and not _is_root(workload.url):
        shown = "a URL with a name or password" if "@" in workload.url else repr(workload.url)
        yield "url", f"{shown} is not the root of an HTTP server; write http://host:port, the rest in request.path"
    for key, problem in _length_problems(workload.request, has_trace=workload.load.trace is not None):
        yield f"request.{key}", problem
    for text in workload.request_texts():
        if "{env:" in ENV_PLACEHOLDER.sub("", text):
            problem = "'{env:' begins no variable's name; write {env:NAME}, of letters, digits and _"
            yield "request", problem


def _highest(swept: float | Sequence[float] | None) -> float:
    """The largest value of a key that may be a list; 0 without one."""
    return max(swept) if isinstance(swept, Sequence) else swept or 0


def _load_problems(workload: Workload) -> Iterator[tuple[str, str]]:
    highest = _highest(workload.load.rate_of_capacity)
    if workload.stream and highest > MAX_STREAMED_RATE:
        yield (
            "load.rate_of_capacity",
            f"{highest} is too near the capacity of a server that streams, whose queue would grow unseen; "
            f"use {MAX_STREAMED_RATE} or less",
        )
    if workload.kind == "http":
        return
    for option in ("concurrency", "concurrency_total", "trace"):
        if (own := getattr(workload.load, option)) is not None:
            problem = f"{quoted(own)} has no effect on kind: {workload.kind}; remove it, or set kind: http"
            yield f"load.{option}", problem


def _is_root(url: str) -> bool:
    """Whether a URL has only a host and a port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    rest = (parts.username, parts.query or None, parts.fragment or None, parts.path.strip("/") or None)
    return parts.scheme == "http" and bool(parts.hostname) and port != 0 and rest == (None,) * 4 and " " not in url


def model_problems(model: Model) -> Iterator[tuple[str, str]]:
    if not model.serial_seconds and not model.parallel_sm_seconds:
        yield "", "0 seconds of work; set serial_seconds, parallel_sm_seconds or both"


def load_problems(load: Load) -> Iterator[tuple[str, str]]:
    rates = {key: rate for key in ("rate_hz", "rate_of_capacity") if (rate := getattr(load, key)) is not None}
    if load.arrival in ("closed", "trace"):
        remedy = "remove it or set an arrival" if load.arrival == "closed" else "remove it, the file has the times"
        for key, rate in rates.items():
            yield key, f"{quoted(rate)} has no effect on a {load.arrival} load; {remedy}"
    elif len(rates) != 1:
        how_many = "both are" if rates else "none is"
        yield "", f"{load.arrival} needs rate_hz or rate_of_capacity, {how_many} given; give exactly one"
    for key, most in MOST.items():
        if (highest := _highest(getattr(load, key))) > most:
            yield key, f"{highest:g} is above {most}, the most that our client can send; give less"
    if load.arrival == "closed" and load.rate_for == "all":
        yield "rate_for", "'all' has no effect on a closed load; use concurrency_total for that"
    if load.concurrency is not None and load.concurrency_total is not None:
        yield "", "concurrency and concurrency_total are both given; keep one"
    if load.arrival == "trace" and load.trace is None:
        yield "trace", "null is not enough for arrival: trace; name a file, such as trace.csv"
    if load.arrival != "trace" and load.trace is not None:
        yield "trace", f"{load.trace!r} has no effect on a {load.arrival} load; set arrival: trace"


def length_problems(length: Length) -> Iterator[tuple[str, str]]:
    if length.mean is None and (length.spread is not None or length.min is None or length.max is None):
        yield "", "is not a length; give a number, {min, max}, or {mean, spread}"
    elif length.min is not None and length.max is not None and length.min > length.max:
        yield "", f"min {length.min} is above max {length.max}; exchange them"


def request_problems(request: Request) -> Iterator[tuple[str, str]]:
    given = [key for key in ("body", *BODY_FILES) if getattr(request, key) is not None]
    if len(given) > 1:
        yield "", f"{' and '.join(given)} are both given; keep one"


def _length_problems(request: Request, has_trace: bool) -> Iterator[tuple[str, str]]:
    """Placeholders of a body without lengths, and lengths without a placeholder."""
    placeholders, tokens = set(BODY_PLACEHOLDER.findall(request.body or "")), request.tokens
    lengths = {"prompt": tokens and tokens.prompt, "output": tokens and tokens.output}
    if has_trace:
        for name, length in lengths.items():
            if length is not None:
                yield f"tokens.{name}", "has no effect next to load.trace, which has the lengths; remove it"
        return
    if tokens is None:
        if placeholders:
            yield "tokens", f"null fills in no '{{{min(placeholders)}}}'; set lengths, such as {{prompt: 256}}"
        return
    if request.body_file is None and not placeholders:
        known = "{prompt}, {prompt_ids} or {output_tokens}"
        yield "tokens", f"has no effect without a placeholder in the body; write {known} there, or remove it"
    if '"{prompt_ids}"' in (request.body or ""):
        yield "body", "'{prompt_ids}' between quotes is a text, not a list of ids; remove the quotes"
    for name, users in (("prompt", {"prompt", "prompt_ids"}), ("output", {"output_tokens"})):
        used = placeholders & users
        if lengths[name] is None and used:
            yield f"tokens.{name}", f"null fills in no '{{{min(used)}}}'; give a number, or {{min, max}}"
        elif lengths[name] is not None and placeholders and not used:
            where = " or ".join(f"'{{{user}}}'" for user in sorted(users))
            problem = f"has no effect without {where} in the body; write it there, or remove this"
            yield f"tokens.{name}", problem
