"""Numbers for sentences."""

import pytest

from sharebench.read.quantity import format_ends, format_quantity


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


def test_an_interval_whose_ends_read_the_same_is_left_out() -> None:
    assert format_ends(37.51, 38.6) == "37.5 to 38.6"
    assert format_ends(1.1081, 1.1149) == ""
    assert format_ends(1.2, 1.2) == format_ends(None, 1.2) == format_ends(None, None) == ""
