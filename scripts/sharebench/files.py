"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def replace_atomically(path: Path, text: str) -> None:
    """Write the file so that a reader sees the old or the new text, never a part, even after a power cut.

    Raises OSError (a full disk, for one); then the old file is untouched and nothing else is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # One fixed name: what a killed process leaves behind is overwritten by the next attempt.
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file for people and programs, atomically."""
    replace_atomically(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
