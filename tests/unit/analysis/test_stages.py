"""tables/stages.csv: the times that workloads take themselves."""

import numpy as np
import pytest
from unit.factories import back_to_back, record, tenant

from sharebench.read.columns import table_frame
from sharebench.read.tables.cells import stage_rows
from tenant.contract import BUCKET_COUNT
from tenant.recorder import bucket_index, to_sparse


def timed(seconds: np.ndarray) -> dict[str, object]:
    """What a record says of these times."""
    counts = np.bincount(bucket_index(np.rint(seconds * 1e9).astype(np.int64)), minlength=BUCKET_COUNT)
    return {"count": seconds.size, "sum_seconds": float(seconds.sum()), "histogram": to_sparse(counts)}


def test_each_stage_of_each_tenant_has_a_row() -> None:
    gaps = np.random.default_rng(1).uniform(0.01, 0.02, 5000)
    stages = {"first_chunk": timed(np.full(100, 0.05)), "chunk_gap": timed(gaps)}
    tenants = [tenant(index, back_to_back([0.2] * 9)) | {"stages": stages} for index in range(2)]
    table = table_frame("stages", stage_rows(record("mps", tenants=tenants)))
    assert table[["tenant", "stage", "count"]].to_numpy().tolist() == [
        [index, stage, count] for index in range(2) for stage, count in (("chunk_gap", 5000), ("first_chunk", 100))
    ]
    gap, first = table.iloc[0], table.iloc[1]
    assert gap["mean_seconds"] == pytest.approx(gaps.mean())
    assert gap["p99_seconds"] == pytest.approx(np.quantile(gaps, 0.99), rel=0.012)
    assert first["p95_seconds"] == pytest.approx(0.05, rel=0.012)
    assert np.isnan(first["p99_seconds"]), "100 cannot carry it"


def test_without_stages_the_table_has_only_a_header() -> None:
    assert not list(stage_rows(record()))
