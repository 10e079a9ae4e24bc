"""What can be wrong with the paths of a config, each problem as one line."""

import os
from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

from sharebench.core.study_config import StudyConfig


def problems(config: StudyConfig) -> Iterator[str]:
    """Paths that lead nowhere, or that hold something else."""
    results = Path(os.path.realpath(config["results"]))
    if results in (here := Path.cwd(), *here.parents):
        yield f"results: {config['results']!r} holds more than results; name a folder of its own, such as results/mine"
    # Unlike Path.is_file, false for what is not for us to look at.
    if any(map(os.path.isfile, (results, *results.parents))):
        yield f"results: {config['results']!r} is a file, or in one; name a folder, such as results/mine"
    data = config["from"] and Path(config["from"])
    if data and data.is_file() and not is_zipfile(data):
        yield f"from: {config['from']!r} is not a zip, or a damaged one that lacks its end; get the archive again"
    elif data and not data.exists():
        yield f"from: {config['from']!r} is not an existing folder or zip; give the results of a finished study"
