"""What a tenant is asked, and when: its load, and the requests of a server."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from sharebench.model.values import (
    AlsoAccepts,
    Concept,
    Count,
    Matching,
    Maybe,
    Name,
    Numeric,
    OpenMapping,
    Path,
    Positive,
    Swept,
    Text,
    as_number,
)
from tenant.contract.requests import VOCABULARY
from tenant.contract.trace import MAX_TOKENS

SweptKey = Literal["concurrency", "concurrency_total", "rate_hz", "rate_of_capacity"]
"""A key of a `load` that may be a list."""
BODY_FILES = ("body_file", "body_lines")
"""Keys of a request that name a file."""
BODY_PLACEHOLDER = re.compile(r"\{(prompt|prompt_ids|output_tokens)\}")
"""Placeholders that tenant/request_bodies.py fills in."""
TRACE_COLUMNS = {"prompt": "prompt_tokens", "prompt_ids": "prompt_tokens", "output_tokens": "output_tokens"}
"""Columns of a trace that fill in a body's placeholders."""

Tokens = Numeric[Annotated[int, Field(ge=1, le=MAX_TOKENS)]]
Mean = Numeric[Annotated[float, Field(ge=1, le=MAX_TOKENS)]]
Header = Annotated[str, Matching("[A-Za-z][A-Za-z0-9-]*", "cannot be the name of a header: use letters, digits and -")]


class Load(Concept):
    """When a tenant begins its next iteration. A list of values makes a [sweep](#sweeps)."""

    arrival: Literal["closed", "constant", "poisson", "trace"] = "closed"
    """`closed` begins when the last iteration is done; `constant` and `poisson` are open loads, with a rate, and so is
    `trace`, for kind `http`, with the times of a file. Their latency counts from the intended start."""
    concurrency: Swept[Count] = None
    """For kind `http`: requests in flight per tenant. A closed load always has this number, `null` is 1; an open load
    has at most this number, `null` is any. Others wait, and their latency counts from the intended start."""
    concurrency_total: Swept[Count] = None
    """In place of `concurrency`: requests in flight at all tenants of this workload together. Each has an equal part;
    what is left over goes to the first of them, one request each."""
    rate_hz: Swept[Positive] = None
    """Rate of an open load per tenant, in iterations per second."""
    rate_of_capacity: Swept[Positive] = None
    """Rate of an open load as a fraction of what one tenant reaches alone, under a closed load of the same
    concurrency; at most 0.85 where the answers stream. An open load has exactly one of the two rates. A list in any of
    the four is a [sweep](#sweeps)."""
    rate_for: Literal["tenant", "all"] = "tenant"
    """`all`: the rate, or the trace, is that of all tenants of this workload together, and each has an equal part."""
    trace: Maybe[Name] = None
    """File of `arrival: trace`, below the folder that snakemake runs in: CSV with the columns `seconds`,
    `prompt_tokens` and `output_tokens` ([traces](../docs/your-own-workload.md#traces))."""

    @property
    def in_flight(self) -> int | None:
        """Requests in flight at the only tenant, which has all of a total; None where it is not set."""
        return self.concurrency or self.concurrency_total


class Length(Concept):
    """Number of tokens: a number, `{min, max}` (uniform), or `{mean, spread}` (a normal distribution).

    With `mean` and `spread`, values below `min` (1 by default) or above `max` are set to these.
    """

    mean: Maybe[Mean] = None
    """Mean number; without a `spread` every request has it."""
    spread: Maybe[Positive] = None
    """Standard deviation of a normal distribution, which is rounded to whole tokens."""
    min: Maybe[Tokens] = None
    """Smallest number."""
    max: Maybe[Tokens] = None
    """Largest number."""


def _as_length(value: object) -> object:
    number = as_number(value)
    return {"mean": number} if isinstance(number, int | float) and not isinstance(number, bool) else value


AnyLength = Annotated[Length, BeforeValidator(_as_length), AlsoAccepts({"type": "integer", "minimum": 1})]


class Template(Concept):
    """Random lengths of prompts and answers, which fill the placeholders of the body.

    The seed depends on workload, tenant and repeat only, so that every strategy has the same requests
    ([templates](../docs/your-own-workload.md#random-prompts)).
    """

    prompt: Maybe[AnyLength] = None
    """Tokens of `{prompt}` (words) or `{prompt_ids}` (a JSON list of ids): a number, `{min, max}` (uniform) or
    `{mean, spread}` (a normal distribution, kept within `min`, by default 1, and `max`)."""
    output: Maybe[AnyLength] = None
    """Number in place of `{output_tokens}`, likewise."""
    shared_prefix: Numeric[Annotated[int, Field(ge=0, le=200_000)]] = 0
    """Tokens with which every prompt begins, in addition to `prompt`."""
    vocabulary: Count = VOCABULARY
    """The ids of `{prompt_ids}` are below it."""


class Request(Concept):
    """Request of an iteration, for kind `http`."""

    method: Literal["GET", "POST", "PUT"] = "GET"
    """Method of the request, for kind `http`: `GET`, `POST` or `PUT`."""
    path: Path = "/"
    """Path of the request, with its query; the client fills in `{env:NAME}` from its environment."""
    headers: OpenMapping[Header, Text] = Field(default={})
    """Headers of the request, by name; `{env:NAME}` as in `path`, so that no secret is in a record."""
    body: Maybe[Text] = None
    """Body of the request, as text."""
    body_file: Maybe[Name] = None
    """File that holds the body, below the folder that snakemake runs in."""
    body_lines: Maybe[Name] = None
    """File below that folder with one body per line (JSONL), or an OpenAI batch file; tenants take them in order, each
    from another line on."""
    tokens: Maybe[Template] = None
    expect_status: Numeric[Annotated[int, Field(ge=100, le=599)]] = 200
    """Status of a successful answer; any other is an error."""

    def files(self) -> dict[str, str]:
        """Files of the study with bodies, by their key."""
        return {key: path for key in BODY_FILES if (path := getattr(self, key)) is not None}
