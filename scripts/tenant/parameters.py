"""Reading the JSON objects that describe what a tenant does. Every check raises ParameterError, which is one line."""

from collections.abc import Collection, Mapping
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)
Params = Mapping[str, object]
"""Parameters as their JSON has them, not yet checked."""


class ParameterError(Exception):
    """A parameter is unknown or its value is not possible; the message is one line for a person."""


def with_defaults(given: Params, defaults: Params, what: str) -> dict[str, object]:
    """`given` completed by `defaults`, whose keys are all there are. Raises ParameterError."""
    unknown = sorted(given.keys() - defaults.keys())
    if unknown:
        known = ", ".join(defaults) or "none"
        raise ParameterError(f"{what}: unknown parameter {', '.join(unknown)}; known: {known}")
    return {**defaults, **given}


def positive_number(value: object, name: str) -> float:
    """The value as a number above 0. Raises ParameterError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ParameterError(f"{name} must be a number above 0, not {value!r}")
    return float(value)


def positive_integer(value: object, name: str) -> int:
    """The value as an integer above 0. Raises ParameterError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError(f"{name} must be an integer above 0, not {value!r}")
    return value


def natural(value: object, name: str) -> int:
    """The value as an integer from 0. Raises ParameterError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(f"{name} must be an integer from 0, not {value!r}")
    return value


def text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"{name} must be text, not {value!r}")
    return value


def optional_text(value: object, name: str) -> str | None:
    return None if value is None else text(value, name)


def one_of(value: object, choices: Collection[Choice], name: str) -> Choice:
    """The one of the choices that equals the value. Raises ParameterError."""
    for choice in choices:
        if choice == value:
            return choice
    raise ParameterError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def boolean(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be true or false, not {value!r}")
    return value
