"""Watch the device's clock: `python -m tenant.spin --streams N --threshold-ns T`, for `snakemake probe_timeslice`.

One thread on the device per stream reads the clock until a given time, and notes every step that is longer than the
threshold: then it was off the device. Prints {"device", "sm_count", "timer_ns", "monotonic_ns"} when it is ready, the
last two being one moment in the device's clock and the host's. Then reads {"end_ns": …} from stdin, watches until that
time of the device's clock, prints {"timelines": [one per stream]} and ends; it also ends when stdin does. Exit code 1
when CUDA fails.
"""

import argparse
import json
import sys
import time
from array import array
from typing import Any

from tenant.gpu import cuda

# More than two seconds of nothing but gaps of 20 µs.
CAPACITY = 100_000
# first, last, number of gaps, least step
HEADER_WORDS = 4
WORD_BYTES = 8
CLOCK_TRIES = 20

# void spin(uint64 *out, uint64 capacity, uint64 threshold, uint64 end): the clock is read again and again; a step of 0
# means that it has not moved on. Gaps without room are counted only.
PTX = """
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 p_out, .param .u64 p_capacity, .param .u64 p_threshold, .param .u64 p_end)
{
    .reg .pred  %p<5>;
    .reg .b64   %out, %capacity, %threshold, %end, %first, %last, %now, %step, %least, %count, %offset, %gap;

    ld.param.u64        %out, [p_out];
    ld.param.u64        %capacity, [p_capacity];
    ld.param.u64        %threshold, [p_threshold];
    ld.param.u64        %end, [p_end];
    cvta.to.global.u64  %out, %out;
    mov.u64             %count, 0;
    mov.u64             %least, 0x7fffffffffffffff;
    mov.u64             %first, %globaltimer;
    mov.u64             %last, %first;

READ:
    mov.u64             %now, %globaltimer;
    sub.u64             %step, %now, %last;
    setp.eq.u64         %p1, %step, 0;
    @%p1 bra            READ;
    min.u64             %least, %least, %step;
    setp.le.u64         %p2, %step, %threshold;
    @%p2 bra            NEXT;
    setp.ge.u64         %p3, %count, %capacity;
    @%p3 bra            COUNT;
    shl.b64             %offset, %count, 4;
    add.u64             %gap, %out, %offset;
    st.global.u64       [%gap+32], %last;
    st.global.u64       [%gap+40], %now;
COUNT:
    add.u64             %count, %count, 1;
NEXT:
    mov.u64             %last, %now;
    setp.lt.u64         %p4, %now, %end;
    @%p4 bra            READ;

    st.global.u64       [%out], %first;
    st.global.u64       [%out+8], %last;
    st.global.u64       [%out+16], %count;
    st.global.u64       [%out+24], %least;
    ret;
}
"""


class Watcher:
    """One thread on the device, in a stream of its own, with room for `capacity` gaps."""

    def __init__(self, kernel: cuda.Kernel, capacity: int) -> None:
        self.capacity = capacity
        self.stream = cuda.Stream()
        self._kernel = kernel
        self._buffer = cuda.Buffer(WORD_BYTES * (HEADER_WORDS + 2 * capacity))

    def launch(self, threshold_ns: int, end_ns: int) -> None:
        self._kernel.launch(1, 1, self._buffer.pointer, self.capacity, threshold_ns, end_ns, stream=self.stream)

    def timeline(self) -> dict[str, Any]:
        self.stream.synchronize()
        return timeline(self._buffer.read())


def timeline(content: bytes) -> dict[str, Any]:
    """What the kernel wrote, in ns of the device's clock: gaps are [last time before, first time after].

    Of gaps without room it has the number only.
    """
    words = array("Q", content)
    first, last, count, least = words[:HEADER_WORDS]
    kept = words[HEADER_WORDS : HEADER_WORDS + 2 * count].tolist()
    return {
        "first_ns": first,
        "last_ns": last,
        "resolution_ns": least,
        "gap_count": count,
        "gaps": [list(gap) for gap in zip(kept[::2], kept[1::2], strict=True)],
    }


def clocks(kernel: cuda.Kernel) -> tuple[int, int]:
    """One moment in the device's clock and in the host's monotonic one, ns; of several tries the most certain."""
    watcher = Watcher(kernel, 0)
    best = (sys.maxsize, 0, 0)
    for _ in range(CLOCK_TRIES):
        before_ns = time.monotonic_ns()
        watcher.launch(0, 0)
        timer_ns = watcher.timeline()["first_ns"]
        after_ns = time.monotonic_ns()
        best = min(best, (after_ns - before_ns, timer_ns, (before_ns + after_ns) // 2))
    return best[1], best[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tenant.spin", description="Watch the device's clock, and note gaps.")
    parser.add_argument("--streams", type=int, default=1, help="tenants in this process")
    parser.add_argument("--threshold-ns", type=int, required=True, help="a longer step of the clock is a gap")
    arguments = parser.parse_args()
    try:
        cuda.open_context()
        kernel = cuda.Kernel(PTX, "spin")
        watchers = [Watcher(kernel, CAPACITY) for _ in range(arguments.streams)]
        for watcher in watchers:
            # The first launch loads the code and, with MPS, the server's side of it.
            watcher.launch(arguments.threshold_ns, 0)
            watcher.timeline()
        timer_ns, monotonic_ns = clocks(kernel)
        ready = {"device": cuda.view()["device"], "sm_count": cuda.sm_count()}
        print(json.dumps({**ready, "timer_ns": timer_ns, "monotonic_ns": monotonic_ns}), flush=True)
        order = sys.stdin.readline()
        if order:
            for watcher in watchers:
                watcher.launch(arguments.threshold_ns, json.loads(order)["end_ns"])
            print(json.dumps({"timelines": [watcher.timeline() for watcher in watchers]}), flush=True)
    except cuda.CudaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
