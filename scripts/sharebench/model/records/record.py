"""raw.json, the record of one cell: atomic writing, reading, and the checks that refuse a bad one.

Every measuring job imports this module, so it imports nothing heavy (no numpy, no pandas).
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, cast

import jsonschema_rs

from sharebench import SCHEMA_VERSION
from sharebench.core.files import REPOSITORY, Refusal, replace_atomically
from sharebench.model.records.types import CellRecord, Record, TenantRecord
from tenant.contract import lower_seconds, upper_seconds

SCHEMA_PATH = REPOSITORY / "config" / "schemas" / "record.schema.json"
# Longest part of a schema message, which quotes the offending value: that may be a whole record.
MESSAGE_LENGTH = 160
# Latencies are rounded to the nanosecond and sums are rounded, so a value may exceed its bounds by this much.
TICK_SECONDS = 1e-9
ROUNDING_RATIO = 1e-9
# An escaped or raw character in JSON text that a terminal may obey; line breaks and tabs have escapes of their own.
UNPRINTABLE = re.compile(rb"\\u|[^\x00-\x7e]")
# Reasons of cells that older records call infeasible, although nothing attempted them on the device.
UNATTEMPTED_REASONS = (
    "streams need a workload with a captured CUDA graph",
    "streams are tenants of one process, which runs one workload",
)


class RecordError(Refusal):
    """A record that cannot be written or trusted; the message is one line with the file and the problem."""


class RecordMismatch(Exception):
    """A record of another configuration or of other code; the message is one line with the differences."""


@lru_cache(maxsize=1)
def _validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(SCHEMA_PATH.read_text(encoding="utf-8")))


def _validate(path: Path, record: Any) -> None:
    try:
        _validator().validate(record)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(part) for part in error.instance_path) or "top level"
        message = error.message.replace("\n", " ")
        if len(message) > MESSAGE_LENGTH:
            half = MESSAGE_LENGTH // 2
            message = f"{message[:half]} … {message[-half:]}"
        raise RecordError(f"{path}: breaks the schema at {where}: {message}") from None


def write(path: Path, record: Record) -> None:
    """Write a record atomically after checking it against the schema; equal records give equal bytes.

    Raises RecordError for NaN, infinity or a breach of the schema, and OSError.
    """
    try:
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from None
    _validate(path, record)
    replace_atomically(path, text + "\n")


def read(path: Path) -> Record:
    """The record in the file, checked against the schema and against its own sums.

    It is not judged: only older records have `gates`, the verdicts of the code that measured them.

    Raises RecordError when the file is missing, unreadable or cut off, or breaks the schema or its version. It also
    does when a tenant's histogram or timeline contradicts its count, sums or extremes, when columns of its requests
    differ in length, or when values are missing that all iterations have.
    """
    try:
        content = path.read_bytes()
        stored: Any = json.loads(content, parse_constant=_refuse_constant)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not valid JSON, damaged or cut off ({error})") from None
    version = stored.get("schema") if isinstance(stored, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(f"{path}: schema version is {version!r}, this program reads {SCHEMA_VERSION}")
    _validate(path, stored)
    record: Record = printable(content, stored) | {"spec": stored["spec"]}
    if record["status"] == "ok" and record["window"] is None:
        raise RecordError(f"{path}: its status is ok, but it has no window")
    ended = [tenant for tenant in record["tenants"] if tenant["status"] != "ok"]
    if record["status"] == "ok" and ended and not record.get("fault"):
        raise RecordError(f"{path}: its status is ok, but tenant {ended[0]['index']} is {ended[0]['status']}")
    for tenant in record["tenants"]:
        _check_sums(path, tenant)
    return with_current_status(record)


def printable(content: bytes, value: Any) -> Any:
    """The value of this JSON text, without the characters in its texts that a terminal would obey.

    A data set may be another user's.
    """
    return _printable(value) if UNPRINTABLE.search(content) else value


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c for c in value if c.isprintable() or c in "\n\t")
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list) else value


def with_current_status(record: Record) -> Record:
    """The record with the status that current code would give it."""
    if record["status"] == "infeasible" and (record["reason"] or "").startswith(UNATTEMPTED_REASONS):
        return {**record, "status": "not-measured"}
    return record


def window_seconds(record: CellRecord) -> float:
    """Length of the record's window; for a queue of jobs, the sum of their turns."""
    window = record["window"]
    assert window is not None
    whole = [[window["start_monotonic_seconds"], window["end_monotonic_seconds"]]]
    return float(sum(end - start for start, end in window.get("turns", whole)))


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _check_sums(path: Path, tenant: TenantRecord) -> None:
    totals = {"histogram": sum(tenant["histogram"].values())}
    if tenant.get("measured_by") == "scrape":
        buckets = tenant["foreign_histogram"]
        # A Prometheus summary has no buckets.
        totals = {} if buckets is None else {"foreign_histogram": sum(buckets["count"])}
    if tenant["timeline"] is not None:
        totals["timeline"] = sum(tenant["timeline"]["count"])
    for name, total in totals.items():
        if total != tenant["count"]:
            where = f"{path}: tenant {tenant['index']}"
            raise RecordError(f"{where}: its {name} holds {total} iterations, its count says {tenant['count']}")
    if len({len(cast(list[object], column)) for column in tenant.get("requests", {}).values()}) > 1:
        raise RecordError(f"{path}: tenant {tenant['index']}: the columns of its requests differ in length")
    required: dict[str, object] = {"load": tenant["load"]}
    if tenant.get("measured_by") != "scrape":
        required |= {"min_seconds": tenant["min_seconds"], "max_seconds": tenant["max_seconds"]}
    if tenant["count"] and (missing := [name for name, value in required.items() if value is None]):
        raise RecordError(f"{path}: tenant {tenant['index']}: {tenant['count']} iterations, but no {missing[0]}")
    if tenant.get("measured_by") == "scrape":
        return
    timed: dict[str, Mapping[str, Any]] = {"": tenant, "device_histogram ": tenant["device_histogram"] or {}}
    timed |= {f"stage {kind} ": stage for kind, stage in tenant["stages"].items()}
    for name, values in timed.items():
        for key, low, high, slack in _bounds(values):
            slack += ROUNDING_RATIO * high
            if values.get(key) is not None and not low - slack <= values[key] <= high + slack:
                bounds = f"by its histogram and timeline it is within {low:.9g} and {high:.9g}"
                raise RecordError(f"{path}: tenant {tenant['index']}: its {name}{key} is {values[key]:.9g}, {bounds}")


