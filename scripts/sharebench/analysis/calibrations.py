"""calibration/{workload}.json as types."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from sharebench.records.types import NodeFacts, Provenance, Switch


class Provenanced(TypedDict):
    """What records and calibrations have in common."""

    node: NodeFacts
    provenance: Provenance


class Calibration(Provenanced):
    """calibration/{workload}.json."""

    output_digest: list[float] | None
    capacity_hz: float | None
    roofs: dict[str, float] | None
    idle_power_watts: float | None
    strategy: NotRequired[str]
    switch: NotRequired[Switch | None]
