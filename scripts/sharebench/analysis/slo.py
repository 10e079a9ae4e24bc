"""An SLO of several parts: what each asks, and how much of what a tenant served holds all that apply to it."""

from collections.abc import Mapping

from sharebench.core.study_config import Slo

PARTS = {"latency": "latency", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT"}
"""The parts, with their names for people."""


def limits(slo: Slo) -> dict[str, float]:
    """Seconds by part, of the parts that ask something."""
    asked = dict(zip(PARTS, (slo["latency_ms"], slo["ttft_ms"], slo["itl_ms"], slo["tpot_ms"]), strict=True))
    return {part: ms / 1e3 for part, ms in asked.items() if ms is not None}


def in_words(limits: Mapping[str, float]) -> str:
    """`50 ms`, or with the parts where it is not latency alone: `TTFT 500 ms, TPOT 50 ms`."""
    if limits.keys() == {"latency"}:
        return f"{1e3 * limits['latency']:g} ms"
    return ", ".join(f"{PARTS[part]} {1e3 * seconds:g} ms" for part, seconds in limits.items())
