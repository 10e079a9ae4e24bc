"""Compares the ready tables of a published data set with those that the code makes from its records today."""

import csv
import hashlib
import io
import math
from itertools import chain
from pathlib import Path

from sharebench.datasets import archive, publish

ROUNDING = 1e-9
"""Relative tolerance. Python 3.12 sums more exactly than 3.11, and processors differ in the last digits."""


def ready_files(folder: Path, rebuilt: Path) -> dict[str, str]:
    """The ready tables that `folder` should have, from those in `rebuilt`, and its checksums, by path in the folder.

    A table that differs only by rounding stays as it is. A folder without checksums was not published and has none.
    """
    if (sums := archive.read_checksums(folder)) is None:
        return {}
    tables = {}
    made = [name for name in publish.READY_WHERE_MADE if (rebuilt / name).is_file()]
    for name in (*publish.READY_TABLES, *made):
        present = (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""
        now = (rebuilt / name).read_text(encoding="utf-8")
        tables[name] = present if _is_same(present, now) else now
    now_sums = {**sums, **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in tables.items()}}
    return tables | {
        archive.CHECKSUMS: "".join(archive.checksum_line(now_sums[name], name) for name in sorted(now_sums))
    }


def _is_same(old_text: str, new_text: str) -> bool:
    if old_text == new_text:
        return True
    before, now = (list(csv.reader(io.StringIO(text))) for text in (old_text, new_text))
    if list(map(len, before)) != list(map(len, now)):
        return False
    pairs = zip(chain(*before), chain(*now), strict=True)
    return all(old == new or _is_close(old, new) for old, new in pairs)


def _is_close(old: str, new: str) -> bool:
    try:
        return math.isclose(float(old), float(new), rel_tol=ROUNDING)
    except ValueError:
        return False
