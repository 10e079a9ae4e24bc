"""A workload: what a tenant runs, and its load."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from sharebench.model.values import (
    AlsoAccepts,
    Count,
    Flag,
    Image,
    List,
    Matching,
    Maybe,
    Name,
    NotNegative,
    Numeric,
    OpenMapping,
    Path,
    Positive,
    Scalar,
    Section,
    Swept,
    Text,
    as_boolean,
    as_number,
    empty_if_none,
)
from tenant.contract.requests import VOCABULARY
from tenant.contract.trace import MAX_TOKENS

SweptKey = Literal["concurrency", "concurrency_total", "rate_hz", "rate_of_capacity"]
"""A key of a `load` that may be a list."""


def _as_length(value: object) -> object:
    number = as_number(value)
    return {"mean": number} if isinstance(number, int | float) and not isinstance(number, bool) else value


Tokens = Numeric[Annotated[int, Field(ge=1, le=MAX_TOKENS)]]
Mean = Numeric[Annotated[float, Field(ge=1, le=MAX_TOKENS)]]
Label = Annotated[
    str, Matching("[a-zA-Z_][a-zA-Z0-9_]*", "cannot be the name of a label: use letters, digits and _, no digit first")
]
Header = Annotated[str, Matching("[A-Za-z][A-Za-z0-9-]*", "cannot be the name of a header: use letters, digits and -")]
Argument = Annotated[
    str,
    Matching(
        "[a-z][a-z0-9_]*", "cannot be the name of an argument: use lower-case letters, digits and _, a letter first"
    ),
]
Module = Annotated[str, Matching("[a-z][a-z0-9_]*", "is not the name of a Python module")]


class Job(TypedDict):
    """The fixed work of a workload of kind `job`, which needs it, and the deadline of one that runs `until: exit`."""

    iterations: Numeric[Annotated[int, Field(ge=1, le=10_000_000)]]
    """Number of iterations of a job; a program that runs `until: exit` is one."""
    max_seconds: Annotated[Positive, Field(default=60)]
    """Deadline after the start: a job that is not done by then is `hung`."""


class Ready(TypedDict):
    """Condition by which a program has started; warming up comes after that."""

    path: Maybe[Path]
    """Path that answers 200 once the program has started."""
    count: Maybe[Count]
    """For kind `command`: iterations that its metrics have counted by then."""
    log: Maybe[Name]
    """For kind `command`: text that the program prints once it has started."""


class Metrics(TypedDict):
    """Metrics with the latencies, for kind `command`."""

    path: Annotated[Path, Field(default="/metrics")]
    """Path of the metrics, for kind `command`."""
    histogram: Maybe[Name]
    """Name of the histogram with a latency per iteration, without `_bucket`. It must have classic buckets."""
    summary: Maybe[Name]
    """Name of a summary in its place; it gives mean and rate, but no percentiles of a window."""
    labels: Annotated[OpenMapping[Label, Text], Field(default={})]
    """Labels that pick one series, where there are several."""
    unit: Annotated[Literal["seconds", "milliseconds", "microseconds", "nanoseconds"], Field(default="seconds")]
    """Unit of its values: `seconds`, `milliseconds`, `microseconds` or `nanoseconds`."""


class Length(TypedDict):
    """Number of tokens: a number, `{min, max}` (uniform), or `{mean, spread}` (a normal distribution).

    With `mean` and `spread`, values below `min` (1 by default) or above `max` are set to these.
    """

    mean: Maybe[Mean]
    """Mean number; without a `spread` every request has it."""
    spread: Maybe[Positive]
    """Standard deviation of a normal distribution, which is rounded to whole tokens."""
    min: Maybe[Tokens]
    """Smallest number."""
    max: Maybe[Tokens]
    """Largest number."""


AnyLength = Annotated[Length, BeforeValidator(_as_length), AlsoAccepts({"type": "integer", "minimum": 1})]


class Template(TypedDict):
    """Random lengths of prompts and answers, which fill the placeholders of the body.

    The seed depends on workload, tenant and repeat only, so that every strategy has the same requests
    ([templates](../docs/your-own-workload.md#random-prompts)).
    """

    prompt: Maybe[AnyLength]
    """Tokens of `{prompt}` (words) or `{prompt_ids}` (a JSON list of ids): a number, `{min, max}` (uniform) or
    `{mean, spread}` (a normal distribution, kept within `min`, by default 1, and `max`)."""
    output: Maybe[AnyLength]
    """Number in place of `{output_tokens}`, likewise."""
    shared_prefix: Annotated[Numeric[Annotated[int, Field(ge=0, le=200_000)]], Field(default=0)]
    """Tokens with which every prompt begins, in addition to `prompt`."""
    vocabulary: Annotated[Count, Field(default=VOCABULARY)]
    """The ids of `{prompt_ids}` are below it."""


class Request(TypedDict):
    """Request of an iteration, for kind `http`."""

    method: Annotated[Literal["GET", "POST", "PUT"], Field(default="GET")]
    """Method of the request, for kind `http`: `GET`, `POST` or `PUT`."""
    path: Annotated[Path, Field(default="/")]
    """Path of the request, with its query; the client fills in `{env:NAME}` from its environment."""
    headers: Annotated[OpenMapping[Header, Text], Field(default={})]
    """Headers of the request, by name; `{env:NAME}` as in `path`, so that no secret is in a record."""
    body: Maybe[Text]
    """Body of the request, as text."""
    body_file: Maybe[Name]
    """File that holds the body, below the folder that snakemake runs in."""
    body_lines: Maybe[Name]
    """File below that folder with one body per line (JSONL), or an OpenAI batch file; tenants take them in order, each
    from another line on."""
    tokens: Maybe[Template]
    expect_status: Annotated[Numeric[Annotated[int, Field(ge=100, le=599)]], Field(default=200)]
    """Status of a successful answer; any other is an error."""


class SweepEntry(TypedDict):
    """Place of this entry in a sweep; the pipeline writes it."""

    of: Name
    """Entry that has the list."""
    by: SweptKey
    """Key of its `load` with the list."""
    value: Positive
    """Value of this entry."""


class Load(TypedDict):
    """When a tenant begins its next iteration. A list of values makes a [sweep](#sweeps)."""

    arrival: Annotated[Literal["closed", "constant", "poisson", "trace"], Field(default="closed")]
    """`closed` begins when the last iteration is done; `constant` and `poisson` are open loads, with a rate, and so is
    `trace`, for kind `http`, with the times of a file. Their latency counts from the intended start."""
    concurrency: Swept[Count]
    """For kind `http`: requests in flight per tenant. A closed load always has this number, `null` is 1; an open load
    has at most this number, `null` is any. Others wait, and their latency counts from the intended start."""
    concurrency_total: Swept[Count]
    """In place of `concurrency`: requests in flight at all tenants of this workload together. Each has an equal part;
    what is left over goes to the first of them, one request each."""
    rate_hz: Swept[Positive]
    """Rate of an open load per tenant, in iterations per second."""
    rate_of_capacity: Swept[Positive]
    """Rate of an open load as a fraction of what one tenant reaches alone, under a closed load of the same
    concurrency; at most 0.85 where the answers stream. An open load has exactly one of the two rates. A list in any of
    the four is a [sweep](#sweeps)."""
    rate_for: Annotated[Literal["tenant", "all"], Field(default="tenant")]
    """`all`: the rate, or the trace, is that of all tenants of this workload together, and each has an equal part."""
    trace: Maybe[Name]
    """File of `arrival: trace`, below the folder that snakemake runs in: CSV with the columns `seconds`,
    `prompt_tokens` and `output_tokens` ([traces](../docs/your-own-workload.md#traces))."""


class Model(TypedDict):
    """Cost of an iteration on the simulated node, which needs it: serial + parallel / SMs."""

    serial_seconds: Annotated[NotNegative, Field(default=0)]
    """Part of an iteration that more SMs do not shorten."""
    parallel_sm_seconds: Annotated[NotNegative, Field(default=0)]
    """Part of an iteration that is spread over the SMs."""


class WorkloadEntry(TypedDict):
    """Workload of one tenant, and its load."""

    description: Annotated[Text, Field(default="")]
    """One sentence for a person."""
    tenants: Maybe[Annotated[List[Text], Field(min_length=2)]]
    """Makes the entry a [mix](#mixes-and-pairs): the workload of each tenant by name. It has no `module`, `params`,
    `load` or `simulated` of its own."""
    kind: Annotated[Literal["loop", "job", "command", "http"], Field(default="loop")]
    """`loop` runs one iteration after another for a window; [`job`](#jobs) is a fixed number of them; `command` is any
    program with Prometheus metrics, `http` any HTTP server ([your own workload](../docs/your-own-workload.md))."""
    job: Maybe[Job]
    until: Maybe[Literal["exit"]]
    """For kind `command`: `exit` makes it a [job](../docs/jobs.md#a-program-as-it-is), which begins when the program
    starts and is done when that exits with 0; `null` measures a window."""
    module: Maybe[Module]
    """File in `scripts/tenant/workloads/` without `.py`; needed on every node but the simulated one."""
    command: Maybe[Annotated[List[Text], Field(min_length=1)]]
    """For kind `command` and `http`: the program and its arguments, never a shell; `{port}`, `{index}`, `{here}` (the
    folder that snakemake runs in; a cell depends on files below it), `{python}` (the tenants' interpreter),
    `{replicas}` (how many tenants there are) and `{fraction}` (1/replicas, or the memory that the strategy allows the
    tenant, as a fraction) are filled in."""
    image: Maybe[Image]
    """For kind `command` and `http`, in a cluster: the user's [image](../docs/your-own-workload.md#in-pods), as it is.
    `command` takes the place of its entrypoint, `null` keeps that; `port` is 8080 by default."""
    manifest: Maybe[Name]
    """For kind `command` and `http`, in a cluster, in place of `image`: file with a Pod, or with an object that has a
    pod template, such as a Deployment."""
    url: Maybe[Name]
    """For kind `http`: a server that runs already, as `http://host:port`, in place of a `command`."""
    port: Maybe[Numeric[Annotated[int, Field(ge=1, le=65535)]]]
    """Port that the program always listens on; `null` gives each tenant one of its own, as `{port}` and in the variable
    `SHAREBENCH_PORT`."""
    ready: Section[Ready]
    metrics: Section[Metrics]
    request: Section[Request]
    start: Annotated[Literal["together", "staggered"], Field(default="together")]
    """For kind `command` and `http`: `staggered` starts a tenant when those before it are ready, as servers need that
    look how much memory is free; each then has `timeouts.start_seconds`."""
    stream: Annotated[Flag, Field(default=False)]
    """For kind `http`: also times the tokens of an answer as they arrive."""
    failed_percent: Annotated[NotNegative, Field(default=5, le=100)]
    """For kind `http`: largest share of failed requests with which a cell counts (gate `failed_share`). The latency is
    that of the others, and `error_reasons` has the failures."""
    answers: Annotated[Literal["auto", True, False], BeforeValidator(as_boolean), Field(default="auto")]
    """For kind `http`: whether the server's answers to four fixed prompts are compared with those that it gives alone
    ([answers](../docs/your-own-workload.md#right-answers)). `auto` asks the calibration for log-probabilities, `true`
    refuses a server without."""
    params: Annotated[OpenMapping[Argument, Scalar], Field(default={})]
    """Arguments of the module, by name: numbers, booleans or text."""
    load: Section[Load]
    sweep: Maybe[SweepEntry]
    """Place of the entry in a [sweep](#sweeps); the pipeline writes it."""
    min_window_seconds: Annotated[NotNegative, Field(default=1)]
    """Shortest window that is long enough for this workload. A study that sets less than the catalogue reports it."""
    output_tolerance: Annotated[NotNegative, Field(default=1e-6)]
    """Largest relative difference between a tenant's output and that of the workload alone."""
    simulated: Maybe[Model]


def _as_workload(given: Any) -> Any:
    """The entry without a withdrawn key of published configs; a command with `until: exit` is one iteration."""
    if not isinstance(entry := empty_if_none(given), dict):
        return given
    if entry.get("kind") == "command" and entry.get("until") == "exit":
        job = empty_if_none(entry.get("job"))
        entry = {**entry, "job": {"iterations": 1, **job} if isinstance(job, dict) else job}
    return {key: value for key, value in entry.items() if key != "class"}


CheckedWorkload = Annotated[WorkloadEntry, BeforeValidator(_as_workload)]
