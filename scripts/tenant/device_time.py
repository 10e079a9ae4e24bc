"""Device time of iterations. It is sampled, because measuring it costs time of the host."""

import time
from collections.abc import Callable
from typing import Protocol

from tenant.workload import DEVICE_TIME, TimeSample

# Two events and their difference cost about 8 µs of the host. That is 1.6 % of an iteration of 0.5 ms, every second of
# which may be measured. It can be half of a shorter one, of which at most 0.5 % are measured, too few to move a p99.
LONG_NS = 1_000_000
MIDDLE_NS = 500_000
SHORT_STRIDE = 200


class EventPair(Protocol):
    """Two events in the tenant's stream, before and after an iteration's device work."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def elapsed_ns(self) -> int:
        """Time between the events, once the device has passed both."""


def sampling_stride(iteration_ns: int) -> int:
    """Number of iterations per sample: at most one sample per millisecond."""
    if iteration_ns >= LONG_NS:
        return 1
    return 2 if iteration_ns >= MIDDLE_NS else SHORT_STRIDE


def with_device_time(
    launch: Callable[[], object],
    synchronize: Callable[[], object],
    events: EventPair,
    samples: list[TimeSample],
    clock: Callable[[], int] = time.monotonic_ns,
) -> Callable[[], None]:
    """Return an iteration that launches, synchronises, and sometimes appends its device time to `samples`.

    The fastest measured iteration sets the sampling stride, because it ran on an undisturbed device.
    """
    countdown = 1
    fastest_ns = 1 << 62

    def iterate() -> None:
        nonlocal countdown, fastest_ns
        countdown -= 1
        if countdown > 0:
            launch()
            synchronize()
            return
        begun_ns = clock()
        events.begin()
        launch()
        events.end()
        synchronize()
        fastest_ns = min(fastest_ns, clock() - begun_ns)
        countdown = sampling_stride(fastest_ns)
        samples.append(TimeSample(DEVICE_TIME, begun_ns, events.elapsed_ns()))

    return iterate
