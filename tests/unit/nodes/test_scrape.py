"""The driver's side of a tenant's HTTP contract: the clock."""

from types import SimpleNamespace
from typing import Any

import pytest

from sharebench.measure.nodes.tenants import endpoint
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint


def endpoint_whose_clock_says(monkeypatch: pytest.MonkeyPatch, boot_id: str | None, offset_ns: int) -> HttpEndpoint:
    """An endpoint that answers after 10 ms from a kernel of that boot id, whose clock is off by `offset_ns`."""
    now_ns = iter((0, 10_000_000))

    def call(self: HttpEndpoint, method: str, path: str, **_: Any) -> tuple[int, dict[str, Any]]:
        return 200, {"boot_id": boot_id, "monotonic_ns": 5_000_000 + offset_ns, "realtime_ns": 7, "first_line_ns": 0}

    monkeypatch.setattr(HttpEndpoint, "_call", call)
    monkeypatch.setattr(endpoint, "boot_id", lambda: "this boot")
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic_ns=lambda: next(now_ns)))
    return HttpEndpoint(1, "token")


def test_a_tenant_under_the_same_kernel_has_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint_whose_clock_says(monkeypatch, "this boot", 0).clock()[1:] == (7, 0.0)


@pytest.mark.parametrize("boot_id, offset_ns", [("another boot", 0), (None, 0), ("this boot", 10**9)])
def test_the_error_of_another_clock_is_the_round_trip(
    monkeypatch: pytest.MonkeyPatch, boot_id: str | None, offset_ns: int
) -> None:
    assert endpoint_whose_clock_says(monkeypatch, boot_id, offset_ns).clock()[2] == 0.01
