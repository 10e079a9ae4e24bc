"""A real Prometheus that scrapes real tenants on this host, and a cell during which it dies."""

import time
from pathlib import Path
from typing import Any

import pytest
from grafana import expressions
from pipeline.harness import Checkout, is_disturbed
from tables import rows
from watching import MISSING, PROGRAM, Prometheus, assert_counts_agree, assert_quantiles_agree, prometheus

from sharebench.model.records.types import GateVerdict
from sharebench.read.gates.gates import evaluate

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]

CELL = "mps/paced/2/1"


def watched(server: Prometheus, window_seconds: float, **more: str) -> list[str]:
    section = {"url": server.url, "folder": str(server.targets), "scrape_seconds": "0.5", **more}
    return [
        "prometheus={" + ", ".join(f"{key}: {value}" for key, value in section.items()) + "}",
        f"window_seconds={window_seconds}",
    ]


def gates(record: Any) -> dict[str, GateVerdict]:
    return {gate["name"]: gate for gate in evaluate(record)}


def test_prometheus_agrees_with_the_tenants_within_its_buckets(untouched: Checkout, tmp_path: Path) -> None:
    untouched.study = "watched.yaml"
    with prometheus(tmp_path / "prometheus") as server:
        config = watched(server, 5)
        result = untouched.run(config=config).ok()
        assert result.cells == {CELL}
        record = untouched.record(CELL)
        said = record["prometheus"]
        assert said["error"] is None
        assert_counts_agree(record)
        assert_quantiles_agree(record)
        for row in rows(untouched.results / "tables/prometheus.csv"):
            assert float(row["latency_p50_seconds"]) != float(row["prometheus_p50_seconds"]) > 0
        assert {"prometheus_counts", "prometheus_scrapes"} <= gates(record).keys()
        assert list(server.targets.iterdir()) == []
        assert "Nothing to be done" in untouched.run("-n", config=config).ok().out
        manifest = (untouched.results / "manifest.json").read_text()
        assert server.url not in manifest and str(server.targets) not in manifest
        for expression in expressions():
            server.query(expression)


def kill_in_window(checkout: Checkout, server: Prometheus) -> tuple[float, bool]:
    """Run, kill the server about when the window has begun and restart it; when it was killed, and whether all ran."""

    def cells() -> set[str]:
        both = server.query("count by (cell) (sharebench_iteration_seconds_count) == 2")
        return {found["metric"]["cell"] for found in both}

    before = cells()
    running = checkout.start(config=watched(server, 5), forks_jobs=True)
    # The driver begins its window once both tenants were scraped, and asks nothing until its end.
    running.wait_for(lambda: bool(cells() - before), "the window")
    time.sleep(1.5)
    killed = time.time()
    server.kill()
    time.sleep(2)
    server.start()
    ended = running.wait()
    assert ended.code == 0 or "; prometheus.url is " in ended.out, "only what is missing before the window fails a cell"
    return killed, ended.code == 0


@pytest.mark.thorough
def test_a_prometheus_killed_in_the_window_costs_only_its_own_numbers(untouched: Checkout, tmp_path: Path) -> None:
    untouched.study = "watched.yaml"
    with prometheus(tmp_path / "prometheus") as server:
        # The server is back before the window ends, so the driver need not wait long for it.
        untouched.edit(
            "scripts/sharebench/measure/cell/prometheus/procedure.py", "RESTART_SECONDS = 20.0", "RESTART_SECONDS = 2.0"
        )
        for _ in range(3):
            killed, has_run = kill_in_window(untouched, server)
            # A busy machine may begin the window later.
            if has_run and untouched.record(CELL)["window"]["start_epoch_seconds"] < killed:
                break
            untouched.record_path(CELL).unlink(missing_ok=True)
        record = untouched.record(CELL)
        assert record["status"] == "ok"
        assert not gates(record)["prometheus_scrapes"]["passed"]
        assert gates(record)["prometheus_scrapes"]["severity"] == "warning"
        for row in rows(untouched.results / "tables/cells.csv"):
            assert "prometheus_scrapes" in row["warnings"].split(";")
            assert row["valid"] == str(not is_disturbed(record)) and float(row["latency_p50_seconds"]) > 0
        assert all(sum(tenant["timeline"]["count"][-10:]) > 0 for tenant in record["tenants"]), "to the window's end"
