"""Detect time slices: `python -m tenant.spin --streams N --threshold-ns T`, for `snakemake probe_timeslice`.

One device thread per stream reads the device's clock until a given time, and records each gap, a step longer than the
threshold, in which the thread was off the device. Prints {"device", "sm_count", "timer_ns", "monotonic_ns"} when ready;
the last two are one moment in the clocks of device and host. Then reads {"end_ns": …}, a time of the device's clock,
from stdin (it ends if stdin does), watches until then and prints {"timelines": [one per stream]}. Exit code 1 if CUDA
fails.
"""

import argparse
import json
import sys
import time
from array import array
from typing import Any

from tenant.gpu import cuda

# Number of gaps per stream: enough for more than two seconds of gaps of 20 µs.
CAPACITY = 100_000
# The header of a buffer: first time, last time, number of gaps, smallest step.
HEADER_WORDS = 4
WORD_BYTES = 8
CLOCK_TRIES = 20

# void spin(uint64 *out, uint64 capacity, uint64 threshold, uint64 end): reads the clock repeatedly; a step of 0 means
# that the clock has not advanced. Gaps beyond the capacity are counted, but not stored.
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
    """One device thread in its own stream, with room for `capacity` gaps."""

    def __init__(self, kernel: cuda.Kernel, capacity: int) -> None:
        self.capacity = capacity
        self.stream = cuda.CudaStream()
        self._kernel = kernel
        self._buffer = cuda.DeviceBuffer(WORD_BYTES * (HEADER_WORDS + 2 * capacity))

    def launch(self, threshold_ns: int, end_ns: int) -> None:
        self._kernel.launch(1, 1, self._buffer.pointer, self.capacity, threshold_ns, end_ns, stream=self.stream)

    def timeline(self) -> dict[str, Any]:
        self.stream.synchronize()
        return parse_timeline(self._buffer.read())


def parse_timeline(content: bytes) -> dict[str, Any]:
    """Decode the kernel's output. Times are ns of the device's clock, gaps are [last time before, first time after].

    `gap_count` includes gaps that were not stored.
    """
    words = array("Q", content)
    first, last, count, least = words[:HEADER_WORDS]
    edges = words[HEADER_WORDS : HEADER_WORDS + 2 * count].tolist()
    return {
        "first_ns": first,
        "last_ns": last,
        "resolution_ns": least,
        "gap_count": count,
        "gaps": [list(gap) for gap in zip(edges[::2], edges[1::2], strict=True)],
    }


def clock_pair(kernel: cuda.Kernel) -> tuple[int, int]:
    """One moment in ns of the device's clock and of the host's monotonic clock, from the fastest of several tries."""
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
        timer_ns, monotonic_ns = clock_pair(kernel)
        ready = {"device": cuda.device_view()["device"], "sm_count": cuda.sm_count()}
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
