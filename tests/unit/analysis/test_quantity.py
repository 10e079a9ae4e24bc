"""Numbers for sentences."""

import pytest

from sharebench.read.quantity import format_quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.02534, "0.0253"),
        (37.96, "38.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (777.4839, "777"),
        (999.7, "1,000"),
        (1540.4, "1,540"),
        (485_718.0, "485,700"),
    ],
)
def test_a_quantity_is_rounded_once(value: float, text: str) -> None:
    assert format_quantity(value) == text
