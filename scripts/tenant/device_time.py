"""How long the device itself was busy with an iteration: sampled, because asking costs time."""

import time
from collections.abc import Callable
from typing import Protocol

from tenant.workload import DEVICE_TIME, Sample

# Two events and their difference cost about 8 µs of the host. Of an iteration of half a millisecond that is 1.6 %, and
# every second one may be asked; of a shorter one it may be half, so at most 0.5 % are asked: fewer than a p99 sees.
LONG_NS = 1_000_000
MIDDLE_NS = 500_000
SHORT_STRIDE = 200


class Events(Protocol):
    """A pair of marks in the tenant's stream."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def elapsed_ns(self) -> int:
        """Time between the marks, once the device has passed both."""


def stride(iteration_ns: int) -> int:
    """Of how many iterations of that length one is asked: never more than one a millisecond."""
    if iteration_ns >= LONG_NS:
        return 1
    return 2 if iteration_ns >= MIDDLE_NS else SHORT_STRIDE


def sampled(
    launch: Callable[[], object],
    synchronize: Callable[[], object],
    events: Events,
    samples: list[Sample],
    clock: Callable[[], int] = time.monotonic_ns,
) -> Callable[[], None]:
    """An iteration that launches, waits, and now and then adds its device time to the samples.

    How often is decided by the fastest iteration that was asked so far, which is that of an undisturbed device.
    """
    left = 1
    fastest_ns = 1 << 62

    def iterate() -> None:
        nonlocal left, fastest_ns
        left -= 1
        if left > 0:
            launch()
            synchronize()
            return
        begun_ns = clock()
        events.begin()
        launch()
        events.end()
        synchronize()
        fastest_ns = min(fastest_ns, clock() - begun_ns)
        left = stride(fastest_ns)
        samples.append(Sample(DEVICE_TIME, begun_ns, events.elapsed_ns()))

    return iterate
