from collections.abc import Callable

import pytest

from tenant import workloads
from tenant.contract import FAULTS, Rule
from tenant.exposition import Exposition
from tenant.load import Load
from tenant.parameters import ParameterError, positive_integer, positive_number, with_defaults
from tenant.workloads.http_client import DEFAULTS


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


@pytest.mark.parametrize(
    ("module", "params", "message"),
    [
        ("matmul", {"sizes": 3}, "matmul: unknown parameter sizes; known: size, dtype, graph"),
        ("matmul", {"size": 0}, "matmul size must be an integer above 0, not 0"),
        ("matmul", {"dtype": "int7"}, "matmul dtype must be one of float32, float64, not 'int7'"),
        ("memcopy", {"size": 3}, "memcopy: unknown parameter size; known: mebibytes"),
        ("memcopy", {"mebibytes": 0.5}, "memcopy mebibytes must be an integer above 0, not 0.5"),
        (
            "burn",
            {"size": 1024, "mebibytes": 8},
            "burn mebibytes: 8 cannot hold four matrices of 1024 x 1024; set more",
        ),
        ("burn", {"memory_fraction": 1.5}, "burn memory_fraction must be at most 1, not 1.5"),
        ("burn", {"dtype": "float16"}, "burn dtype must be one of float32, float64, not 'float16'"),
        ("detector", {"size": 3}, "detector: unknown parameter size; known: height, width, batch"),
        ("detector", {"width": 100}, "detector width must be a multiple of 32, not 100"),
        ("detector", {"height": -32}, "detector height must be an integer above 0, not -32"),
        ("detector", {"batch": 1.5}, "detector batch must be an integer above 0, not 1.5"),
        ("fault", {"kind": "oom", "at_fraction": 1.0}, "fault at_fraction must be below 1, not 1"),
        ("fault", {"kind": "oom", "when": 1}, "fault: unknown parameter when; known: kind, at_fraction"),
        ("fault", {"kind": "drowned"}, f"fault kind must be one of {', '.join(FAULTS)}, not 'drowned'"),
        ("http_client", {}, "http_client url must be http://host:port, not None"),
        ("http_client", {"url": "https://a"}, "http_client url must be http://host:port, not 'https://a'"),
        ("http_client", {"url": "http://"}, "http_client url must be http://host:port, not 'http://'"),
        ("http_client", {"verb": 1}, f"http_client: unknown parameter verb; known: {', '.join(DEFAULTS)}"),
    ],
)
def test_a_workload_refuses_parameters_in_one_line(module: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        workloads.create(workloads.load_module(module, "cpu"), params, "cpu")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parse", "wrong", "message"),
    [
        (Load.parse, {"arrival": "bursty"}, "load arrival must be one of closed, constant, poisson"),
        (Load.parse, {"arrival": "poisson"}, "load rate_hz"),
        (Load.parse, {"arrival": "constant", "rate_hz": 0}, "load rate_hz"),
        (Load.parse, {"arrival": "poisson", "rate_hz": 1, "queue_limit": 0}, "load queue_limit"),
        (Load.parse, {"arrival": "poisson", "rate_hz": 1, "seed": -1}, "load seed must be an integer from 0"),
        (Load.parse, {"rate": 1}, "load: unknown parameter rate"),
        (Rule.parse, {"min_iterations": 0}, "warmup min_iterations"),
        (Rule.parse, {"max_seconds": "1"}, "warmup max_seconds"),
        (Rule.parse, {"tolerance_percent": -1}, "warmup tolerance_percent"),
        (Rule.parse, {"patience": 1}, "warmup: unknown parameter patience"),
        (Exposition.parse, {"buckets": []}, "must ascend"),
        (Exposition.parse, {"buckets": [0.1, 0.01]}, "must ascend"),
        # Both are nearest to the same bound of the record.
        (Exposition.parse, {"buckets": [0.1, 0.1004]}, "must ascend"),
    ],
)
def test_what_a_tenant_is_asked_is_checked(
    parse: Callable[..., object], wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        parse(wrong)
