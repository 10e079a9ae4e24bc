"""Finished studies, made once and copied for every test."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline.harness import Checkout, end, make_checkout


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a parallel test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "pipeline"
    folder.mkdir(exist_ok=True)
    return folder


def built_once(shared: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The folder that `build` fills, by whichever worker comes first."""
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            building = shared / f"{name}.building"
            shutil.rmtree(building, ignore_errors=True)
            build(building)
            building.rename(folder)
    return folder


@pytest.fixture(scope="session")
def untouched_template(shared: Path) -> Path:
    """A checkout in which nothing has run."""
    return built_once(shared, "untouched", make_checkout)


def finished_study(shared: Path, untouched: Path, study: str) -> Path:
    def build(folder: Path) -> None:
        shutil.copytree(untouched, folder)
        checkout = Checkout(folder, study)
        checkout.run().ok()
        end(checkout.processes())
        shutil.rmtree(folder / "tmp")
        (folder / "tmp").mkdir()

    return built_once(shared, study.removesuffix(".yaml"), build)


@pytest.fixture(scope="session")
def simulated_template(shared: Path, untouched_template: Path) -> Path:
    """A finished run of the simulated study."""
    return finished_study(shared, untouched_template, "simulated.yaml")


@pytest.fixture(scope="session")
def cpu_template(shared: Path, untouched_template: Path) -> Path:
    """A finished run of the study on the stand-in."""
    return finished_study(shared, untouched_template, "cpu.yaml")


@pytest.fixture(scope="session")
def mixes_template(shared: Path, untouched_template: Path) -> Path:
    """A finished run of the study of mixes."""
    return finished_study(shared, untouched_template, "mixes.yaml")


def copied(template: Path, target: Path, study: str) -> Iterator[Checkout]:
    shutil.copytree(template, target)
    checkout = Checkout(target, study)
    yield checkout
    left = checkout.processes()
    end(left)
    # Tests that leave processes behind on purpose end them by a next run: that is what they are about.
    assert not left, f"left running: {left}"


@pytest.fixture
def untouched(untouched_template: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout in which nothing has run."""
    yield from copied(untouched_template, tmp_path / "checkout", "simulated.yaml")


@pytest.fixture
def finished(simulated_template: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout with a finished run of the simulated study."""
    yield from copied(simulated_template, tmp_path / "checkout", "simulated.yaml")


@pytest.fixture
def finished_on_cpu(cpu_template: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout with a finished run of the study on the stand-in."""
    yield from copied(cpu_template, tmp_path / "checkout", "cpu.yaml")


@pytest.fixture
def finished_mixes(mixes_template: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout with a finished run of the study of mixes."""
    yield from copied(mixes_template, tmp_path / "checkout", "mixes.yaml")
