"""The study of what Kubernetes adds: the same cells on the host and in pods, in interleaved blocks."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from gpu import measure_pods
from gpu.measure_pods import SAME, WAYS, study_of

from sharebench.config import nodes


@pytest.fixture(autouse=True)
def on_a_gpu_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_gpu_host", lambda _: iter(()))


def test_the_same_strategy_has_the_same_limits_in_all_ways() -> None:
    studies = {name: study_of(way) for name, way in WAYS.items()}
    for host, there in SAME.items():
        for way, name in zip(("plugin", "claims"), there, strict=True):
            for replicas in (3, 7):
                ours, bare = (studies[key].strategies[each] for key, each in ((way, name), ("host", host)))
                assert ours.mechanisms == bare.mechanisms
                for limit in ("thread_percent", "memory_percent"):
                    mine, theirs = ours.limits(replicas)[limit], bare.limits(replicas)[limit]
                    assert mine == theirs or int(theirs) == int(mine), "in whole percent in a cluster"


def test_both_studies_measure_alike() -> None:
    host, pods = study_of(WAYS["host"]).config, study_of(WAYS["plugin"]).config
    for key in ("replicas", "workloads", "repeats", "window_seconds", "warmup", "timeouts", "order"):
        assert host[key] == pods[key]
    tenants = {name: Counter(cell.replicas for cell in study_of(way).cells) for name, way in WAYS.items()}
    assert tenants == {"host": {1: 12, 3: 12, 7: 6}, "plugin": {1: 12, 3: 12, 7: 6}, "claims": {1: 6, 3: 12}}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was run; each run measures its cells."""
    found: list[str] = []

    def snakemake(way: Any, environment: Any, *words: str, changes: Sequence[dict[str, Any]]) -> None:
        study = study_of(way, *changes)
        new = [cell for cell in study.cells if not (Path(study.config["results"]) / cell.raw).exists()]
        name = next(name for name, each in WAYS.items() if each is way)
        found.append(f"{name} {sorted({cell.repeat for cell in new})} {len(new)}")
        for cell in new:
            (Path(study.config["results"]) / cell.raw).parent.mkdir(parents=True, exist_ok=True)
            (Path(study.config["results"]) / cell.raw).touch()

    monkeypatch.setattr(measure_pods, "snakemake", snakemake)
    monkeypatch.setattr(measure_pods, "bed", lambda _: nullcontext({}))
    monkeypatch.chdir(tmp_path)
    return found


def test_a_repeat_has_all_ways_and_only_missing_cells_are_measured(ran: list[str]) -> None:
    assert measure_pods.measure(list(WAYS), {"repeats": 2}, until=float("inf"))
    assert ran == [
        *("host [1] 10", "plugin [1] 10", "claims [1] 6"),
        *("plugin [2] 10", "claims [2] 6", "host [2] 10"),
    ]
    (raw,) = Path().glob("results/pods/cells/mps/resnet50-graph/n3/r2/raw.json")
    raw.unlink()
    ran.clear()
    assert measure_pods.measure(list(WAYS), {"repeats": 2}, until=float("inf"))
    assert ran == ["plugin [2] 1"]


def test_nothing_is_begun_when_the_time_is_over(ran: list[str]) -> None:
    assert not measure_pods.measure(list(WAYS), {}, until=0)
    assert ran == []


def test_the_table_of_what_a_cell_costs(tmp_path: Path) -> None:
    head = "strategy,workload,replicas,overhead_seconds"
    rows = {
        "host": ["exclusive,net,1,5.0", "mps-limited,net,3,4.0", "exclusive-again,net,1,5.0"],
        "pods": ["exclusive,net,1,10.0", "exclusive-dra,net,1,7.5", "mps-limited-dra,net,3,6.0"],
    }
    for name, lines in rows.items():
        (tmp_path / name / "tables").mkdir(parents=True)
        (tmp_path / name / "tables/startup.csv").write_text("\n".join([head, *lines]))
    assert list(measure_pods.overhead(tmp_path / "host", tmp_path / "pods"))[2:] == [
        "| `net` | exclusive | 1 | 5.0 | 10.0 | 7.5 | 2.00 | 1.50 |",
        "| `net` | mps-limited | 3 | 4.0 |  | 6.0 |  | 1.50 |",
    ]
