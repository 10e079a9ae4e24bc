"""How a Prometheus learns of the tenants, and forgets them again."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sharebench.core.files import write_json

# Of a target in a file; what a scrape config says of these is overruled.
INTERVAL_LABEL, TIMEOUT_LABEL = "__scrape_interval__", "__scrape_timeout__"
# Prometheus looks at its files at once, and takes up what it found there every five seconds.
FILE_SECONDS = 15.0
# The operator writes a Secret, the kubelet brings it to the pod within about a minute, and then it is read.
MONITOR_SECONDS = 180.0
# What scrape configs for pods look for by custom; no part of Kubernetes.
ANNOTATIONS = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000", "prometheus.io/path": "/metrics"}


class Discovery(Protocol):
    """Shows the tenants of one cell to Prometheus; `patience_seconds` is how long it may take to see them."""

    patience_seconds: float

    def show(self, addresses: Sequence[str]) -> None:
        """These are the tenants' metrics, as `host:port`. Raises OSError or NodeError."""

    def hide(self) -> None:
        """They are gone."""


class Files:
    """A file of targets in a folder that Prometheus reads; one per results folder, whoever wrote it last."""

    patience_seconds = FILE_SECONDS

    def __init__(self, folder: Path, owner: Path, scrape_seconds: float) -> None:
        digest = hashlib.sha256(str(owner.resolve()).encode()).hexdigest()[:12]
        self.path = folder / f"sharebench-{digest}.json"
        self.interval = f"{round(1000 * scrape_seconds)}ms"

    def show(self, addresses: Sequence[str]) -> None:
        labels = {INTERVAL_LABEL: self.interval, TIMEOUT_LABEL: self.interval}
        write_json(self.path, [{"targets": list(addresses), "labels": labels}])

    def hide(self) -> None:
        self.path.unlink(missing_ok=True)


class Objects:
    """What pods carry themselves, or the run's PodMonitor: there is nothing to do for a cell."""

    def __init__(self, patience_seconds: float) -> None:
        self.patience_seconds = patience_seconds

    def show(self, addresses: Sequence[str]) -> None:
        """They are seen without that."""

    def hide(self) -> None:
        """Nor is there anything to hide."""
