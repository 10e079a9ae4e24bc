"""Recompute the numbers of README.md, docs/which-strategy.md and both READMEs of edition two from the raw records.

Of docs/findings.md it recomputes what benchmarks/recomputed/findings.py lists, of published/h100 and published/h200-two
facts, outcomes, the comparison of editions and exclusions. Nothing here uses this project's code.
`python benchmarks/recompute.py` takes half a minute.
"""

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.recomputed import documents, edition, findings
from benchmarks.recomputed.records import BUCKET_ERROR, ROOT, Expected

BLOCK = re.compile(r"<!-- by rule: ([a-z0-9-]+) -->\n(.*?)<!-- end of rule -->", re.DOTALL)
NUMBER = re.compile("\\d+(?:\u202f\\d{3})*(?:\\.\\d+)?")
LABELS = re.compile(
    r"`[^`]*`|\(?\[[^\]]*\]\([^)]*\)\)?|[¹²³⁴⁵]|NVIDIA H100 80GB HBM3|H[12]00s?|fp\d+|256 x 256|16384 x 16384"
    r"|ResNet-50|[12]/7|7 streams|\(p95 within 50 ms\)|p95|7 tenants|batch 1,|8 billion|[12]00/N|BERT-base"
)
"""Digits in names."""


@cache
def expected_numbers() -> dict[tuple[str, str, str], Expected]:
    """(Document, block, how its line starts) → the numbers of the line, in order; without block only of these lines."""
    return documents.expected_numbers() | findings.expected_numbers()


def read_printed(root: Path, document: str, block: str) -> dict[str, list[str]]:
    """Line of a block, or of the whole document without one, → its numbers."""
    whole = (root / document).read_text(encoding="utf-8")
    text = dict(BLOCK.findall(whole))[block] if block else whole
    return {line: NUMBER.findall(LABELS.sub("", line)) for line in text.splitlines()}


def agrees(wanted: Expected, printed: list[str]) -> bool:
    def same(right: str | float, number: str) -> bool:
        if isinstance(right, str):
            return right == number
        return abs(float(number) / right - 1) < BUCKET_ERROR

    return len(wanted) == len(printed) and all(map(same, wanted, printed))


def find_deviations(root: Path = ROOT) -> tuple[int, list[str]]:
    """How many numbers of the documents in `root` were compared, and what deviates or was recomputed by nothing."""
    wanted, found, count = expected_numbers(), [], 0
    for document, block in dict.fromkeys(key[:2] for key in wanted):
        lines = read_printed(root, document, block)
        starts = [start for *where, start in wanted if where == [document, block]]
        found += [f"{document}, {block}: no line starts with {each}" for each in starts if not _starting(lines, each)]
        for line, numbers in lines.items():
            own = [start for start in starts if line.startswith(start)]
            count += len(numbers) if block or own else 0
            if block and numbers and not own:
                found.append(f"{document}, {block}: nothing recomputes {numbers} of: {line[:60]}")
            for start in own:
                right = wanted[document, block, start]
                if not agrees(right, numbers):
                    found.append(f"{document}, {block}, {start}: printed {numbers}, recomputed {right}")
    for publication in edition.PUBLICATIONS:
        text = (root / edition.document_of(publication)).read_text(encoding="utf-8")
        cells, deviating = edition.find_deviations(publication, dict(BLOCK.findall(text)))
        count, found = count + cells, found + deviating
    return count, found


def _starting(lines: Iterable[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


def main() -> int:
    count, found = find_deviations()
    print(*found, f"{count} numbers, {len(found)} lines deviate", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
