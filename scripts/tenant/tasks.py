"""Tests of what a strategy promises, from inside a tenant: a load in several modes, and tasks that the driver asks for.

An iteration fills all cores or SMs that the tenant may use (mode `busy`), is short (`light`), leaves a pattern in the
SMs' shared memory (`pattern`), or sleeps (`idle`). The tasks are the methods of `Tasks`.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from tenant.failures import RefusedError
from tenant.parameters import Params
from tenant.workload import Work, Workload

IDLE_SECONDS = 0.005
STEP_BYTES = 16 << 20
BATCHES = (1, 2, 4, 8, 16, 32)
# A right value is about 1. float32 may differ by less than other precisions.
TOLERANCES = {"fp32": 1e-3}
TOLERANCE = 0.1


class Answers:
    """Results compared with right ones, in the form of the record's `answers`."""

    def __init__(self) -> None:
        self.checked = 0
        self.largest_error: dict[str, float] = {}
        self.wrong: list[dict[str, Any]] = []
        self.skipped: dict[str, str] = {}

    def add(self, kind: str, precision: str, shape: tuple[int, ...], batch: int, error: float) -> None:
        """Count one result, whose largest error is NaN or infinite where it is not finite."""
        self.checked += 1
        is_finite = abs(error) < float("inf")
        if is_finite:
            self.largest_error[precision] = max(error, self.largest_error.get(precision, 0.0))
        if not error < TOLERANCES.get(precision, TOLERANCE):
            row = {"kind": kind, "precision": precision, "shape": list(shape), "batch": batch}
            self.wrong.append({**row, "error": error if is_finite else None})


class Tasks(Workload):
    """A task returns the part of the record that it measured. Raises RefusedError for an unknown task or mode."""

    # To the interpreter, an iteration is one call, as the replay of a graph is.
    is_captured = True
    work = Work(flop=None, bytes=None, items=1)

    most_pattern_bytes = 8 << 30

    def __init__(self) -> None:
        self._modes: dict[str, Callable[[], None]] = {
            "busy": self._busy,
            "light": self._light,
            "pattern": self._busy,
            "idle": lambda: time.sleep(IDLE_SECONDS),
        }
        self._mode = "busy"
        self.pattern = 0
        """Word of 32 bits that fills memory, of this cell alone: older contents are not a neighbour's."""
        self._held: list[Any] = []

    def step(self) -> None:
        self._modes[self._mode]()

    def perform(self, name: str, params: Params) -> dict[str, Any]:
        tasks: dict[str, Callable[..., dict[str, Any]]] = {
            "mode": self._set_mode,
            "agree": self._agree,
            "largest_allocation": self.largest_allocation,
            "answers": self.answers,
            "write": self.write,
            "look": self.look,
            "look_shared": self.look_shared,
            "hold": self.hold,
            "end": self.end,
        }
        if name not in tasks:
            raise RefusedError(f"there is no task {name}")
        return tasks[name](**params)

    def _set_mode(self, mode: str) -> dict[str, Any]:
        if mode not in self._modes:
            raise RefusedError(f"there is no mode {mode}")
        self._mode = mode
        return {}

    def _agree(self, pattern: int) -> dict[str, Any]:
        self.pattern = pattern
        return {}

    def largest_allocation(self) -> dict[str, Any]:
        """The largest single allocation that succeeds, by bisection to 16 MiB."""
        low, high = 0, self._total_bytes() // STEP_BYTES + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_allocatable(middle * STEP_BYTES) else (low, middle)
        return {"largest_bytes": low * STEP_BYTES, "total_bytes": self._total_bytes()}

    def hold(self, size_bytes: int) -> dict[str, Any]:
        """Hold that much memory from now on, in place of what is held."""
        self._held = []
        if size_bytes:
            self._held = [self._filled(size_bytes)]
        return {"held_bytes": size_bytes}

    def write(self) -> dict[str, Any]:
        """Fill memory with the pattern and free it."""
        size_bytes = self._pattern_bytes()
        self._filled(size_bytes)
        return {"written_bytes": size_bytes}

    def end(self) -> NoReturn:
        """End without freeing memory that has been filled with the pattern."""
        self._held = [self._filled(self._pattern_bytes())]
        os._exit(0)

    def _pattern_bytes(self) -> int:
        """Bytes to fill with the pattern, or to look into: at most half of what is free."""
        return min(self.most_pattern_bytes, self._free_bytes() // 2)

    @abstractmethod
    def _busy(self) -> None: ...

    @abstractmethod
    def _light(self) -> None: ...

    @abstractmethod
    def _total_bytes(self) -> int: ...

    @abstractmethod
    def _free_bytes(self) -> int: ...

    @abstractmethod
    def _is_allocatable(self, size_bytes: int) -> bool: ...

    @abstractmethod
    def _filled(self, size_bytes: int) -> Any:
        """New memory full of the pattern, freed with the returned object."""

    @abstractmethod
    def look(self) -> dict[str, Any]:
        """Bytes of the pattern in memory that was allocated and not initialised."""

    @abstractmethod
    def look_shared(self, rounds: int) -> dict[str, Any]:
        """Bytes of the pattern in shared memory that was not initialised; nothing where there is none."""

    @abstractmethod
    def answers(self) -> dict[str, Any]:
        """Results of products and of other operations that differ from those in float64."""
