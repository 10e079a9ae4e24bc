"""The form of a record stands in its types, its meanings in the schema."""

from collections.abc import Iterator
from typing import Any, get_type_hints

import record_schema
from sharebench.model.records.record import SCHEMA_PATH
from sharebench.model.records.types import TenantRecord
from tenant.contract import TenantMeasurement, TenantReport


def keys(rules: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a record with its rules, however deep."""
    if isinstance(rules, dict):
        yield from rules.get("properties", {}).items()
    if isinstance(rules, dict | list):
        for inner in rules.values() if isinstance(rules, dict) else rules:
            yield from keys(inner)


def test_the_schema_has_the_form_of_the_types() -> None:
    assert SCHEMA_PATH.read_text() == record_schema.text(record_schema.schema()) + "\n", "run `make docs`"


def test_every_key_has_a_meaning() -> None:
    without = [key for key, rules in keys(record_schema.schema()) if not rules.get("description")]
    assert not without, f"write its description into {SCHEMA_PATH.name} after `make docs`"


def test_a_tenant_record_is_its_report_without_the_keys_that_the_driver_removes() -> None:
    reported = get_type_hints(TenantReport).keys()
    assert reported - get_type_hints(TenantRecord).keys() == {"environment", "outside"}
    assert get_type_hints(TenantRecord).keys() - reported == {"status", "exit"}
    assert get_type_hints(TenantMeasurement).keys() < reported
