"""An item of evidence: what was expected of a strategy, and what was observed."""

from __future__ import annotations

from sharebench.records.types import EvidenceItem


def item(name: str, expected: object, observed: object, source: str, holds: bool | None = None) -> EvidenceItem:
    """One piece of evidence; it holds when what was observed is what was expected, unless said otherwise."""
    holds = expected == observed if holds is None else holds
    return {"name": name, "expected": expected, "observed": observed, "holds": holds, "source": source}
