import pytest

from tenant import workloads
from tenant.contract import FAULTS
from tenant.parameters import ParameterError, with_defaults
from tenant.workloads.http_client import DEFAULTS

ALL = {"size": 1, "rate": 0.5, "graph": False, "dtype": ("float32", "float64"), "path": "/", "any": None}


def test_given_values_replace_defaults() -> None:
    completed = with_defaults({"rate": 2, "dtype": "float64", "any": [3]}, ALL, "thing")
    assert completed == {"size": 1, "rate": 2, "graph": False, "dtype": "float64", "path": "/", "any": [3]}
    assert list(completed) == list(ALL)


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("size", [0, -1, True, 1.5, "7", None, [1]], "an integer above 0"),
        ("rate", [0, -1, True, "7", None, float("nan"), float("inf")], "a number above 0"),
        ("graph", [1, "true", None], "true or false"),
        ("dtype", ["int7", None, 3], "one of float32, float64"),
        ("path", [3, None], "text"),
    ],
)
def test_a_value_must_have_the_type_of_its_default(name: str, values: list[object], line: str) -> None:
    for value in values:
        with pytest.raises(ParameterError) as caught:
            with_defaults({name: value}, ALL, "thing")
        assert str(caught.value) == f"thing {name} must be {line}, not {value!r}"


@pytest.mark.parametrize(
    ("module", "params", "message"),
    [
        ("matmul", {"sizes": 3}, "matmul: unknown parameter sizes; known: size, dtype, graph"),
        ("matmul", {"graph": True}, "matmul graph: true needs device cuda, not cpu"),
        ("empty", {"size": 3}, "empty: unknown parameter size; known: none"),
        ("matmul", {"dtype": "float16"}, "matmul dtype must be one of float32, float64, not 'float16'"),
        ("detector", {"width": 100}, "detector width must be a multiple of 32, not 100"),
        ("fault", {"kind": "oom", "at_fraction": 1.0}, "fault at_fraction must be below 1, not 1"),
        ("fault", {"kind": "drowned"}, f"fault kind must be one of {', '.join(FAULTS)}, not 'drowned'"),
        ("http_client", {"verb": 1}, f"http_client: unknown parameter verb; known: {', '.join(DEFAULTS)}"),
    ],
)
def test_a_workload_refuses_wrong_parameters_in_one_line(module: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        workloads.create(workloads.load_module(module, "cpu"), params, "cpu")
    assert str(caught.value) == message
