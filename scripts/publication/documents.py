"""Finds the documents with blocks that are filled in from data. The Snakefile imports this, so it stays light."""

import re
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"(<!-- by rule: ([a-z0-9-]+) -->\n)(.*?)(<!-- end of rule -->)", re.DOTALL)
DOCUMENT_PATTERNS = ("README.md", "docs/**/*.md", "published/README.md", "published/*/README.md")


def documents_with_blocks(root: Path) -> Iterator[Path]:
    """Paths of the documents with blocks, relative to the checkout."""
    for pattern in DOCUMENT_PATTERNS:
        for path in sorted(root.glob(pattern)):
            if BLOCK.search(path.read_text(encoding="utf-8")):
                yield path.relative_to(root)
