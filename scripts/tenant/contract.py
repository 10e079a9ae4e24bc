"""Layout of the latency histograms: logarithmic buckets, 64 per doubling, from 1 µs to 1000 s.

Bucket i holds latencies in (upper(i - 1), upper(i)] with upper(i) = 1e-6 * 2**(i / 64) seconds. Bucket 0
holds everything up to 1 µs, the last one everything beyond 1000 s.

Measuring jobs import this module, so it imports nothing heavy (no numpy).
"""

from __future__ import annotations

import hashlib
import http.client
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenant.parameters import positive_integer, positive_number, with_defaults

BUCKETS_PER_DOUBLING = 64
SMALLEST_SECONDS = 1e-6
LAST_FINITE_INDEX = 1914
OVERFLOW_INDEX = 1915
BUCKET_COUNT = 1916
# A quantile that is taken from anywhere in its bucket is off by at most this share of its value.
QUANTILE_ERROR_RATIO = 2 ** (1 / BUCKETS_PER_DOUBLING) - 1


def upper_seconds(index: int) -> float:
    """Upper bound of a bucket in seconds, infinite for the overflow. Raises IndexError outside the layout."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"bucket {index}: the layout has 0 to {OVERFLOW_INDEX}")
    return math.inf if index == OVERFLOW_INDEX else SMALLEST_SECONDS * 2 ** (index / BUCKETS_PER_DOUBLING)


def lower_seconds(index: int) -> float:
    """Lower bound of a bucket in seconds: the upper one of the bucket before. Raises IndexError outside the layout."""
    return upper_seconds(index - 1) if index else 0.0


def nearest_index(seconds: float) -> int:
    """The bucket whose upper bound is nearest to a time above 0, on the log scale and within the finite ones."""
    index = round(BUCKETS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS))
    return min(max(index, 0), LAST_FINITE_INDEX)


EXIT_FAILURE = 1
EXIT_USAGE = 2
# As errno ENOMEM.
EXIT_OUT_OF_MEMORY = 12


# How many bytes `view` tries to allocate.
PROBE_VARIABLE = "SHAREBENCH_PROBE_BYTES"


def device_digest(uuid: str) -> str:
    """Hash of a UUID as NVML writes it (`GPU-…`, `MIG-…`): tells devices apart without naming them."""
    return hashlib.sha256(uuid.lower().encode()).hexdigest()[:16]


FIELDS = (
    "t_seconds",
    "cpu_seconds",
    "energy_joules",
    "power_watts",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_celsius",
    "gpu_util_percent",
    "memory_used_bytes",
    "reasons",
)


# Set by whoever starts tenants in pods: elsewhere the other variables mean something else, or nothing.
GRANTED_VARIABLE = "SHAREBENCH_GRANTED"
# Names of variables that the record is to show, with commas between them.
SHOWN_VARIABLE = "SHAREBENCH_SHOWN"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"


TOKEN_VARIABLE = "SHAREBENCH_TOKEN"


SHOWN = 100


def described(error: Exception, secrets: Iterable[str] = ()) -> str:
    """The line for an OSError or HTTPException of http.client, without what may be a secret in it."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    said = str(error).strip()
    for secret in secrets:
        said = said.replace(secret, "…")
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {said[:SHOWN]!r}"
    return "".join(each for each in said if each.isprintable())[:SHOWN] or type(error).__name__


VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def named(texts: Iterable[str]) -> list[str]:
    """The variables that these texts name, each once."""
    return list(dict.fromkeys(name for text in texts for name in VARIABLE.findall(text)))


def unusable(texts: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Why a variable that these texts name cannot be part of a request, or None; never its value."""
    for name in named(texts):
        value = environment.get(name)
        if not value:
            return f"{{env:{name}}} is not set in the environment; export {name}"
        if not (value.isascii() and value.isprintable()):
            return f"{{env:{name}}} holds what no request can (a line break, or no ASCII); export {name} without it"
    return None


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with the values of the variables that it names."""
    return VARIABLE.sub(lambda found: environment[found[1]], text)


# Several turns of a scheduler between a few tenants, so that a median is not that of one tenant's turn.
BATCH_SECONDS = 0.1


@dataclass(frozen=True)
class Rule:
    """The numbers of the rule."""

    min_iterations: int = 20
    max_seconds: float = 10.0
    tolerance_percent: float = 5.0

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Rule:
        """From the config's `warmup`; what is missing has the default. Raises ParameterError."""
        values = with_defaults(given, vars(cls()), "warmup")
        return cls(
            min_iterations=positive_integer(values["min_iterations"], "warmup min_iterations"),
            max_seconds=positive_number(values["max_seconds"], "warmup max_seconds"),
            tolerance_percent=positive_number(values["tolerance_percent"], "warmup tolerance_percent"),
        )


class Verdict(NamedTuple):
    """Whether it became steady, after how many batches, and the difference of the last two medians."""

    is_steady: bool
    batches: int
    change_percent: float | None


# The kinds of faults that a tenant may have on purpose, each with the status that it ends with.
FAULTS = {
    "oom": "oom",
    "leak": "oom",
    "illegal-address": "crashed",
    "assert": "crashed",
    "killed": "killed",
    "stopped": "hung",
    "spin": "hung",
}
