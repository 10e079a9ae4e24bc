"""What a window's streams of tokens tell, as vLLM's and AIPerf's benchmarks define it.

TTFT is from the intended send to the first event with tokens, ITL the gap between two such events, TPOT the time from
the first to the last of them over the number of tokens less one. They count by the intended send, output tokens by the
moment at which they came.
"""

from collections.abc import Sequence

import numpy as np

from tenant.contract import OutputTokens, Requests
from tenant.recorder import Stream, Tally, Window


def finished(window: Window) -> list[Stream]:
    """Those that belong to the window and have come to their end, in the order of their intended sends."""
    held = (each for each in window.streams if each.ended_ns is not None and window.holds(each.intended_ns))
    return sorted(held, key=lambda stream: stream.intended_ns)


def count(stream: Stream) -> int:
    """Its tokens: as the server counted them, or else one for each event."""
    return sum(stream.tokens) if stream.reported is None else stream.reported


def tpot_ns(stream: Stream) -> float | None:
    """None where nothing came after the first event or token."""
    tokens = count(stream)
    if tokens < 2 or len(stream.times_ns) < 2:
        return None
    return (stream.times_ns[-1] - stream.times_ns[0]) / (tokens - 1)


def stages(streams: Sequence[Stream]) -> dict[str, Tally]:
    times: dict[str, list[np.ndarray]] = {
        "ttft": [np.array([each.times_ns[0] - each.intended_ns for each in streams])],
        "itl": [np.diff(np.array(each.times_ns)) for each in streams],
        "tpot": [np.array([round(ns) for each in streams if (ns := tpot_ns(each)) is not None])],
    }
    found = {kind: Tally() for kind in times}
    for kind, pieces in times.items():
        if pieces:
            found[kind].add(np.concatenate(pieces).astype(np.int64))
    return found


def requests(streams: Sequence[Stream], start_ns: int) -> Requests:
    """The record's columns; `start_ns` is the window's start."""
    gaps = [np.diff(np.array(each.times_ns)) for each in streams]
    return {
        "start_seconds": [(each.intended_ns - start_ns) / 1e9 for each in streams],
        "ttft_seconds": [(each.times_ns[0] - each.intended_ns) / 1e9 for each in streams],
        "tpot_seconds": [None if (ns := tpot_ns(each)) is None else ns / 1e9 for each in streams],
        "itl_max_seconds": [int(each.max()) / 1e9 if each.size else None for each in gaps],
        "latency_seconds": [((each.ended_ns or 0) - each.intended_ns) / 1e9 for each in streams],
        "output_tokens": [count(each) for each in streams],
    }


def output_tokens(window: Window) -> OutputTokens:
    """Tokens that came in the window, whenever their request was sent and whether or not its answer has ended.

    Where the server gave their number in the end only, all events of the answer have an equal part of it.
    """
    came = 0.0
    for stream in window.streams:
        times_ns, tokens = np.array(stream.times_ns), np.array(stream.tokens)
        if tokens.size:
            inside = tokens[(times_ns >= window.start_ns) & (times_ns < window.end_ns)].sum()
            came += float(inside) * count(stream) / float(tokens.sum())
    whole = [each for each in window.streams if each.ended_ns is not None]
    is_reported = bool(whole) and all(each.reported is not None for each in whole)
    return {"count": round(came), "source": "usage" if is_reported else "chunks"}
