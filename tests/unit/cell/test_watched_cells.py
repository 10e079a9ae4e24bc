"""Cells that Prometheus watches: which ones, their discovery, and a missing or failing Prometheus."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from unit.studies import config_with, study_with

from sharebench.measure.cell.prometheus import procedure as prometheus_cell
from sharebench.measure.cell.prometheus.procedure import PrometheusProcedure, target_file, watch_settings
from sharebench.measure.cell.prometheus.server import PrometheusUnavailable, selector
from sharebench.measure.nodes.contract import NodeError
from sharebench.model.config.load import load
from sharebench.model.spec import WatchSpec
from sharebench.model.strategy import Strategy
from sharebench.study.public import public_command, public_config
from sharebench.study.study import Study

WATCHED = {"prometheus.url": "http://127.0.0.1:1", "window_seconds": 5}


def watched(tmp_path: Path, **changes: Any) -> Study:
    return study_with(WATCHED | {"prometheus.folder": str(tmp_path)} | changes)


def test_an_unwatched_study_does_not_mention_prometheus() -> None:
    plain = study_with({})
    assert all(plain.spec(cell).prometheus is None for cell in plain.cells)


def test_being_watched_is_in_the_spec_of_cells_and_not_of_calibrations(tmp_path: Path) -> None:
    plain, seen = study_with({"window_seconds": 5}), watched(tmp_path)
    assert {seen.spec(cell).prometheus for cell in seen.cells} == {WatchSpec(scrape_seconds=1)}
    assert seen.calibration_spec("matmul") == plain.calibration_spec("matmul")
    assert seen.code("matmul") != plain.code("matmul")


@pytest.mark.parametrize(
    ("changes", "is_watched"),
    [
        ({}, True),
        ({"workloads": ["light-and-heavy"]}, True),
        ({"workloads": ["batch-matmul"]}, False),
        ({"faults": ["killed"]}, False),
    ],
)
def test_cells_without_one_continuous_window_are_not_watched(
    tmp_path: Path, changes: dict[str, Any], is_watched: bool
) -> None:
    seen = watched(tmp_path, **changes)
    meant = set(seen.faults) or set(seen.config["workloads"])
    cells = [cell for cell in seen.cells if cell.workload in meant]
    assert cells and {seen.spec(cell).prometheus is not None for cell in cells} == {is_watched}


def test_every_cell_has_its_own_name_in_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = watched(tmp_path).config
    monkeypatch.setenv("SHAREBENCH_RUN_ID", "one")
    names = {watch_settings(config["prometheus"], folder)["watched_cell"] for folder in ("a", "b")}
    monkeypatch.setenv("SHAREBENCH_RUN_ID", "two")
    names.add(watch_settings(config["prometheus"], "a")["watched_cell"])
    assert len(names) == 3


def test_pods_are_annotated_where_discovery_uses_annotations(tmp_path: Path) -> None:
    section = {"prometheus.discovery": "annotations", "node": "kubernetes", "strategies": ["exclusive"]}
    config = watched(tmp_path, **section).config
    assert watch_settings(config["prometheus"], "a")["pod_annotations"]["prometheus.io/port"] == "8000"
    assert watch_settings(watched(tmp_path).config["prometheus"], "a")["pod_annotations"] == {}


def test_the_file_of_targets_is_removed_at_the_end(tmp_path: Path) -> None:
    with target_file(tmp_path, tmp_path / "results", 0.5, ["127.0.0.1:1", "127.0.0.1:2"]):
        (path,) = tmp_path.glob("*.json")
        (group,) = json.loads(path.read_text())
        assert group["targets"] == ["127.0.0.1:1", "127.0.0.1:2"]
        assert group["labels"]["__scrape_interval__"] == "500ms"
        with target_file(tmp_path, tmp_path / "other", 1, []):
            assert len(list(tmp_path.glob("*.json"))) == 2
        path.unlink()
    assert not list(tmp_path.iterdir())


def test_labels_are_quoted() -> None:
    assert selector("m", {"a": 'x"y\\'}) == 'm{a="x\\"y\\\\"}'


# A procedure with stand-ins for its server, node and tenants.


class Tenants:
    """Two tenants whose metrics are never scraped."""

    are_local = True

    def metrics_addresses(self) -> list[str]:
        return ["127.0.0.1:1", "127.0.0.1:2"]

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep_until(self, _: int) -> None:
        pass

    sweep = start = wait_ready = endpoints = outcomes = watch_until = pids = sampler = stop = now_ns


class Node:
    kind = "cpu"

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def procedure(tmp_path: Path) -> PrometheusProcedure:
    seen = watched(tmp_path)
    cell = next(cell for cell in seen.cells if cell.replicas == 2)
    settings = {"timeouts": {"record_seconds": 1}, **watch_settings(seen.config["prometheus"], "a")}
    strategy: Strategy = seen.strategies[cell.strategy]
    return PrometheusProcedure(Node(tmp_path / "node"), strategy, seen.spec(cell), settings)  # type: ignore[arg-type]


def test_an_unreachable_prometheus_fails_the_cell_before_the_window(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"does not answer \(ConnectionError\); prometheus.url is http://127"):
        procedure(tmp_path).observe(Tenants(), [])  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.json"))


def test_a_prometheus_without_the_tenants_fails_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        def __init__(self, url: str) -> None:
            pass

        def vector(self, query: str, at: float | None = None) -> list[Any]:
            return [({}, 1.0)]

    monkeypatch.setattr(prometheus_cell, "Server", Blind)
    monkeypatch.setattr(prometheus_cell, "FILE_SECONDS", 0.0)
    monkeypatch.setattr(prometheus_cell, "STORED_SECONDS", 0.0)
    monkeypatch.setattr(prometheus_cell, "SCRAPES_TO_WAIT", 0)
    with pytest.raises(NodeError, match=r"saw 1 of 2 tenants within 0 s \(discovery: file\)"):
        procedure(tmp_path).observe(Tenants(), [])  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.json"))


def test_a_prometheus_that_fails_after_the_window_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def samples(self, *_: Any) -> Any:
            raise PrometheusUnavailable("Prometheus does not answer (ReadTimeout)")

    monkeypatch.setattr(prometheus_cell, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(prometheus_cell, "SCRAPES_TO_WAIT", 0)
    watching = procedure(tmp_path)
    watching.server = Dead()  # type: ignore[assignment]
    said = watching._query_window(10.0, 15.0)
    assert said["error"] == "Prometheus does not answer (ReadTimeout)"
    assert said["tenants"] == []


def test_address_folder_and_labels_of_prometheus_are_not_published(tmp_path: Path) -> None:
    config = watched(tmp_path, **{"prometheus.labels": {"release": "secret"}}).config
    told = public_config(config)["prometheus"]
    assert told["url"] == "http://prometheus" and told["folder"] is None and told["labels"] == {}
    assert told["scrape_seconds"] == 1
    words = [f"prometheus={{url: http://127.0.0.1:1, folder: {tmp_path}}}"]
    assert public_command(words, config) == ["prometheus={url: …, folder: …}"]
    assert public_command(["prometheus={labels: {release: secret}}"], config) == ["prometheus={labels: {release: …}}"]
    assert public_config(load(config_with({})))["prometheus"]["url"] is None
    # The study can be rebuilt from what is published.
    load(config_with({"prometheus": told, "from": str(tmp_path), "window_seconds": 5}))


def test_names_in_a_cluster_are_not_published() -> None:
    mine = {
        "context": "prod",
        "node": "gpu",
        "namespace": "team-a",
        "priority_class": "urgent",
        "tolerations": [{"key": "team-a/only", "operator": "Equal", "value": "them"}],
    }
    config = load(config_with({"node": "kubernetes", "kubernetes": mine}))
    told = public_config(config)
    assert {key: told["kubernetes"][key] for key in mine} == {
        "context": None,
        "node": "auto",
        "namespace": "sharebench",
        "priority_class": None,
        "tolerations": [],
    }
    words = ["--directory", "gpu", "--config", "kubernetes={node: gpu, namespace: team-a, context: prod, device: cpu}"]
    assert public_command([*words, "node=kubernetes", "gpu-a"], config) == [
        *("--directory", "…", "--config", "kubernetes={node: …, namespace: …, context: …, device: cpu}"),
        # Names inside other words are not replaced.
        *("node=kubernetes", "gpu-a"),
    ]
    several = load(config_with({"node": "kubernetes", "kubernetes": {"node": ["gpu-a", "gpu-b"]}}))
    assert public_config(several)["kubernetes"]["node"] == "auto"
    assert public_command(["kubernetes={node: [gpu-a, gpu-b]}"], several) == ["kubernetes={node: […, …]}"]
    assert public_command(["kubernetes={tolerations: [{key: team-a/only, value: them}]}", "x"], config) == [
        "kubernetes={tolerations: [{key: …, value: …}]}",
        "x",
    ]


class Answering:
    """A server with fixed answers."""

    def __init__(self, found: list[Any]) -> None:
        self.found = found

    def samples(self, *_: Any) -> list[Any]:
        return self.found


def test_a_tenant_that_is_scraped_twice_counts_once(tmp_path: Path) -> None:
    often, seldom = [(float(at), 10.0 * at) for at in range(9)], [(4.0, 40.0)]
    watching = procedure(tmp_path)
    series = [({"tenant": "0", "job": "a"}, often), ({"tenant": "0", "job": "b"}, seldom), ({"tenant": "1"}, often)]
    watching.server = Answering(series)  # type: ignore[assignment]
    assert watching._samples("count", 1.0, 5.0) == {0: often, 1: often}
