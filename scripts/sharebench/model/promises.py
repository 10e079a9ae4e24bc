"""What each sharing mechanism promises, by its documentation: config/promises.yaml."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from sharebench.core.files import REPOSITORY
from sharebench.model.strategy import Limits

KEPT, BROKEN, NOT_PROMISED, NOT_MEASURED = "kept", "broken", "not promised", "not measured"
"""Verdicts on a promise of a strategy."""
PROMISES_FILE = REPOSITORY / "config" / "promises.yaml"


class Statement(BaseModel):
    """Whether a mechanism makes a promise, and its source; with `needs`, only where a strategy sets the limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    promised: bool
    source: str
    link: str | None = None
    needs: Literal["thread_percent", "memory"] | None = None

    def is_made(self, limits: Limits) -> bool:
        keys = ("memory_percent", "memory_limit") if self.needs == "memory" else (self.needs,)
        return self.promised and (self.needs is None or any(limits.get(str(key)) is not None for key in keys))


class Promise(BaseModel):
    """A promise, which is kept by a measurement within its limits; without limits it is a number only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    meaning: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    mechanisms: Mapping[str, Statement]

    @property
    def limit(self) -> str:
        """The limits as text; empty without any."""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return "" if self.at_most is None else f"at most {self.at_most:g}"

    def is_kept(self, measured: float) -> bool:
        return (self.at_least is None or measured >= self.at_least) and (
            self.at_most is None or measured <= self.at_most
        )

    def statement(self, mechanisms: Sequence[str]) -> Statement | None:
        """The statement of a strategy's inner mechanism; None where there is none."""
        return self.mechanisms.get(mechanisms[-1])


@cache
def promises() -> Mapping[str, Promise]:
    """All promises by name, in the order of tables."""
    return TypeAdapter(dict[str, Promise]).validate_python(yaml.safe_load(PROMISES_FILE.read_text(encoding="utf-8")))


def closing_line(verdicts: Iterable[str]) -> str:
    """The last line of a conformance study."""
    verdicts = list(verdicts)
    broken, missing = verdicts.count(BROKEN), verdicts.count(NOT_MEASURED)
    text = f"{broken} promise{'s' * (broken != 1)} broken"
    bare = verdicts.count(NOT_PROMISED)
    text += f", {missing} not measured" * bool(missing)
    return f"{text}, {verdicts.count(KEPT)} kept" + f", {bare} not promised" * bool(bare)
