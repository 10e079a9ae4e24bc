"""The study of what Kubernetes adds: the same cells on the host and in pods, in interleaved blocks."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from gpu import measure_pods
from gpu.measure_pods import SAME, WAYS, block_of, study_of

from sharebench.config import nodes


@pytest.fixture(autouse=True)
def on_a_gpu_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_gpu_host", lambda _: iter(()))


def test_the_same_strategy_has_the_same_limits_in_all_ways() -> None:
    studies = {name: study_of(way) for name, way in WAYS.items()}
    for host, there in SAME.items():
        for way, name in zip(("plugin", "claims"), there, strict=True):
            for replicas in (3, 7) if name else ():
                ours, bare = (studies[key].strategies[each] for key, each in ((way, name), ("host", host)))
                assert ours.mechanisms == bare.mechanisms
                for limit in ("thread_percent", "memory_percent"):
                    mine, theirs = ours.limits(replicas)[limit], bare.limits(replicas)[limit]
                    assert mine == theirs or int(theirs) == int(mine), "in whole percent in a cluster"


def test_both_studies_measure_alike() -> None:
    host, pods = study_of(WAYS["host"]).config, study_of(WAYS["plugin"]).config
    alike = ("replicas", "workloads", "repeats", "window_seconds", "warmup", "timeouts", "order", "faults")
    for key in (*alike, "fault_victims", "fault_repeats"):
        assert host[key] == pods[key]
    for name, (loop, mix, fault) in {"host": (10, 6, 3), "plugin": (7, 4, 2), "claims": (9, 6, 3)}.items():
        first = Counter(cell.workload for cell in study_of(WAYS[name]).cells if cell.repeat == 1)
        faults = {f"fault-{kind}+matmul-256-graph": fault for kind in host["faults"]}
        loops = dict.fromkeys(set(host["workloads"]) - {"yolos-next-to-matmul"}, loop)
        assert first == {"yolos-next-to-matmul": mix, **loops, **faults}


def test_the_blocks_are_the_study() -> None:
    for way in WAYS.values():
        study = study_of(way)
        given, whole = study.config, {cell.raw for cell in study.cells}
        blocks = [block_of(given, name, repeat) for repeat in range(1, 4) for name in given["workloads"]]
        measured: set[str] = set()
        for block in blocks:
            before = len(measured)
            measured |= {cell.raw for cell in study_of(way, block).cells}
            assert len(measured) - before < 20, "interleaved, faults too"
        assert measured == whole


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was run; each run measures its cells."""
    found: list[str] = []

    def snakemake(way: Any, environment: Any, *words: str, changes: Sequence[dict[str, Any]]) -> None:
        study = study_of(way, *changes)
        new = [cell for cell in study.cells if not (Path(study.config["results"]) / cell.raw).exists()]
        name = next(name for name, each in WAYS.items() if each is way)
        found.append(f"{name} {study.config['workloads'][0]} {sorted({cell.repeat for cell in new})} {len(new)}")
        for cell in new:
            (Path(study.config["results"]) / cell.raw).parent.mkdir(parents=True, exist_ok=True)
            (Path(study.config["results"]) / cell.raw).touch()

    monkeypatch.setattr(measure_pods, "snakemake", snakemake)
    monkeypatch.setattr(measure_pods, "bed", lambda _: nullcontext({}))
    monkeypatch.chdir(tmp_path)
    return found


def test_a_block_has_all_ways_and_only_missing_cells_are_measured(ran: list[str]) -> None:
    changes = {"workloads": ["matmul-16384"], "repeats": 2}
    assert measure_pods.measure(list(WAYS), changes, until=float("inf"))
    assert ran == [
        f"{name} matmul-16384 [{repeat}] {count}"
        for repeat in (1, 2)
        for name, count in (("host", 10), ("plugin", 7), ("claims", 9))
    ]
    (raw,) = Path().glob("results/pods/cells/mps/matmul-16384/n3/r2/raw.json")
    raw.unlink()
    ran.clear()
    assert measure_pods.measure(list(WAYS), changes, until=float("inf"))
    assert ran == ["plugin matmul-16384 [2] 1"]


def test_nothing_is_begun_when_the_time_is_over(ran: list[str]) -> None:
    assert not measure_pods.measure(list(WAYS), {}, until=0)
    assert ran == []


def test_the_table_of_what_a_cell_costs(tmp_path: Path) -> None:
    head = "strategy,workload,replicas,overhead_seconds"
    rows = {
        "host": ["exclusive,net,1,5.0", "mps,net,3,4.0", "exclusive-again,net,1,5.0"],
        "pods": ["exclusive,net,1,10.0", "exclusive-dra,net,1,7.5", "mps-dra,net,3,6.0"],
    }
    for name, lines in rows.items():
        (tmp_path / name / "tables").mkdir(parents=True)
        (tmp_path / name / "tables/startup.csv").write_text("\n".join([head, *lines]))
    assert list(measure_pods.overhead(tmp_path / "host", tmp_path / "pods"))[2:] == [
        "| `net` | exclusive | 1 | 5.0 | 10.0 | 7.5 | 2.00 | 1.50 |",
        "| `net` | mps | 3 | 4.0 |  | 6.0 |  | 1.50 |",
    ]
