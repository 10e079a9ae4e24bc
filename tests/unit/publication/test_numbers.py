"""Numbers of findings: ratios within blocks and devices, valid cells only, both baselines, all requests."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from unit import factories
from unit.edited import edited_table
from unit.papers import LATENCY, alone, data_set, publish

from publication import findings
from publication.numbers import MissingNumber, Number


def group(strategy: str) -> dict[str, Any]:
    return findings.group(strategy, "net", 2)


def test_a_number_prints_its_interval() -> None:
    assert str(Number(2.943, 2.9, 2.98)) == "2.94 (2.90 to 2.98)"
    assert Number(1.0007, 1.0003, 1.0011).formatted(" ×") == "1.0007 × (1.0003 to 1.0011)"
    assert Number(1.0, 1.0, 1.0).formatted() == "1.00 (1.00 to 1.00)"
    assert Number(0.0153, 0.015, 0.016).scaled(1000).formatted(" ms") == "15.3 ms (15.0 to 16.0)"
    assert (Number(3).least, Number(3).most, Number(3, 2, 4).least, Number(3, 2, 4).most) == (3, 3, 2, 4)


def test_a_ratio_pairs_the_cells_of_a_block(tmp_path: Path) -> None:
    publish(tmp_path)
    ratio = data_set(tmp_path).ratio(group("time-slicing"), group("mps"))
    logs = [math.log(a / b) for a, b in zip(LATENCY["time-slicing"], LATENCY["mps"], strict=True)]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
        (math.exp(sum(logs) / 3), math.exp(low), math.exp(high))
    )
    assert data_set(tmp_path).ratio(group("mps"), group("mps"), "throughput_hz").value == pytest.approx(1)


def test_neighbours_of_faults_are_added_up_over_studies(tmp_path: Path) -> None:
    for name, died in (("gpu/faults", 0), ("gpu/again", 3)):
        publish(tmp_path, name)
        rows = {"strategy": ["mps", "mps", "mig"], "fault": ["killed", "oom", "oom"], "n": 3, "failed": [died, 0, 1]}
        pd.DataFrame(rows).to_csv(tmp_path / "made" / name / "tables/isolation.csv", index=False)
    both = [data_set(tmp_path, "gpu/faults"), data_set(tmp_path, "gpu/again")]
    assert str(findings.neighbours(both, "mps", "killed")) == "3 of 6"
    assert findings.neighbours(both, "mps") == (3, 12)
    with pytest.raises(MissingNumber, match="gpu/faults, gpu/again: no fault killed under mig"):
        findings.neighbours(both, "mig", "killed")


def test_two_studies_with_interleaved_blocks_are_paired_by_device_and_block(tmp_path: Path) -> None:
    publish(tmp_path, "gpu/host")
    publish(tmp_path, "gpu/pods")
    host, pods = data_set(tmp_path, "gpu/host"), data_set(tmp_path, "gpu/pods")
    path = tmp_path / "made/gpu/pods/tables/cells.csv"
    cells = pd.read_csv(path)
    # The block was slow in both studies.
    cells["latency_mean_seconds"] *= 1.1
    cells["run_id"] = "another"
    cells.to_csv(path, index=False)
    ratio = pods.ratio_to(host, group("mps"), group("mps"))
    assert (ratio.value, *ratio.ends) == pytest.approx((1.1, 1.1, 1.1))
    cells["device"] = "other"
    cells.to_csv(path, index=False)
    with pytest.raises(MissingNumber, match="no common block"):
        data_set(tmp_path, "gpu/pods").ratio_to(host, group("mps"), group("mps"))


def test_a_ratio_never_mixes_devices(tmp_path: Path) -> None:
    publish(tmp_path, devices="abc")
    whole = data_set(tmp_path).ratio(group("time-slicing"), group("mps"))
    assert whole.value == pytest.approx(2.0, rel=0.05)
    path = tmp_path / "made/gpu/study/tables/cells.csv"
    cells = pd.read_csv(path)
    cells.loc[(cells["strategy"] == "mps") & (cells["repeat"] == 2), "valid"] = False
    cells.loc[cells["repeat"] == 2, "latency_mean_seconds"] *= 10
    cells.to_csv(path, index=False)
    partners = data_set(tmp_path).ratio(group("time-slicing"), group("mps"))
    assert partners.value == pytest.approx(2.0, rel=0.05)
    cells.loc[(cells["strategy"] == "mps") == (cells["repeat"] == 1), "valid"] = False
    cells.to_csv(path, index=False)
    with pytest.raises(MissingNumber, match="share no device"):
        data_set(tmp_path).ratio(group("time-slicing"), group("mps"))


def test_no_value_of_an_excluded_cell_gets_into_a_number(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.05, 1.1])
    path = tmp_path / "made/gpu/study/tables/cells.csv"
    where = {"strategy": "mps", "workload": "net"}

    def numbers() -> list[Any]:
        data = data_set(tmp_path)
        return [
            data.total("count", "cells", **where),
            data.mean("sm_clock_mean_mhz", "cells", **where).value,
            [each.value for each in data.sorted_values("memory_mib", "cells", **where)],
            data.max_over_min("memory_mib", "cells", **where).value,
            [each.value for each in data.spreads("memory_mib", **where)],
            [each.value for each in data.alone_latencies("net")],
            data.ratio(group("mps"), group("mps")).value,
            data.is_slowed_down("net"),
        ]

    with edited_table(path) as cells:
        cells.loc[cells["repeat"] == 3, "valid"] = False
    known = numbers()
    with edited_table(path) as cells:
        of_excluded = ["count", "sm_clock_mean_mhz", "memory_mib", "latency_mean_seconds"]
        cells.loc[cells["repeat"] == 3, of_excluded] *= 7
        cells.loc[cells["repeat"] == 3, "reason"] = "drift: it drifts"
    assert numbers() == known
    assert data_set(tmp_path).mentions("drift", "reason", "cells", **where) == 2


def test_a_ratio_to_one_alone_is_to_the_mean_of_baseline_and_control(tmp_path: Path) -> None:
    publish(tmp_path)
    alone(tmp_path, [1.0, 1.0, 1.0])
    alone(tmp_path, [1.21, 1.21], strategy="exclusive-again")
    data, one = data_set(tmp_path), findings.group("exclusive", "net", 1)
    # One block has no control.
    expected = stats.gmean(LATENCY["mps"]) / stats.gmean([1.1, 1.1, 1.0])
    assert data.ratio(group("mps"), one).value == pytest.approx(expected)
    assert data.ratio(one, group("mps")).value == pytest.approx(1 / expected)
    assert data.ratio(findings.group("exclusive-again", "net", 1), one).value == pytest.approx(1.21)


def test_a_percentile_of_several_tenants_is_that_of_all_their_requests(tmp_path: Path) -> None:
    publish(tmp_path)
    for strategy, seconds in (("mps", (0.01, 0.02)), ("exclusive", (0.02, 0.02))):
        record = factories.record(strategy, [np.full(round(2 / each), each) for each in seconds], workload="net")
        path = tmp_path / f"published/gpu/study/cells/{strategy}/net/n2/r1/raw.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record))
    with edited_table(tmp_path / "made/gpu/study/tables/cells.csv") as cells:
        cells.loc[cells["repeat"] > 1, "valid"] = False
    ratio = data_set(tmp_path).ratio(group("mps"), group("exclusive"), "latency_p50_seconds")
    # Two of three requests under MPS took 10 ms.
    assert ratio.value == pytest.approx(0.5, rel=0.02)
