"""Files that are written whole or not at all."""

import contextlib
import json
import os
import shlex
import sysconfig
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2]
# A wheel installs what it reads of a checkout there (pyproject.toml).
INSTALLED = Path(sysconfig.get_path("data")) / "share" / "sharebench"
REPOSITORY = SCRIPTS.parent if (SCRIPTS.parent / "Snakefile").is_file() else INSTALLED


class Refusal(Exception):
    """A request that cannot be carried out; the message is for people and names the remedy."""


class DamagedFile(Refusal):
    """A damaged file of the pipeline; the message is one line with the command that repairs it."""

    def __init__(self, path: Path, problem: object) -> None:
        line, quoted = " ".join(str(problem).split()), shlex.quote(str(path))
        super().__init__(f"{path}: damaged ({line}); remove it, and the next run writes a new one: rm {quoted}")


def replace_atomically(path: Path, content: str | bytes) -> None:
    """Write the file so that readers see either the old or the new content, after a power cut the new one.

    Raises OSError, such as for a full disk; then the old file is untouched and no temporary file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is fixed, so that the next attempt removes the leftover of a killed process.
    temporary = path.with_name(f".{path.name}.part")
    try:
        # Never through a link that another user has put there.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Write the folder's entries to the disk, where the file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file for people and programs, atomically."""
    replace_atomically(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """The value in a JSON file, with `keys` a mapping that has them. Raises DamagedFile, OSError."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise DamagedFile(path, error) from None
    except RecursionError:
        raise DamagedFile(path, "nested too deeply") from None
    if keys:
        missing = [key for key in keys if not isinstance(value, dict) or key not in value]
        if missing:
            raise DamagedFile(path, f"has no {missing[0]}")
    return value
