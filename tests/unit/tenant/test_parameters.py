import pytest

from tenant.parameters import ParameterError, positive_integer, positive_number, with_defaults


def test_given_values_win_over_defaults() -> None:
    assert with_defaults({"b": 3}, {"a": 1, "b": 2}, "thing") == {"a": 1, "b": 3}


def test_an_unknown_key_is_named_with_what_there_is() -> None:
    with pytest.raises(ParameterError, match=r"thing: unknown parameter c; known: a, b"):
        with_defaults({"c": 3}, {"a": 1, "b": 2}, "thing")


@pytest.mark.parametrize("value", [0, -1, True, "7", None, float("nan"), float("inf")])
def test_numbers_must_be_positive_and_finite(value: object) -> None:
    with pytest.raises(ParameterError, match="rate must be a number above 0"):
        positive_number(value, "rate")


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "7", None])
def test_integers_must_be_positive(value: object) -> None:
    with pytest.raises(ParameterError, match="size must be an integer above 0"):
        positive_integer(value, "size")
