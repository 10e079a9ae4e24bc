"""Checks of the JSON objects that configure a tenant. A failed check raises ParameterError with a one-line message."""

from collections.abc import Mapping
from typing import Any

Params = Mapping[str, object]
"""Parameters as parsed from JSON, not yet checked."""


class ParameterError(Exception):
    """A parameter is unknown or has an impossible value; the message is one line for the user."""


def with_defaults(given: Params, defaults: Params, what: str) -> dict[str, Any]:
    """Complete `given` with `defaults`, whose keys are all the parameters there are, in their order.

    A value must have the type of its default, and a number must be above 0. A tuple as default lists the allowed
    values, the default first; None allows any value. `what` names the workload in messages. Raises ParameterError.
    """
    unknown = sorted(given.keys() - defaults.keys())
    if unknown:
        known = ", ".join(defaults) or "none"
        raise ParameterError(f"{what}: unknown parameter {', '.join(unknown)}; known: {known}")
    completed = {name: each[0] if isinstance(each, tuple) else each for name, each in defaults.items()} | dict(given)
    for name, value in completed.items():
        if expected := _expected(value, defaults[name]):
            raise ParameterError(f"{what} {name} must be {expected}, not {value!r}")
    return completed


def _expected(value: object, default: object) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    match default:
        case tuple():
            return None if value in default else f"one of {', '.join(default)}"
        case bool():
            return None if isinstance(value, bool) else "true or false"
        case int():
            return None if is_number and isinstance(value, int) else "an integer above 0"
        case float():
            return None if is_number else "a number above 0"
        case str():
            return None if isinstance(value, str) else "text"
        case _:
            return None