def _bounds(values: Mapping[str, Any]) -> Iterator[tuple[str, float, float, float]]:
    """Key, lower and upper bound, and slack of each value that a histogram, and a timeline if any, restrict."""
    counts = {int(index): count for index, count in values.get("histogram", {}).items() if count}
    yield "count", sum(counts.values()), sum(counts.values()), 0.0
    if not counts:
        yield "sum_seconds", 0.0, 0.0, 0.0
        return
    total, first, last = sum(counts.values()), min(counts), max(counts)
    yield "min_seconds", lower_seconds(first), upper_seconds(first), TICK_SECONDS
    yield "max_seconds", lower_seconds(last), upper_seconds(last), TICK_SECONDS
    smallest, largest = values.get("min_seconds") or 0.0, values.get("max_seconds") or math.inf
    buckets = [
        (count, max(lower_seconds(index), smallest), min(upper_seconds(index), largest))
        for index, count in counts.items()
    ]
    low, high = (sum(bucket[0] * bucket[end] for bucket in buckets) for end in (1, 2))
    yield "sum_seconds", low, high, TICK_SECONDS * total
    low, high = (sum(bucket[0] * bucket[end] ** 2 for bucket in buckets) for end in (1, 2))
    # A mean of squares is no less than the square of the mean.
    low, slack = max(low, values["sum_seconds"] ** 2 / total), 2 * TICK_SECONDS * min(upper_seconds(last), largest)
    yield "sum_squares_seconds2", low, high, slack * total
    if timeline := values.get("timeline"):
        in_slots, slowest = sum(timeline["sum_seconds"]), max(timeline["max_seconds"])
        yield "sum_seconds", in_slots, in_slots, TICK_SECONDS * total
        yield "max_seconds", slowest, slowest, TICK_SECONDS


def check_current(record: Mapping[str, Any], spec: str, code: str) -> None:
    """Compare a record with the current spec text and code fingerprint.

    Raises RecordMismatch with every difference, such as `window_seconds 2 → 5` (the record's value first).
    """
    differences = []
    if record["spec"] != spec:
        differences += list(_differences("", _parsed(record["spec"]), _parsed(spec)))
        differences = differences or ["the spec is written differently"]
    if record["code"] != code:
        differences.append("the measuring code has changed")
    if differences:
        raise RecordMismatch("; ".join(differences))


def _parsed(spec: str) -> Any:
    try:
        return json.loads(spec)
    except ValueError:
        return spec


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            path = f"{key}.{name}" if key else name
            if name not in new:
                yield f"{path} is gone"
            elif name not in old:
                yield f"{path} is new: {_text(new[name])}"
            else:
                yield from _differences(path, old[name], new[name])
    elif _text(old) != _text(new):
        yield f"{key or 'spec'} {_text(old)} → {_text(new)}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
