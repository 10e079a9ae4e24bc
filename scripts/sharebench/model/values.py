"""What the models of all concepts share: types of values, which also convert text from a command line and single
values of lists, and the base class.

The validators here refuse a value with the text that follows key and value in the error line.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

Kind = Literal["cpu", "nvidia", "simulated", "kubernetes"]
"""A kind of node."""
T = TypeVar("T")
Key = TypeVar("Key")

# No quantity comes near this limit, and whole numbers up to it are exact in every representation.
MAX_NUMBER = 2**53
REFUSED, LISTED_TWICE, CROSSED = "refused", "listed_twice", "crossed"
"""Types of our errors; the message of a crossed one is about several keys, and complete."""

CLOSED_MAPPING = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
"""Every section refuses unknown keys."""


class Concept(BaseModel):
    """A concept, frozen, from a study's file to a record: every key with its type, default and meaning."""

    model_config = CLOSED_MAPPING | ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        checks: Checks = info.context or {}
        if type(self) in checks:
            refuse_first(checks[type(self)](self))
        return self

    def changed(self, **changes: object) -> Self:
        """The same with other values, which are not checked."""
        return self.model_copy(update=changes)

    def spec(self, include: set[str] | None = None) -> dict[str, Any]:
        """What a measurement depends on, as JSON: all that is not default, so that a new key leaves old specs valid."""
        return self.model_dump(mode="json", include=include, exclude_defaults=True)


Checks = Mapping[type[Concept], Callable[[Any], Iterator[tuple[str, str]]]]
"""Context in which a config is loaded: the problems of each concept across its keys, by the dotted key that has each,
below the concept, and the rest of the error line. What a run has written is not checked again."""


def refuse_first(problems: Iterator[tuple[str, str]]) -> None:
    """Raise ValidationError for the first problem, if any: the key that has it below the model, and the message."""
    for key, problem in problems:
        error = PydanticCustomError(CROSSED, "{problem}", {"problem": problem})
        where = (key,) if key else ()
        raise ValidationError.from_exception_data("", [InitErrorDetails(type=error, loc=where, input=None)])


def empty_if_none(value: Any) -> Any:
    """An empty mapping for a section without a value, which then takes its defaults."""
    return {} if value is None else value


def as_number(value: Any) -> Any:
    """The number in a text, and whole numbers as int: 2 and 2.0 must not make two specs of a cell."""
    if isinstance(value, str):
        for parse in (int, float):
            try:
                number = parse(value)
            except ValueError:
                continue
            if abs(number) <= MAX_NUMBER:
                value = number
                break
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        raise PydanticCustomError(REFUSED, "is not a number up to 2^53; use a smaller one")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_boolean(value: Any) -> Any:
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _checked_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # undecodable bytes of a command line
        raise PydanticCustomError(REFUSED, "is not text") from None
    return value


def _scalar(value: Any) -> Any:
    value = as_number(as_boolean(value))
    if isinstance(value, bool | int | float | str):
        return _checked_text(value) if isinstance(value, str) else value
    raise PydanticCustomError(REFUSED, "is not true or false or a number or text")


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def as_list(value: Any) -> Any:
    """The value as a list, which may be given as `a,b` or as one bare value."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")] if value.strip() else []
    if value is None:
        return []
    return list(value) if is_list(value) else value if isinstance(value, dict) else [value]


def _as_none(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip() in ("", "null") else value


def _unique(value: Sequence[T]) -> Sequence[T]:
    for item in value:
        if value.count(item) > 1:
            raise PydanticCustomError(LISTED_TWICE, "is listed twice; remove one", {"item": item})
    return value


@dataclass(frozen=True)
class Matching:
    """Constraint that the whole text matches `pattern`; `problem` is the error message otherwise."""

    pattern: str
    problem: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"pattern": f"^{self.pattern}$", "patternErrorMessage": self.problem}

    def _check(self, value: str) -> str:
        if re.fullmatch(self.pattern, value) is None:
            raise PydanticCustomError(REFUSED, self.problem)
        return value


@dataclass(frozen=True, eq=False)
class AlsoAccepts:
    """Schema of another form that a value may have, for editors; an earlier validator converts that form."""

    also: JsonSchemaValue

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.also, handler(schema)]}


class OneOrList:
    """Constraint of one value or a list; when a config is normalised, each value of a list makes a workload."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._each, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        one = handler(schema)
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}

    @staticmethod
    def _each(value: Any, validate: Callable[[Any], Any]) -> Any:
        if not is_list(value):
            return validate(value)
        if not value:
            raise PydanticCustomError(REFUSED, "is empty; name at least one")
        return _unique([validate(each) for each in value])


Maybe = Annotated[T | None, BeforeValidator(_as_none), Field(default=None)]
Swept = Annotated[Annotated[T, OneOrList()] | None, BeforeValidator(_as_none), Field(default=None)]
Part = Annotated[T, BeforeValidator(empty_if_none)]
Section = Annotated[T, BeforeValidator(empty_if_none), Field(default_factory=dict, validate_default=True)]
List = Annotated[list[T], BeforeValidator(as_list)]
Unique = Annotated[
    list[T], BeforeValidator(as_list), AfterValidator(_unique), Field(json_schema_extra={"uniqueItems": True})
]
Each = Annotated[tuple[T, ...], BeforeValidator(as_list)]
UniqueEach = Annotated[
    tuple[T, ...], BeforeValidator(as_list), AfterValidator(_unique), Field(json_schema_extra={"uniqueItems": True})
]
OpenMapping = Annotated[dict[Annotated[Key, Strict()], T], BeforeValidator(empty_if_none)]
Flag = Annotated[bool, Strict(), BeforeValidator(as_boolean)]
Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]

Numeric = Annotated[T, Strict(), AfterValidator(as_number), BeforeValidator(as_number)]
Count = Numeric[Annotated[int, Field(ge=1)]]
Tenants = Numeric[Annotated[int, Field(ge=1, le=1000)]]
Positive = Numeric[Annotated[float, Field(gt=0)]]
NotNegative = Numeric[Annotated[float, Field(ge=0)]]
Ratio = Numeric[Annotated[float, Field(ge=0, le=1)]]
Text = Annotated[str, AfterValidator(_checked_text)]
Name = Annotated[str, Field(min_length=1)]
Image = Annotated[str, Field(min_length=1), Matching(r"\S*", "cannot be an image: it holds a space")]
Path = Annotated[str, Matching("/.*", "does not begin with /")]
