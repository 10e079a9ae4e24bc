"""Secrets that are written into a config, and so into every record and archive: refused, with what to write instead."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sharebench.model.config import sweeps
from sharebench.model.study_config import StudyConfig
from sharebench.model.workload import Workload
from tenant.contract.requests import ENV_PLACEHOLDER

# All other headers may hold a secret.
PLAIN_HEADERS = re.compile(
    "accept(-charset|-encoding|-language)?|anthropic-version|cache-control|connection|content-(encoding|language|type)"
    "|expect|host|keep-alive|openai-beta|origin|pragma|prefer|range|referer|te|traceparent|user-agent|x-request-id",
    re.IGNORECASE,
)
SECRET_NAME = re.compile(
    r"^(key|token|auth|sig|signature|pass|pwd)$|[-_](sig|signature|pwd)$|secret|passw|passphrase|credential|cookie"
    r"|authorization|(api|access|account|auth|bearer|hf|hub|private|refresh|security|session|storage|subscription)"
    r"[-_]?(key|token)$",
    re.IGNORECASE,
)
SCHEMES = ("Bearer", "Basic", "Token")
# `--name value`, `--name=value` and `NAME=value` in a command, without values that are numbers, paths or placeholders.
OPTION = re.compile(
    r"(?:^|\s)(?=(?:--?(?P<option>[A-Za-z][\w.-]*)[= ]|(?P<variable>[A-Za-z_]\w*)=)"
    r"(?![{$/'\"-]|\.{0,2}/|(?:true|false|none|null|[\d.]+)(?:\s|$))\S)"
)
TEXT_FIELD = re.compile(r'"([\w.-]+)"\s*:\s*"[^"{]+"')
FORM_FIELD = re.compile(r"(?:^|&)([\w.-]+)=[^&{]")
KEPT = "it would be in every record and archive"


def problems(config: StudyConfig) -> Iterator[str]:
    for name, entry in config["workload_catalogue"].items():
        key = sweeps.entry_key(name, entry)
        yield from _command(key, entry.command or ())
        yield from _request(key, entry)
    yield from _pod("kubernetes.pod", config["kubernetes"]["pod"])
    url = config["prometheus"]["url"]
    if url is not None and "@" in urlsplit(url).netloc:
        yield (
            f"prometheus.url: has a name or a password, and {KEPT}; write it into ~/.netrc, and the URL without it here"
        )


def _request(key: str, entry: Workload) -> Iterator[str]:
    request = entry.request
    for name, value in request.headers.items():
        if not PLAIN_HEADERS.fullmatch(name) and value and "{env:" not in value:
            scheme = next((f"{each} " for each in SCHEMES if value.lower().startswith(each.lower())), "")
            yield (
                f"{key}.request.headers.{name}: the value may be a secret, and {KEPT}; export it as NAME, "
                f"and write '{scheme}{{env:NAME}}' here"
            )
    for option, path in (("request.path", request.path), ("ready.path", entry.ready.path or "")):
        for name, value in parse_qsl(urlsplit(path).query):
            if SECRET_NAME.search(name) and not ENV_PLACEHOLDER.search(value):
                yield f"{key}.{option}: the value of {name!r}: {KEPT}; export it as NAME, and write {name}={{env:NAME}}"
    body = (request.body or "").strip()
    # A form has no spaces; a prompt has.
    for name in TEXT_FIELD.findall(body) + ([] if re.search(r"\s", body) else FORM_FIELD.findall(body)):
        if SECRET_NAME.search(name):
            yield f"{key}.request.body: the value of {name!r}: {KEPT}; send it in a header, or write a body_file"


def _command(key: str, command: Sequence[str]) -> Iterator[str]:
    for found in OPTION.finditer(" ".join(piece for word in command for piece in _shell_words(word))):
        name = found["option"] or found["variable"]
        if SECRET_NAME.search(name):
            yield (
                f"{key}.command: the value of {name!r}: {KEPT}; export it as a variable, which the program inherits, "
                "or have it read a file"
            )


def _shell_words(word: str) -> list[str]:
    """The words in a word that a shell would split, such as that of `sh -c`."""
    try:
        return shlex.split(word) if " " in word else [word]
    except ValueError:
        return [word]


def _pod(key: str, pod: Any) -> Iterator[str]:
    """Secrets among the variables of an overlay's containers."""
    values: Sequence[Any] = list(pod.values()) if isinstance(pod, Mapping) else pod if isinstance(pod, list) else ()
    if isinstance(pod, Mapping) and pod.get("value") and SECRET_NAME.search(str(pod.get("name", ""))):
        yield f"{key}: the value of {pod['name']!r}: {KEPT}; write valueFrom: {{secretKeyRef: {{name: …, key: …}}}}"
    for value in values:
        yield from _pod(key, value)
