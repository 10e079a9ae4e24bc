"""The dashboard for Grafana (config/cluster/grafana.json), as tests read it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "config" / "cluster" / "grafana.json").read_text()
)


def expressions() -> Iterator[str]:
    """Every query, with the dashboard's variables as Grafana fills them in."""
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            filled = target["expr"].replace("$__rate_interval", "1m")
            yield filled.replace("$cell", ".*").replace("$node", ".*")
