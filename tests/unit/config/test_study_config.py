"""The types of a normalised config agree with the models of its keys."""

import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from pydantic import BaseModel

from sharebench.config.catalogue_models import Job
from sharebench.config.models import Config
from sharebench.core.spec import JobSpec
from sharebench.core.study_config import StudyConfig


def bare(annotation: Any) -> Any:
    """Without what pydantic checks beyond the type."""
    return bare(get_args(annotation)[0]) if get_origin(annotation) in (Annotated, NotRequired) else annotation


def admits(hint: Any, annotation: Any) -> bool:
    """Whether every value of the model's annotation, made plain, is one of the hint."""
    hint, annotation = bare(hint), bare(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return all(admits(hint, each) for each in get_args(annotation))
    if get_origin(hint) in (Union, types.UnionType):
        return any(admits(each, annotation) for each in get_args(hint))
    if get_origin(annotation) is Literal:
        return hint is str or set(get_args(annotation)) <= set(get_args(hint))
    if get_origin(annotation) in (list, dict):
        is_same = get_origin(hint) is get_origin(annotation)
        return is_same and all(map(admits, get_args(hint), get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return is_typeddict(hint) and agrees(hint, annotation)
    return hint is object or bool(hint is annotation)


def agrees(typed: Any, model: type[BaseModel]) -> bool:
    """Fails with the first key that the two do not have in common, or whose types differ."""
    hints = get_type_hints(typed, include_extras=True)
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert hints.keys() == fields.keys(), typed
    for key, field in fields.items():
        assert admits(hints[key], field.annotation), f"{typed.__name__}.{key}: {hints[key]}, not {field.annotation}"
    return True


def test_the_types_are_those_of_the_models() -> None:
    assert agrees(StudyConfig, Config)


@pytest.mark.parametrize("changed", [{"iterations": int}, {"iterations": str, "max_seconds": float}])
def test_another_key_or_type_would_be_noticed(changed: dict[str, type]) -> None:
    agrees(JobSpec, Job)
    other = type("Other", (), {"__annotations__": changed})
    with pytest.raises(AssertionError):
        agrees(other, Job)
