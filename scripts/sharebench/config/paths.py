"""What can be wrong with the paths of a config, each problem as one line."""

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

from sharebench.core.files import REPOSITORY
from sharebench.core.study_config import StudyConfig

OWN_FOLDERS = (
    *(".ci", ".git", "benchmarks", "config", "docs", "envs", "examples", "profiles", "published", "rules", "scripts"),
    "tests",
)
"""The repository's own folders, but for results/."""


def problems(config: StudyConfig) -> Iterator[str]:
    """Paths that lead nowhere, or that hold something else."""
    yield from _results(config["results"])
    data = config["from"] and Path(config["from"])
    if data and data.is_file() and not is_zipfile(data):
        yield f"from: {config['from']!r} is not a zip, or a damaged one that lacks its end; get the archive again"
    elif data and not data.exists():
        yield f"from: {config['from']!r} is not an existing folder or zip; give the results of a finished study"


def _results(results: str) -> Iterator[str]:
    """A place for results that is not a folder, or is for something else."""
    folder = Path(results).absolute()
    try:
        resolved = folder.resolve()
    except (OSError, RuntimeError):
        yield f"results: {results!r} is a loop of symbolic links; name another folder, such as results/mine"
        return
    if resolved in (here := Path.cwd().resolve(), *here.parents):
        yield f"results: {results!r} holds more than results; name a folder of its own, such as results/mine"
    for path in (folder, *folder.parents):
        # What is not there yet, or not for us to look at, is for whoever makes the folder.
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(path.stat().st_mode):
                yield f"results: {results!r} cannot be a folder, {path} is a file; name another"
    if any(resolved.is_relative_to(REPOSITORY / name) for name in OWN_FOLDERS):
        yield f"results: {results!r} is in a folder of this repository; name another, such as results/mine"
