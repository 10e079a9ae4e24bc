"""Request bodies of `kind: http`: one text, a template with random lengths, or the lines of a file.

A template holds `{prompt}` (random words: about one token each, exactly one for a WordLevel tokenizer that knows
WORDS), `{prompt_ids}` (a JSON list of random token ids) and `{output_tokens}` (a number). Request N depends only on
seed, tenant and phase, so all strategies get the same requests. After a shared prefix, no two prompts begin alike.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenant.contract.request_lines import line_body, numbered_lines
from tenant.contract.requests import VOCABULARY
from tenant.load import Trace
from tenant.parameters import ParameterError, Params

BODY_DEFAULTS: Params = {"body": None, "body_file": None, "body_lines": None, "tokens": None}
# The other keys of `tokens`, where a trace gives the lengths.
TOKEN_DEFAULTS = {"shared_prefix": 0, "vocabulary": VOCABULARY}
PLACEHOLDER = re.compile(r"\{(prompt|prompt_ids|output_tokens)\}")
# Number of random tokens that all prompts are slices of. A prime, so that all positions are used before one repeats.
POOL_TOKENS = 262_147
# Distance of the starts of successive prompts. With the prompt's length instead, some starts would coincide.
PROMPT_STRIDE = 161_803
# Number of lengths that are drawn.
LENGTH_COUNT = 1 << 16
# Each word, with the space before it, is one token in the vocabularies of current models.
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
"""Returns the body of request N, counted from 0; empty if requests have none."""


def _lengths(length: Mapping[str, Any], generator: np.random.Generator) -> np.ndarray:
    """Random numbers of tokens (LENGTH_COUNT,): normal with `mean` and `spread`, else uniform from `min` to `max`.

    Normal numbers are clipped to `min` (1 by default) and `max`.
    """
    mean, least, most = length.get("mean"), length.get("min") or 1, length.get("max")
    if mean is None:
        return generator.integers(least, most or 1, LENGTH_COUNT, endpoint=True)
    drawn = np.rint(generator.normal(mean, length.get("spread") or 0, LENGTH_COUNT))
    return np.clip(drawn, least, most or POOL_TOKENS).astype(np.int64)


def _prompt_slicer(prefix: Sequence[str], tokens: Sequence[str], separator: str) -> Callable[[int, int], bytes]:
    """Return a function of a position and a count that joins the prefix and that number of tokens from there on."""
    shared = "".join(token + separator for token in prefix).encode()
    texts = [*tokens, *tokens]
    text = separator.join(texts).encode()
    widths = np.fromiter(map(len, texts), np.int64, len(texts)) + len(separator)
    begins = np.concatenate([[0], np.cumsum(widths)])
    return lambda first, count: shared + text[begins[first] : begins[first + count] - len(separator)]


class Template:
    def __init__(
        self, template: str, tokens: Mapping[str, Any], generator: np.random.Generator, trace: Trace | None = None
    ) -> None:
        # Always drawn in this order, so that the numbers do not depend on the template's placeholders.
        self._prompt_lengths, self._output_lengths = (
            _lengths(tokens.get(name) or {}, generator) for name in ("prompt", "output")
        )
        if trace is not None:
            self._prompt_lengths, self._output_lengths = np.array(trace.rows, dtype=np.int64).T[1:]
        ids = generator.integers(0, tokens["vocabulary"], POOL_TOKENS + tokens["shared_prefix"]).tolist()
        parts = PLACEHOLDER.split(template)
        self._texts, self._names = [text.encode() for text in parts[::2]], parts[1::2]
        self._slicers: dict[str, Callable[[int, int], bytes]] = {}
        if "prompt" in self._names:
            words = [WORDS[token % len(WORDS)] for token in ids]
            self._slicers["prompt"] = _prompt_slicer(words[POOL_TOKENS:], words[:POOL_TOKENS], " ")
        if "prompt_ids" in self._names:
            numbers = list(map(str, ids))
            ids_slicer = _prompt_slicer(numbers[POOL_TOKENS:], numbers[:POOL_TOKENS], ", ")
            self._slicers["prompt_ids"] = lambda first, count: b"[%b]" % ids_slicer(first, count)

    def body(self, number: int) -> bytes:
        index, first = number % len(self._prompt_lengths), number * PROMPT_STRIDE % POOL_TOKENS
        count = int(self._prompt_lengths[index])
        parts = [self._texts[0]]
        for name, text in zip(self._names, self._texts[1:], strict=True):
            if name == "output_tokens":
                parts.append(b"%d" % self._output_lengths[index])
            else:
                parts.append(self._slicers[name](first, count))
            parts.append(text)
        return b"".join(parts)


def body_factory(
    params: Mapping[str, Any], seed: int, tenant: int, phase: int = 0, trace: Trace | None = None
) -> BodyFactory:
    """Return the bodies that a workload's `request` describes by `body`, `body_file`, `body_lines` and `tokens`.

    A `trace` gives the numbers of tokens of its requests, in order, in place of those in `tokens`.

    `seed`, `tenant` and `phase` are those of the arrivals (tenant/load.py). The warm-up has other requests than the
    window, whose requests would be in the server's cache otherwise. Raises ParameterError.
    """
    generator = np.random.default_rng([seed, tenant, phase])
    if (lines := params["body_lines"]) is not None:
        with Path(lines).open("rb") as file_of_lines:
            bodies = [line_body(line) for _, line in numbered_lines(file_of_lines)]
        if not bodies:
            raise ParameterError(f"request body_lines: {lines} has no line")
        first = int(generator.integers(len(bodies)))
        return lambda number: bodies[(first + number) % len(bodies)]
    file = params["body_file"]
    content = Path(file).read_bytes() if file is not None else (params["body"] or "").encode()
    tokens, has_placeholders = params["tokens"], PLACEHOLDER.search(content.decode(errors="replace"))
    if tokens is None and (trace is None or not has_placeholders):
        return lambda number: content
    if not has_placeholders:
        raise ParameterError("request tokens: the body has none of {prompt}, {prompt_ids}, {output_tokens}")
    return Template(content.decode(), tokens or TOKEN_DEFAULTS, generator, trace).body
