"""A workload: what a tenant runs, and its load, from a study's file to a record's spec."""

# pydantic reads the annotations, so this file must not have `from __future__ import annotations`.

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from sharebench.model.traffic import Load, Request, SweptKey
from sharebench.model.values import (
    Concept,
    Count,
    Flag,
    Image,
    Matching,
    Maybe,
    Name,
    NotNegative,
    Numeric,
    OpenMapping,
    Part,
    Path,
    Positive,
    Scalar,
    Text,
    as_boolean,
    as_list,
    empty_if_none,
)

CLIENT = "http_client"
"""The client of `kind: http`, in tenant/workloads/."""
HERE_PREFIX = "{here}/"
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")
"""A placeholder in a word of a command; `${name}` belongs to a shell."""
UNIT_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
STARTED = ("command", "image", "manifest", "port", "ready", "start")
PROGRAM_OPTIONS = {
    "command": (*STARTED, "metrics", "until"),
    "http": (*STARTED, "url", "request", "stream", "failed_percent", "answers"),
}
"""The kinds of user programs, with the keys that only they have."""
UNMEASURED = ("description", "tenants", "sweep", "min_window_seconds")
"""Keys that no measurement depends on."""

Label = Annotated[
    str, Matching("[a-zA-Z_][a-zA-Z0-9_]*", "cannot be the name of a label: use letters, digits and _, no digit first")
]
Argument = Annotated[
    str,
    Matching(
        "[a-z][a-z0-9_]*", "cannot be the name of an argument: use lower-case letters, digits and _, a letter first"
    ),
]
Module = Annotated[str, Matching("[a-z][a-z0-9_]*", "is not the name of a Python module")]


class Job(Concept):
    """The fixed work of a workload of kind `job`, which needs it, and the deadline of one that runs `until: exit`."""

    iterations: Numeric[Annotated[int, Field(ge=1, le=10_000_000)]]
    """Number of iterations of a job; a program that runs `until: exit` is one."""
    max_seconds: Positive = 60
    """Deadline after the start: a job that is not done by then is `hung`."""


class Ready(Concept):
    """Condition by which a program has started; warming up comes after that."""

    path: Maybe[Path] = None
    """Path that answers 200 once the program has started."""
    count: Maybe[Count] = None
    """For kind `command`: iterations that its metrics have counted by then."""
    log: Maybe[Name] = None
    """For kind `command`: text that the program prints once it has started."""


class Metrics(Concept):
    """Metrics with the latencies, for kind `command`."""

    path: Path = "/metrics"
    """Path of the metrics, for kind `command`."""
    histogram: Maybe[Name] = None
    """Name of the histogram with a latency per iteration, without `_bucket`. It must have classic buckets."""
    summary: Maybe[Name] = None
    """Name of a summary in its place; it gives mean and rate, but no percentiles of a window."""
    labels: OpenMapping[Label, Text] = Field(default={})
    """Labels that pick one series, where there are several."""
    unit: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] = "seconds"
    """Unit of its values: `seconds`, `milliseconds`, `microseconds` or `nanoseconds`."""


class SweepEntry(Concept):
    """Place of this entry in a sweep; the pipeline writes it."""

    of: Name
    """Entry that has the list."""
    by: SweptKey
    """Key of its `load` with the list."""
    value: Positive
    """Value of this entry."""


class Model(Concept):
    """Cost of an iteration on the simulated node, which needs it: serial + parallel / SMs."""

    serial_seconds: NotNegative = 0
    """Part of an iteration that more SMs do not shorten."""
    parallel_sm_seconds: NotNegative = 0
    """Part of an iteration that is spread over the SMs."""


