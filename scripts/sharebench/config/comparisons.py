"""What can be wrong with what a config compares: null cells, declared comparisons, data sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

from sharebench.config.catalogue_models import Strategy
from sharebench.config.models import Config
from sharebench.config.words import shown, unknown


def again_entry(name: str, catalogue: dict[str, Strategy]) -> Iterator[str]:
    """An A/A comparison of two things that are not the same."""
    base = name.removesuffix("-again")
    if base != name:
        one, other = (
            catalogue[each].model_copy(update={"description": ""}) if each in catalogue else None
            for each in (base, name)
        )
        if one != other:
            key = f"strategy_catalogue.{name}"
            yield f"{key}: is not the same as {base!r}, which its name says; make them equal, or choose another name"


def contrasts(config: Config) -> Iterator[str]:
    """Declared comparisons of strategies that nobody knows, or that never have the same number of tenants.

    A strategy that the study leaves out is none of these: a part of a study keeps what the whole is for.
    """
    catalogue = config.strategy_catalogue
    for contrast in config.contrasts:
        pair = contrast.split("/")
        for name in pair:
            if name not in catalogue:
                yield f"contrasts: {shown(contrast)}: {unknown(name, catalogue, 'is not in the catalogue')}"
                return
            if catalogue[name].mechanism == ["sequential"]:
                yield f"contrasts: {shown(contrast)}: {name!r} is a queue, which tables/jobs.csv compares; leave it out"
        if pair[0] == pair[1]:
            yield f"contrasts: {shown(contrast)} compares a strategy with itself; name two"
        one, other = (set(catalogue[name].replicas or config.replicas) for name in pair)
        if not one & other:
            yield f"contrasts: {shown(contrast)}: they never have the same number of tenants; set replicas of both"


def parts(folders: list[str]) -> Iterator[str]:
    """Folders to join in which nothing was measured."""
    for folder in folders:
        if not (Path(folder) / "cells").is_dir():
            yield f"parts: {folder!r} is not the results of a study; it has no cells/"


def datasets(folders: list[str]) -> Iterator[str]:
    """Not two folders or archives to compare."""
    for folder in folders:
        if not Path(folder).is_dir() and not is_zipfile(folder):
            yield f"datasets: {folder!r} is not an existing folder or zip; give the results of a finished study"
    if len({Path(folder).resolve() for folder in folders}) != 2:
        yield f"datasets: {shown(folders)} is one data set; give two, the one before and the one after"
