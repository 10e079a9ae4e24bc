"""Published records and their specs, which stay readable forever."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from sharebench.core.files import REPOSITORY
from sharebench.model.records.record import _validate
from sharebench.model.spec import parse_spec

ARCHIVES = sorted((REPOSITORY / "published").glob("*/*/data.zip"))


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.parent.name)
def test_published_records_are_read(path: Path) -> None:
    with ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/r1/raw.json")]
        records: list[dict[str, Any]] = [json.loads(archive.read(name)) for name in names]
    for record in records:
        _validate(path, record)
        spec, key = parse_spec(record["spec"]), record["cell"]
        cell = spec.strategy.name, spec.replicas, spec.workload.name
        assert cell == (key["strategy"], key["replicas"], key["workload"])
        assert spec.strategy.limits(spec.replicas) == record["limits"]
        assert parse_spec(spec.text) == spec


def test_data_sets_are_published() -> None:
    assert ARCHIVES
