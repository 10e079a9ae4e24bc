"""BodyFactory of the requests of `kind: http`: one text, a template with lengths by chance, or the lines of a file.

A template holds `{prompt}` (words: one token each for a WordLevel tokenizer that knows WORDS, for others about one),
`{prompt_ids}` (a JSON list of random ids, each a token) and `{output_tokens}` (a number). Seed and tenant decide what
request N is, so that every strategy gets the same requests. No prompt begins as another one does, but for the shared
prefix.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenant.parameters import ParameterError, Params

DEFAULTS: Params = {"body": None, "body_file": None, "body_lines": None, "tokens": None}
PLACEHOLDER = re.compile(r"\{(prompt|prompt_ids|output_tokens)\}")
# Tokens by chance, of which every prompt is a part. A prime: prompts begin anywhere before two begin at one place.
POOL = 262_147
# From the beginning of one prompt to that of the next. Were it the prompt's length, some would begin where others did.
STEP = 161_803
# As many lengths are drawn.
DRAWN = 1 << 16
# One token each, with the space before it, in the vocabularies of today's models.
TEXT = (
    "able about above after again air all also and animal answer any area ask back because before began best better "
    "between big black blue boat body book both bring build but call came can car carry change city clear close cold "
    "color come common could country course cut day did different door down draw dry during each early earth ease east "
    "eat end enough even ever every example eye face fact fall family farm fast father feel feet few field final fire "
    "first fish five fly follow food form found four free full game gave girl give gold good great green ground group "
    "grow had half hand hard head hear heat help her high hold home horse hot hour house how hundred idea inch keep "
    "kind king knew know land language large last late lead learn leave left less letter life light line list little"
)
WORDS = TEXT.split()


BodyFactory = Callable[[int], bytes]
"""The body of request N, from 0; empty where requests have none."""


def _lengths(length: Mapping[str, Any], generator: np.random.Generator) -> np.ndarray:
    """Numbers of tokens: `mean`, with a `spread` those of a normal law, else evenly from `min` to `max`.

    A draw below `min` (1 by default) counts as that, one above `max` likewise.
    """
    mean, least, most = length.get("mean"), length.get("min") or 1, length.get("max")
    if mean is None:
        return generator.integers(least, most or 1, DRAWN, endpoint=True)
    drawn = np.rint(generator.normal(mean, length.get("spread") or 0, DRAWN))
    return np.clip(drawn, least, most or POOL).astype(np.int64)


def _pool(prefix: Sequence[str], tokens: Sequence[str], separator: str) -> Callable[[int, int], bytes]:
    """What gives, from a place among the tokens on, a number of them after the prefix: a slice of one text."""
    shared = "".join(token + separator for token in prefix).encode()
    texts = [*tokens, *tokens]
    text = separator.join(texts).encode()
    widths = np.fromiter(map(len, texts), np.int64, len(texts)) + len(separator)
    begins = np.concatenate([[0], np.cumsum(widths)])
    return lambda first, count: shared + text[begins[first] : begins[first + count] - len(separator)]


class Template:
    def __init__(self, template: str, tokens: Mapping[str, Any], generator: np.random.Generator) -> None:
        # Each in the same order, whatever is filled in.
        self._prompts, self._outputs = (_lengths(tokens.get(name) or {}, generator) for name in ("prompt", "output"))
        ids = generator.integers(0, tokens["vocabulary"], POOL + tokens["shared_prefix"]).tolist()
        parts = PLACEHOLDER.split(template)
        self._texts, self._names = [text.encode() for text in parts[::2]], parts[1::2]
        self._pools: dict[str, Callable[[int, int], bytes]] = {}
        if "prompt" in self._names:
            words = [WORDS[each % len(WORDS)] for each in ids]
            self._pools["prompt"] = _pool(words[POOL:], words[:POOL], " ")
        if "prompt_ids" in self._names:
            numbers = list(map(str, ids))
            run = _pool(numbers[POOL:], numbers[:POOL], ", ")
            self._pools["prompt_ids"] = lambda first, count: b"[%b]" % run(first, count)

    def body(self, number: int) -> bytes:
        index, first = number % DRAWN, number * STEP % POOL
        count = int(self._prompts[index])
        found = [self._texts[0]]
        for name, text in zip(self._names, self._texts[1:], strict=True):
            if name == "output_tokens":
                found.append(b"%d" % self._outputs[index])
            else:
                found.append(self._pools[name](first, count))
            found.append(text)
        return b"".join(found)


def body_factory(params: Mapping[str, Any], seed: int, tenant: int, phase: int = 0) -> BodyFactory:
    """From what a workload's `request` says of its body: `body`, `body_file`, `body_lines`, `tokens`.

    `seed` and `tenant` are those of the arrivals (tenant/load.py), the phase as there: requests of the warm-up are
    not those of the window, which a server's cache would know. Raises ParameterError.
    """
    generator = np.random.default_rng([seed, tenant, phase])
    if (lines := params["body_lines"]) is not None:
        given = [line for line in Path(lines).read_bytes().splitlines() if line.strip()]
        if not given:
            raise ParameterError(f"request body_lines: {lines} has no line")
        first = int(generator.integers(len(given)))
        return lambda number: given[(first + number) % len(given)]
    file = params["body_file"]
    content = Path(file).read_bytes() if file is not None else (params["body"] or "").encode()
    if params["tokens"] is None:
        return lambda number: content
    template = content.decode()
    if not PLACEHOLDER.search(template):
        raise ParameterError("request tokens: the body has none of {prompt}, {prompt_ids}, {output_tokens}")
    return Template(template, params["tokens"], generator).body
