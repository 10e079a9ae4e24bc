"""histograms.csv: the buckets of all valid cells of one strategy and workload."""

import re

import numpy as np
import pandas as pd
import pytest
from unit import factories

from sharebench.model.records import record
from sharebench.model.records.record import RecordError
from sharebench.read.tables.histograms import export_histograms
from tenant.contract import OVERFLOW_INDEX, upper_seconds


@pytest.fixture
def save(tmp_path):
    """Write a record where its cell's path says, and return that path."""

    def write(made):
        cell = made["cell"]
        path = tmp_path / cell["strategy"] / f"n{cell['replicas']}" / f"r{cell['repeat']}" / "raw.json"
        record.write(path, made)
        return path

    return write


def test_every_bucket_of_every_valid_cell_is_listed_in_order(save, tmp_path):
    rng = np.random.default_rng(1)
    made = [
        factories.record("mps", [rng.lognormal(-5, 0.2, 100) for _ in range(n)], repeat=repeat)
        for n in (10, 2)
        for repeat in (2, 1)
    ]
    export_histograms([save(each) for each in made], tmp_path / "histograms.csv")
    table = pd.read_csv(tmp_path / "histograms.csv")
    assert list(table) == ["replicas", "repeat", "tenant", "bucket_lower_seconds", "bucket_upper_seconds", "count"]
    keys = list(table.itertuples(index=False, name=None))
    assert keys == sorted(keys)
    by_tenant = table.groupby(["replicas", "repeat", "tenant"])
    for each in made:
        for tenant in each["tenants"]:
            rows = by_tenant.get_group((each["cell"]["replicas"], each["cell"]["repeat"], tenant["index"]))
            assert dict(zip(rows["bucket_upper_seconds"], rows["count"], strict=True)) == {
                upper_seconds(int(index)): count for index, count in tenant["histogram"].items()
            }


def test_invalid_cells_are_left_out(save, tmp_path):
    invalid = factories.record("mps", repeat=1)
    invalid["evidence"][0]["holds"] = False
    crashed = factories.record("mps", [[0.005] * 9], status="crashed", reason="x", repeat=2)
    export_histograms([save(invalid), save(crashed)], tmp_path / "h.csv")
    header = "replicas,repeat,tenant,bucket_lower_seconds,bucket_upper_seconds,count\n"
    assert (tmp_path / "h.csv").read_text() == header


def test_the_overflow_bucket_ends_at_infinity(save, tmp_path):
    export_histograms([save(factories.record(latencies=[[2000.0]], window_seconds=5000.0))], tmp_path / "h.csv")
    assert (tmp_path / "h.csv").read_text().splitlines()[1] == f"1,1,0,{upper_seconds(OVERFLOW_INDEX - 1)!r},inf,1"


def test_foreign_or_damaged_records_are_refused_in_one_line(save, tmp_path):
    mig, damaged = save(factories.record("mig")), save(factories.record())
    damaged.write_text("{")
    for paths, words in (
        ([mig, save(factories.record("mps", repeat=2))], "is of mps and matmul, not of mig and matmul"),
        ([damaged], f"{damaged}: not valid JSON"),
    ):
        with pytest.raises(RecordError, match=re.escape(words)) as refused:
            export_histograms(paths, tmp_path / "h.csv")
        assert "\n" not in str(refused.value) and not (tmp_path / "h.csv").exists()
