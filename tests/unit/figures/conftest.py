"""A fabricated study, written once, and the theme of a run's figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.figures import fabricated

from sharebench.read.figures import data, style


@pytest.fixture
def themed() -> Iterator[None]:
    """Use the theme of a run's figures."""
    with style.theme():
        yield


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of the made-up study; read only."""
    return fabricated.write(tmp_path_factory.mktemp("study") / "results")


@pytest.fixture(scope="session")
def study(root: Path) -> data.DrawnStudy:
    """The study, loaded."""
    return data.load_study(root, root)
