"""The documents that have blocks filled in from the data. Rules ask for them, so this imports nothing heavy."""

import re
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"(<!-- by rule: ([a-z0-9-]+) -->\n)(.*?)(<!-- end of rule -->)", re.DOTALL)
DOCUMENTS = ("README.md", "docs/**/*.md", "published/README.md", "published/*/README.md")


def marked(root: Path) -> Iterator[Path]:
    """The documents of a checkout that have blocks, relative to it."""
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            if BLOCK.search(path.read_text(encoding="utf-8")):
                yield path.relative_to(root)
