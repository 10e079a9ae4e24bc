"""What can be wrong with the paths of a config, each problem as one line."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

from sharebench.core.study_config import StudyConfig


def problems(config: StudyConfig) -> Iterator[str]:
    """Paths that lead nowhere, or that hold something else."""
    if Path(config["results"]).absolute() in (here := Path.cwd(), *here.parents):
        yield f"results: {config['results']!r} holds more than results; name a folder of its own, such as results/mine"
    data = config["from"] and Path(config["from"])
    if data and data.is_file() and not is_zipfile(data):
        yield f"from: {config['from']!r} is not a zip, or a damaged one that lacks its end; get the archive again"
    elif data and not data.exists():
        yield f"from: {config['from']!r} is not an existing folder or zip; give the results of a finished study"