class Workload(Concept):
    """Workload of one tenant, and its load."""

    name: SkipJsonSchema[str] = ""
    description: Text = ""
    """One sentence for a person."""
    tenants: Maybe[Annotated[tuple[Text, ...], Field(min_length=2), BeforeValidator(as_list)]] = None
    """Makes the entry a [mix](#mixes-and-pairs): the workload of each tenant by name. It has no `module`, `params`,
    `load` or `simulated` of its own."""
    kind: Literal["loop", "job", "command", "http"] = "loop"
    """`loop` runs one iteration after another for a window; [`job`](#jobs) is a fixed number of them; `command` is any
    program with Prometheus metrics, `http` any HTTP server ([your own workload](../docs/your-own-workload.md))."""
    job: Maybe[Job] = None
    until: Maybe[Literal["exit"]] = None
    """For kind `command`: `exit` makes it a [job](../docs/jobs.md#a-program-as-it-is), which begins when the program
    starts and is done when that exits with 0; `null` measures a window."""
    module: Maybe[Module] = None
    """File in `scripts/tenant/workloads/` without `.py`; needed on every node but the simulated one."""
    command: Maybe[Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(as_list)]] = None
    """For kind `command` and `http`: the program and its arguments, never a shell; `{port}`, `{index}`, `{here}` (the
    folder that snakemake runs in; a cell depends on files below it), `{python}` (the tenants' interpreter),
    `{replicas}` (how many tenants there are) and `{fraction}` (1/replicas, or the memory that the strategy allows the
    tenant, as a fraction) are filled in."""
    image: Maybe[Image] = None
    """For kind `command` and `http`, in a cluster: the user's [image](../docs/your-own-workload.md#in-pods), as it is.
    `command` takes the place of its entrypoint, `null` keeps that; `port` is 8080 by default."""
    manifest: Maybe[Name] = None
    """For kind `command` and `http`, in a cluster, in place of `image`: file with a Pod, or with an object that has a
    pod template, such as a Deployment."""
    url: Maybe[Name] = None
    """For kind `http`: a server that runs already, as `http://host:port`, in place of a `command`."""
    port: Maybe[Numeric[Annotated[int, Field(ge=1, le=65535)]]] = None
    """Port that the program always listens on; `null` gives each tenant one of its own, as `{port}` and in the variable
    `SHAREBENCH_PORT`."""
    ready: Part[Ready] = Field(default_factory=Ready)
    metrics: Part[Metrics] = Field(default_factory=Metrics)
    request: Part[Request] = Field(default_factory=Request)
    start: Literal["together", "staggered"] = "together"
    """For kind `command` and `http`: `staggered` starts a tenant when those before it are ready, as servers need that
    look how much memory is free; each then has `timeouts.start_seconds`."""
    stream: Flag = False
    """For kind `http`: also times the tokens of an answer as they arrive."""
    failed_percent: Annotated[NotNegative, Field(le=100)] = 5
    """For kind `http`: largest share of failed requests with which a cell counts (gate `failed_share`). The latency is
    that of the others, and `error_reasons` has the failures."""
    answers: Annotated[Literal["auto", True, False], BeforeValidator(as_boolean)] = "auto"
    """For kind `http`: whether the server's answers to four fixed prompts are compared with those that it gives alone
    ([answers](../docs/your-own-workload.md#right-answers)). `auto` asks the calibration for log-probabilities, `true`
    refuses a server without."""
    params: OpenMapping[Argument, Scalar] = Field(default={})
    """Arguments of the module, by name: numbers, booleans or text."""
    load: Part[Load] = Field(default_factory=Load)
    sweep: Maybe[SweepEntry] = None
    """Place of the entry in a [sweep](#sweeps); the pipeline writes it."""
    min_window_seconds: NotNegative = 1
    """Shortest window that is long enough for this workload. A study that sets less than the catalogue reports it."""
    output_tolerance: NotNegative = 1e-6
    """Largest relative difference between a tenant's output and that of the workload alone."""
    simulated: Maybe[Model] = None

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, given: Any) -> Any:
        """The entry without a withdrawn key of published configs; a command with `until: exit` is one iteration."""
        if not isinstance(entry := empty_if_none(given), dict):
            return given
        if entry.get("kind") == "command" and entry.get("until") == "exit":
            job = empty_if_none(entry.get("job"))
            entry = {**entry, "job": {"iterations": 1, **job} if isinstance(job, dict) else job}
        return {key: value for key, value in entry.items() if key != "class"}

    @property
    def is_program(self) -> bool:
        """Whether it is a user program."""
        return self.kind in PROGRAM_OPTIONS

    @property
    def runs_until_exit(self) -> bool:
        """Whether it is a program that is done when it exits."""
        return self.until == "exit"

    @property
    def is_job(self) -> bool:
        """Whether it has an end of its own, and no window."""
        return self.kind == "job" or self.runs_until_exit

    @property
    def code(self) -> str | None:
        """The file in tenant/workloads/ that it runs; a command has none."""
        return CLIENT if self.kind == "http" else self.module

    def request_texts(self) -> list[str]:
        """The texts of a server's requests that may name environment variables."""
        return [self.request.path, self.ready.path or "", *self.request.headers.values()]

    def client_files(self) -> dict[str, str]:
        """Files of the study that the client reads, by its parameter: bodies of requests, and a trace."""
        return self.request.files() | ({"trace": self.load.trace} if self.load.trace is not None else {})

    def client_params(self, url: str) -> dict[str, Any]:
        """Parameters of the client that sends the requests to a server at `url`."""
        own = {"url": url, "ready_path": self.ready.path, "stream": self.stream}
        return self.request.model_dump(mode="json") | own

    def files(self) -> list[str]:
        """Files of the study that it names, below the folder that snakemake runs in."""
        words = [word.removeprefix(HERE_PREFIX) for word in self.command or () if word.startswith(HERE_PREFIX)]
        return [*words, *([self.manifest] if self.manifest is not None else ()), *self.client_files().values()]

    @classmethod
    def default_of(cls, option: str) -> Any:
        return cls.model_fields[option].get_default(call_default_factory=True)

    def measured(self, is_simulated: bool) -> Self:
        """The workload without what its cells do not depend on: on the simulated node, what the tenant runs."""
        programs = {option for options in PROGRAM_OPTIONS.values() for option in options}
        unused = (*UNMEASURED, "module", *programs) if is_simulated else (*UNMEASURED, "simulated")
        return self.changed(**{option: self.default_of(option) for option in unused})

    def repeated(self) -> Self:
        """The same work for a window: a job becomes a loop of its iterations."""
        return self.changed(kind="loop", job=None) if self.kind == "job" else self


class Mix(Concept):
    """The workloads of a cell whose tenants do not all run the same."""

    name: str
    tenants: tuple[Workload, ...]
