"""When a tenant is warm: the rule of steadiness.

Iterations are put into batches in the order in which they ended. A batch is complete with the first iteration
that brings it to half of `min_iterations` (rounded up) and to BATCH_SECONDS since the batch's first
iteration began. The tenant is steady as soon as the medians of two consecutive batches differ by less than
`tolerance_percent` of the earlier one; so at least `min_iterations` iterations and two batches' time have
passed. If that has not happened `max_seconds` after the judgement began, the verdict is that it is not
steady.

What is judged is the time that an iteration took, not the time that a request waited before it.
"""

import numpy as np

from tenant.contract import BATCH_SECONDS, Batches, Rule
from tenant.recorder import IntArray


class Judge(Batches):
    """Judges iterations that begin at or after `since_ns` by the medians of their batches."""

    def __init__(self, rule: Rule, since_ns: int) -> None:
        super().__init__(rule, since_ns)
        self._pieces: list[IntArray] = []
        self._held = 0
        self._batch_begin_ns = 0

    def add(self, begun_ns: IntArray, ended_ns: IntArray) -> None:
        """Take the next iterations; arrays of shape (n,)."""
        if self.settled is not None:
            return
        # Where requests overlap, a later one may end first.
        order = np.argsort(ended_ns, kind="stable")
        order = order[begun_ns[order] >= self.since_ns]
        begun_ns, ended_ns = begun_ns[order], ended_ns[order]
        while self.settled is None and begun_ns.size:
            if not self._held:
                self._batch_begin_ns = int(begun_ns[0])
            by_time = int(np.searchsorted(ended_ns, self._batch_begin_ns + int(BATCH_SECONDS * 1e9)))
            last = max(by_time, self.least_iterations - self._held - 1)
            self._pieces.append(ended_ns[: last + 1] - begun_ns[: last + 1])
            self._held += self._pieces[-1].size
            if last < begun_ns.size:
                self.close_batch(float(np.median(np.concatenate(self._pieces))))
                self._pieces, self._held = [], 0
            begun_ns, ended_ns = begun_ns[last + 1 :], ended_ns[last + 1 :]
