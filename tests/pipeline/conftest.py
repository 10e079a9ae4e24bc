"""Checkouts and finished studies, made once and copied for each test."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pipeline.harness import Checkout, kill_processes, make_checkout

ENDING_SECONDS = 60.0


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a parallel test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "pipeline"
    folder.mkdir(exist_ok=True)
    return folder


def built_once(shared: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The folder that `build` fills; the first worker that needs it builds it."""
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


@pytest.fixture(scope="session")
def place(shared: Path) -> Path:
    """Where a checkout of this worker runs, always the same, so that runs can share imported code (`prefork.py`)."""
    return shared / f"checkout-{os.getpid()}"


def copy_checkout(template: Path, place: Path) -> None:
    """Copy a checkout, and link its byte code, half of its files, which Python never writes in place."""

    def copy(source: str, target: str) -> str:
        if not source.endswith(".pyc"):
            return shutil.copy2(source, target)
        os.link(source, target)
        return target

    shutil.copytree(template, place, copy_function=copy)


def finished_template(shared: Path, untouched: Path, place: Path, study: str) -> Path:
    def build(folder: Path) -> None:
        copy_checkout(untouched, place)
        checkout = Checkout(place, study)
        checkout.save_first_run(checkout.run(cores=4).ok())
        kill_processes(checkout.processes())
        shutil.rmtree(place / "tmp")
        (place / "tmp").mkdir()
        place.rename(folder)

    return built_once(shared, study.removesuffix(".yaml"), build)


def copied(template: Path, place: Path, after: Path, study: str) -> Iterator[Checkout]:
    """A copy of the template, which moves to `after` when its test has ended."""
    copy_checkout(template, place)
    checkout = Checkout(place, study)
    yield checkout
    # On a busy machine the last process of a job may need a moment to end.
    _, left = psutil.wait_procs(checkout.processes(), timeout=ENDING_SECONDS)
    kill_processes(left)
    place.rename(after)
    # A test that leaves processes behind on purpose also asserts that the next run ends them.
    assert not left, f"left running: {left}"


@pytest.fixture
def untouched(untouched_template: Path, place: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout in which nothing has run."""
    yield from copied(untouched_template, place, tmp_path / "checkout", "simulated.yaml")


@pytest.fixture
def second_checkout(untouched_template: Path, place: Path, tmp_path: Path) -> Iterator[Checkout]:
    """Another checkout in which nothing has run."""
    second = place.with_name(f"{place.name}-second")
    yield from copied(untouched_template, second, tmp_path / "second", "simulated.yaml")


def finished_checkout(study: str) -> Callable[..., Iterator[Checkout]]:
    """Define a fixture: a checkout with a finished run of this study."""

    @pytest.fixture
    def checkout(shared: Path, untouched_template: Path, place: Path, tmp_path: Path) -> Iterator[Checkout]:
        template = finished_template(shared, untouched_template, place, study)
        yield from copied(template, place, tmp_path / "checkout", study)

    return checkout


finished = finished_checkout("simulated.yaml")
finished_on_cpu = finished_checkout("cpu.yaml")
finished_mixes = finished_checkout("mixes.yaml")
finished_on_two_devices = finished_checkout("two_simulated.yaml")
