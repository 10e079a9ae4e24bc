import pytest

from tenant.device_time import with_device_time
from tenant.workload import TimeSample

from .conftest import MS, FakeClock


class FakeEventPair:
    """A pair of events that costs the host 5 µs and measures 4 µs."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.begun = self.sample_count = 0

    def begin(self) -> None:
        self.clock.advance_ns(2500)
        self.begun = self.clock.now_ns

    def end(self) -> None:
        self.clock.advance_ns(2500)

    def elapsed_ns(self) -> int:
        self.sample_count += 1
        return 4000


def run(clock: FakeClock, duration_ns: int, iterations: int) -> tuple[FakeEventPair, list[TimeSample]]:
    events, samples = FakeEventPair(clock), list[TimeSample]()
    step = with_device_time(lambda: None, lambda: clock.advance_ns(duration_ns), events, samples, clock)
    for _ in range(iterations):
        step()
    return events, samples


@pytest.mark.parametrize(
    ("duration_ns", "share"), [(17_000, 1 / 200), (400_000, 1 / 200), (600_000, 1 / 2), (1 * MS, 1), (30 * MS, 1)]
)
def test_device_time_is_sampled_so_rarely_that_latencies_do_not_change(
    clock: FakeClock, duration_ns: int, share: float
) -> None:
    begin_ns = clock.now_ns
    events, _ = run(clock, duration_ns, 2000)
    assert events.sample_count == pytest.approx(2000 * share, abs=1)
    overhead = (clock.now_ns - begin_ns) / (2000 * duration_ns) - 1
    assert overhead < 0.01
    assert events.sample_count <= (clock.now_ns - begin_ns) / MS + 1


def test_a_sample_has_the_start_of_its_iteration_and_the_device_time(clock: FakeClock) -> None:
    begin_ns = clock.now_ns
    _, samples = run(clock, 2 * MS, 2)
    first, second = samples
    assert first == ("device", begin_ns, 4000)
    assert second.begun_ns == begin_ns + 2 * MS + 5000


def test_stalls_do_not_raise_the_sampling_rate_of_short_iterations(clock: FakeClock) -> None:
    events, samples = FakeEventPair(clock), list[TimeSample]()
    durations = iter([17_000, *([8 * MS] + [17_000] * 50) * 40])
    step = with_device_time(lambda: None, lambda: clock.advance_ns(next(durations)), events, samples, clock)
    for _ in range(2000):
        step()
    assert events.sample_count <= 11
