"""Reading the JSON objects that describe what a tenant does. Every check raises ParameterError, which is one line."""

from collections.abc import Mapping
from typing import Any

Params = Mapping[str, object]
"""Parameters as their JSON has them, not yet checked."""


class ParameterError(Exception):
    """A parameter is unknown or its value is not possible; the message is one line for a person."""


def with_defaults(given: Params, defaults: Params, what: str) -> dict[str, Any]:
    """`given` completed by `defaults`, whose keys are all there are, and whose types the values must have.

    Integers and other numbers must be above 0. A tuple has all that are possible, the default first; None stands for
    anything. Raises ParameterError.
    """
    unknown = sorted(given.keys() - defaults.keys())
    if unknown:
        known = ", ".join(defaults) or "none"
        raise ParameterError(f"{what}: unknown parameter {', '.join(unknown)}; known: {known}")
    completed = {name: each[0] if isinstance(each, tuple) else each for name, each in defaults.items()} | dict(given)
    for name, value in completed.items():
        if why := _impossible(value, defaults[name]):
            raise ParameterError(f"{what} {name} must be {why}, not {value!r}")
    return completed


def _impossible(value: object, default: object) -> str | None:
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
