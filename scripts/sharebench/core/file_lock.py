"""Exclusive locks on files that several users may share, such as the device locks in /tmp.

The kernel holds the lock (flock), so it ends with its process, however that ends. Read permission is enough to lock a
file. Only the owner of the file writes into it, and only while holding the lock.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODE = 0o644
MAX_HOLDER_BYTES = 1 << 20


class LockError(Exception):
    """The file cannot be used as a lock; one line."""


@dataclass
class FileLock:
    path: Path
    descriptor: int

    @property
    def is_own(self) -> bool:
        return os.fstat(self.descriptor).st_uid == os.getuid()

    @property
    def identity(self) -> str:
        """Device and inode, which a copy of the file does not have."""
        return _identity(os.fstat(self.descriptor))

    def write(self, text: str) -> None:
        """Replace the content of the file if this user owns it. Raises OSError."""
        if self.is_own:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, text.encode(), 0)

    def close(self) -> None:
        """Release the lock, and leave the file as it is."""
        os.close(self.descriptor)


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def identity_at(path: Path) -> str | None:
    """The identity of the file that is at the path now; None without one."""
    with contextlib.suppress(OSError):
        return _identity(path.lstat())
    return None


def acquire(path: Path, on_wait: Callable[[], None] | None = None) -> FileLock | None:
    """Lock the file, created if missing; None while another process holds the lock.

    With `on_wait` this is called and the lock waited for instead. Raises LockError when the file cannot be opened, or
    is not a regular file.
    """
    while True:
        lock = _acquire(path, on_wait)
        # The holder before may have had a file that was removed meanwhile, for which others do not wait.
        if lock is None or lock.identity == identity_at(path):
            return lock
        lock.close()


def _acquire(path: Path, on_wait: Callable[[], None] | None) -> FileLock | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open(path)
    except OSError as error:
        raise LockError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        _check_regular(path, status)
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) != MODE:
            # Other users must be able to lock it, whatever the umask. Some file systems have no modes.
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is None:
                os.close(descriptor)
                return None
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        os.close(descriptor)
        raise LockError(f"{path} cannot be locked: {error.strerror}") from None
    except BaseException:
        os.close(descriptor)
        raise
    return FileLock(path, descriptor)


def _open(path: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        # In a sticky folder the system may refuse O_CREAT without O_EXCL for another user's file.
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, MODE)
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            _check_regular(path, status)
            is_own = status.st_uid == os.getuid()
            try:
                return os.open(path, flags | (os.O_RDWR if is_own else os.O_RDONLY))
            except PermissionError:
                if is_own:
                    raise
                raise LockError(f"{path} is another user's, who has to run: chmod {MODE:o} {path}") from None


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise LockError(f"{path} is not a regular file; remove it")


def read_holder(path: Path) -> dict[str, Any]:
    """The mapping that the holder wrote into the file; empty if it is not one."""
    with contextlib.suppress(OSError, ValueError, RecursionError, LockError):
        # Another user may have put a pipe there.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            _check_regular(path, os.fstat(file.fileno()))
            content = json.loads(file.read(MAX_HOLDER_BYTES))
        return content if isinstance(content, dict) else {}
    return {}
