"""A real Prometheus that scrapes the tenants' pods, found by a file of their addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, study_of
from cluster.harness import Cluster
from cluster.test_runs import NAMESPACE, account, left, run_in  # noqa: F401
from tables import rows
from watching import MISSING, PROGRAM, Prometheus, assert_counts_agree, assert_quantiles_agree, prometheus

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]


def watched_study(server: Prometheus, **section: Any) -> dict[str, Any]:
    return study_of(
        NAMESPACE,
        strategies=["time-slicing"],
        baseline="none",
        null_cells=False,
        replicas=[3],
        window_seconds=6,
        prometheus={"url": server.url, "scrape_seconds": 0.5, **section},
    )


def checked(run: Run, how: str) -> None:
    """Check that Prometheus has the same numbers as the three tenants of the run's only cell."""
    run.passed()
    (path,) = run.folder.glob("results/cells/time-slicing/*/n3/r1/raw.json")
    record = json.loads(path.read_text())
    said = record["prometheus"]
    assert (record["status"], said["discovery"], said["error"]) == ("ok", how, None)
    assert_counts_agree(record)
    assert_quantiles_agree(record)
    assert len(rows(run.folder / "results/tables/prometheus.csv")) == 3


def test_pods_are_found_by_a_file_of_their_addresses(
    plugin: Cluster,
    account: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    with prometheus(tmp_path / "prometheus") as server:
        run = run_in(tmp_path / "study", account, watched_study(server, folder=str(server.targets)))
        checked(run, "file")
        assert list(server.targets.iterdir()) == []
    assert left(plugin, NAMESPACE) == []
    secrets = (server.url, str(server.targets), plugin.node_name)
    for path in (run.folder / "results").rglob("*"):
        if path.is_file() and ".sharebench" not in path.parts:
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in content], path
