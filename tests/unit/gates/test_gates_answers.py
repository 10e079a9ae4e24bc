"""The gate of a server's answers: rounding passes, nonsense fails, and both show in the tables."""

import math
from typing import Any

import pytest
from unit.factories import back_to_back, gate_verdict, record, served, tenant

from sharebench.read.cells.rows import reduce_record
from sharebench.read.gates import gates

WORDS = [f"t{number}" for number in range(32)]
VALUES = [-0.5 - 0.1 * (number % 5) for number in range(32)]
Ask = list[dict[str, Any]]


def ask(shift: float = 0.0, tokens: list[str] = WORDS, values: list[Any] = VALUES, status: int = 200) -> Ask:
    shifted = [value if value is None else value + shift for value in values]
    return [{"status": status, "tokens": tokens, "logprobs": shifted}] * 4


RIGHT = [ask(), ask()]
# Rounding changes the tenth token, which is as probable, and so all after it.
OTHER_TOKENS = ask(0.01, [*WORDS[:9], *(f"u{number}" for number in range(23))], [*VALUES[:10], *[-3.0] * 22])


def measured(answers: list[Ask] | None, alone: list[Ask] | None = None, **changes: Any) -> dict[str, Any]:
    """A cell of two servers, of which the second gave these answers; its gates are judged."""
    tenants = [served(tenant(index, back_to_back([0.005] * 400))) for index in range(2)]
    tenants[0]["answers"] = RIGHT
    if answers is not None:
        tenants[1]["answers"] = answers
    tenants[1] |= changes
    made = record(tenants=tenants)
    made["calibration"]["answers"] = alone or [ask()] * 3
    return made | {"gates": gates.evaluate(made)}  # type: ignore[arg-type]


CASES: dict[str, tuple[list[Ask] | None, float, str]] = {
    "equal": (RIGHT, 0.0, ""),
    "rounding": ([ask(), ask(0.02)], 0.02, ""),
    "other tokens after rounding": ([OTHER_TOKENS, ask()], 0.01, ""),
    "nonsense": ([ask(), ask(tokens=["x"] * 32, values=[-11.93] * 32)], 11.43, "log-probabilities differ by 11 nat"),
    "nonsense before the load": ([ask(tokens=["x"] * 32, values=[-3] * 32), ask()], 2.5, "differ by 2.5 nat"),
    "too far": ([ask(), ask(0.11)], 0.11, "differ by 0.11 nat"),
    "an error": ([ask(), ask(tokens=[], values=[], status=400)], math.inf, "tenant 1 answers fixed prompts with 400"),
    "an error with the right text": ([ask(), ask(status=500)], math.inf, "tenant 1 answers fixed prompts with 500"),
    "an answer too few": ([ask(), ask()[:3]], math.inf, "not finite, or none"),
    "no connection": ([ask(), [{"status": None, "tokens": [], "logprobs": []}] * 4], math.inf, "with no answer"),
    "not a number": ([ask(), ask(values=[*VALUES[:31], None])], math.inf, "not finite"),
    "nothing": ([ask(), ask(tokens=[], values=[])], math.inf, "not finite, or none"),
    "too late": (None, math.inf, "in time; allow more with timeouts.record_seconds, or set answers: false"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nonsense_excludes_a_cell_and_rounding_does_not(case: tuple[list[Ask] | None, float, str]) -> None:
    answers, difference, message = case
    cell = measured(answers)
    verdict = gate_verdict(cell, "answers")
    assert verdict is not None
    assert (verdict["severity"], verdict["passed"], verdict["limit"]) == ("invalid", not message, 0.1)
    assert verdict["value"] == (pytest.approx(difference, abs=0.01) if math.isfinite(difference) else None)
    assert message in verdict["message"] and ("tenant 1" in verdict["message"]) == bool(message)
    found = [row.other_columns["answers_difference_nats"] for row in reduce_record(cell).rows]  # type: ignore[arg-type]
    assert found == [0.0, pytest.approx(difference, abs=0.01)]


def test_a_server_that_varies_alone_may_vary_as_much_times_five() -> None:
    varying = [ask(), ask(0.05), ask(-0.03)]
    for shift, passed in ((0.39, True), (0.41, False)):
        verdict = gate_verdict(measured([ask(), ask(shift)], varying), "answers")
        assert verdict is not None
        assert (verdict["passed"], verdict["limit"]) == (passed, pytest.approx(0.4))


def test_the_tenant_whose_answers_are_worst_is_named() -> None:
    cell = measured([ask(), ask(0.11)])
    cell["tenants"][0]["answers"] = [ask(), ask(0.3)]
    verdict = gate_verdict(cell | {"gates": gates.evaluate(cell)}, "answers")  # type: ignore[arg-type]
    assert verdict is not None and "tenant 0" in verdict["message"]
    assert verdict["value"] == pytest.approx(0.3, abs=0.01)


def test_without_answers_alone_there_is_nothing_to_judge() -> None:
    cell = measured(RIGHT)
    del cell["calibration"]["answers"]
    assert "answers" not in [gate["name"] for gate in gates.evaluate(cell)]  # type: ignore[arg-type]


def test_a_tenant_that_did_not_end_well_has_no_difference() -> None:
    cell = measured(None, status="crashed")
    assert reduce_record(cell).rows[1].other_columns["answers_difference_nats"] is None  # type: ignore[arg-type]
