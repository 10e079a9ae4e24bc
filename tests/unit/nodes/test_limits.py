"""A tenant's limits: the variables that set them, and the evidence at each edge."""

from typing import Any

import pytest

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes import limits
from sharebench.model.strategy import TenantLimits

GIB = 1 << 30


def own(**given: Any) -> TenantLimits:
    return TenantLimits(**given)


def test_only_limits_that_are_set_have_a_variable() -> None:
    assert limits.client_variables(own(), 80 * GIB) == {}
    whole = own(thread_percent=12.5, memory_percent=50.0, priority=0)
    assert limits.client_variables(whole, 80 * GIB + MEBIBYTE) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={40 * 1024}M",
        "CUDA_MPS_CLIENT_PRIORITY": "0",
    }


def test_a_green_context_has_its_share_of_the_sms_or_all() -> None:
    assert limits.part_sms(own(), 132) == 132
    assert limits.part_sms(own(thread_percent=50.0), 133) == 66


def test_a_tenant_tries_a_gibibyte_beyond_its_limit() -> None:
    assert limits.probe_variables(None) == {}
    assert limits.probe_variables(0) == {limits.PROBE_BYTES_VARIABLE: str(GIB)}
    assert limits.probe_variables(GIB) == {limits.PROBE_BYTES_VARIABLE: str(2 * GIB)}


def verdicts(given: TenantLimits, sm_count: int | None, view: Any, memory_bytes: int | None = 100) -> dict[str, bool]:
    found = limits.limits_evidence(given, sm_count, memory_bytes, view, "tenant 0")
    assert {each["source"] for each in found} <= {"tenant 0"}
    return {each["name"]: each["holds"] for each in found}


@pytest.mark.parametrize(
    ("percent", "seen", "holds"),
    [
        (None, 100, True),
        (None, 99, False),
        (50.0, 50, True),
        (50.0, 51, False),
        (99.0, 100, False),
        (50.0, 48, True),
        (50.0, 47, False),
        # One TPC is the least that there is.
        (1.0, 2, True),
        (1.0, 1, True),
        (1.0, 3, False),
        (1.0, 0, False),
        (50.0, None, False),
        (None, None, False),
    ],
)
def test_the_sms_of_a_share_may_be_one_tpc_less(percent: float | None, seen: int | None, holds: bool) -> None:
    view = {"sm_count": seen, "memory_free_bytes": 0, "over_limit_refused": True}
    assert verdicts(own(thread_percent=percent), 100, view) == {limits.SMS: holds}
    assert verdicts(own(thread_percent=percent), None, view) == {}, "a device whose SMs are not known"
    assert verdicts(own(thread_percent=percent), 100, None) == {limits.SMS: False}


@pytest.mark.parametrize(
    ("free", "refused", "holds"),
    [(50, True, (True, True)), (51, True, (False, True)), (50, False, (True, False)), (None, None, (False, False))],
)
def test_a_memory_limit_is_what_is_free_and_what_is_refused(
    free: int | None, refused: bool | None, holds: tuple[bool, bool]
) -> None:
    view = {"sm_count": 1, "memory_free_bytes": free, "over_limit_refused": refused}
    expected = dict(zip((limits.FREE_MEMORY, limits.REFUSED), holds, strict=True))
    assert verdicts(own(memory_percent=50.0), None, view) == expected
    assert verdicts(own(memory_percent=50.0), None, None) == dict.fromkeys(expected, False)
    assert verdicts(own(), None, view) == {}
