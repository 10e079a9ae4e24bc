"""The gate on the time that our client keeps the requests of a closed load out of flight."""

import socket
from typing import Any

import numpy as np
import pytest
from unit.factories import WINDOW_SECONDS, back_to_back, record, served, tenant

from sharebench.read.gates.programs import NO_ANSWER, PAUSE_SECONDS
from tenant.client import request_loop
from tenant.contract.requests import error_text
from tenant.recorder import OTHER_REASONS


def gaps(*tenants: dict[str, Any]) -> list[dict[str, Any]]:
    """What the gate says of a cell with these tenants."""
    numbered = [each | {"index": index} for index, each in enumerate(tenants)]
    return [gate for gate in record(tenants=numbered)["gates"] if gate["name"] == "generator_gap"]


def closed_load(in_flight: float, **changes: Any) -> dict[str, Any]:
    """A server that four requests in flight were asked of."""
    server = served(tenant(0, back_to_back(np.full(400, 0.005))))
    return server | {"load": server["load"] | {"concurrency": 4, "in_flight_mean": in_flight} | changes}


@pytest.mark.parametrize(("in_flight", "passed"), [(4.0, True), (3.95, True), (3.8, False)])
def test_time_between_the_requests_of_a_closed_load_is_a_warning(in_flight: float, passed: bool) -> None:
    (found,) = gaps(closed_load(4.0), closed_load(in_flight))
    assert (found["passed"], found["severity"]) == (passed, "warning")
    assert found["value"] == pytest.approx(1 - in_flight / 4)
    line = "between two requests the client of tenant 1 took 5.0% of the time, which its rate lacks"
    assert passed or found["message"] == line


@pytest.mark.parametrize(
    "changes", [{"arrival": "poisson", "planned_rate_hz": 200.0}, {"concurrency": None}, {"in_flight_mean": None}]
)
def test_only_a_closed_load_whose_requests_in_flight_are_known_has_a_gap(changes: dict[str, Any]) -> None:
    assert not gaps(closed_load(3.0, **changes))


@pytest.mark.parametrize(
    ("errors", "paused"),
    [
        ({"status 500": 400}, 0.0),
        ({"the server says: busy": 200, "the connection was closed in mid-answer": 200}, 0.0),
        ({"connection refused": 9, "[Errno 113] No route to host": 1, "status 500": 9}, 14 * PAUSE_SECONDS),
        ({"the connection was closed without an answer": 9, OTHER_REASONS: 1}, 14 * PAUSE_SECONDS),
    ],
)
def test_pauses_after_lost_connections_are_not_the_clients_gap(errors: dict[str, int], paused: float) -> None:
    """One of them may have begun before the window on each of four connections. What never ended was in flight."""

    def gap(in_flight: float) -> dict[str, Any]:
        server = closed_load(in_flight - paused / WINDOW_SECONDS, censored=1) | {"errors_by_reason": errors}
        (found,) = gaps(server)
        return found

    assert gap(4.0)["passed"] and gap(4.0)["value"] == pytest.approx(0.0, abs=1e-9)
    assert not gap(3.8)["passed"] and gap(3.8)["value"] == pytest.approx(0.05)
    assert gap(4.1)["passed"], "the pauses are the most that may be"


def test_the_gate_knows_the_clients_pause_and_after_what_it_is() -> None:
    assert request_loop.PAUSE_SECONDS == PAUSE_SECONDS
    unreachable = (
        ConnectionRefusedError(),
        OSError(113, "No route"),
        socket.gaierror(-2, "unknown"),
        TimeoutError(110, "x"),
    )
    assert all(error_text(error).startswith(NO_ANSWER) for error in unreachable)
