"""The tables that lie ready in a published data set, compared with what the code makes of its records now."""

import csv
import hashlib
import io
import math
from itertools import chain
from pathlib import Path

from sharebench.datasets import archive, publish

ROUNDING = 1e-9
"""Relative. Python 3.12 adds numbers up more exactly than 3.11 does, and processors differ in the last digits."""


def files(folder: Path, made: Path) -> dict[str, str]:
    """The ready tables of the data set in `folder` by those in `made`, and its checksums with theirs, by path in it.

    A table that differs by rounding only is the one that is there. A folder without checksums was not published, and
    has none.
    """
    checksums = folder / archive.CHECKSUMS
    if not checksums.is_file():
        return {}
    tables = {}
    for name in publish.READY_TABLES:
        there = (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""
        now = (made / name).read_text(encoding="utf-8")
        tables[name] = there if _is_same(there, now) else now
    lines = (line.partition("  ") for line in checksums.read_text(encoding="utf-8").splitlines())
    sums = {name: digest for digest, _, name in lines}
    sums |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in tables.items()}
    listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    return tables | {archive.CHECKSUMS: listed}


def _is_same(there: str, made: str) -> bool:
    if there == made:
        return True
    before, now = (list(csv.reader(io.StringIO(text))) for text in (there, made))
    if list(map(len, before)) != list(map(len, now)):
        return False
    pairs = zip(chain(*before), chain(*now), strict=True)
    return all(old == new or _is_close(old, new) for old, new in pairs)


def _is_close(old: str, new: str) -> bool:
    try:
        return math.isclose(float(old), float(new), rel_tol=ROUNDING)
    except ValueError:
        return False
