"""The refusal of a job that reads results which are not there."""

from pathlib import Path

from sharebench.core.files import Refusal


class NoResults(Refusal):
    """There are no finished results to read; `error` is that of the first missing file."""

    def __init__(self, root: Path, error: OSError) -> None:
        super().__init__(f"no finished results in {root} ({error.filename} is missing); measure first")
