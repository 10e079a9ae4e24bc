"""What a newcomer's arguments or home folder lack, in one line: Snakemake itself answers some slips with a traceback.

`make run` calls this with its arguments.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sharebench.model.config.files import problems


def cache_problems() -> Iterator[str]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        problem = None if os.access(cache, os.W_OK) else "it cannot be written to"
    except OSError as error:
        problem = error.strerror
    if problem:
        yield f"{cache}: {problem}; Snakemake needs a cache: set XDG_CACHE_HOME to a folder that you can write to"


if __name__ == "__main__":
    found = [*problems(sys.argv[1:], "; targets stand before the options"), *cache_problems()]
    sys.exit("\n".join(found) or None)
