"""File locks: one user, several users of a host, and other things at the path of a lock."""

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from sharebench.core import file_lock
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.run.ownership import OwnershipError, claim
from sharebench.model import run_record

FORK = multiprocessing.get_context("fork")


class User:
    """Another process that takes and releases locks on request, as the user `uid` if given."""

    def __init__(self, folder: Path, uid: int | None = None) -> None:
        self.results = folder / f"results-{uid}"
        self.driver_end, user_end = FORK.Pipe()
        self.process = FORK.Process(target=self._act, args=(user_end, uid), daemon=True)
        self.process.start()

    def _act(self, asked: Connection, uid: int | None) -> None:
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            # This interpreter may be out of another user's reach; a guard has nothing to do here.
            sys.executable = "/bin/true"
        os.umask(0o077)
        taken = None
        while True:
            node_lock = asked.recv()
            try:
                if node_lock is None and taken is not None:
                    taken.release()
                else:
                    taken = claim(self.results, {}, node_lock)
                asked.send("done")
            except Exception as error:
                asked.send(f"{type(error).__name__}: {error}")

    def claim(self, node_lock: Path) -> str:
        """Returns `done`, or the error."""
        self.driver_end.send(node_lock)
        return str(self.driver_end.recv())

    def release(self) -> None:
        self.driver_end.send(None)
        assert self.driver_end.recv() == "done"

    def die(self) -> None:
        self.process.kill()
        self.process.join()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like /tmp, which every user may write to."""
    monkeypatch.delenv(RUN_ID_VARIABLE, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture
def user(shared: Path) -> Iterator[Callable[[int | None], User]]:
    """A function that starts a user of the shared folder."""
    started: list[User] = []

    def start(uid: int | None = None) -> User:
        started.append(User(shared, uid))
        return started[-1]

    yield start
    for each in started:
        each.die()


@pytest.fixture
def users(user: Callable[[int | None], User]) -> tuple[User, User]:
    if os.getuid() != 0:
        pytest.skip("only root can be two users")
    return user(12345), user(12346)


@pytest.mark.root
def test_another_user_can_lock_a_released_lock(shared: Path, users: tuple[User, User]) -> None:
    first, second = users
    lock = shared / "node.lock"
    for one in (first, second, first):
        assert one.claim(lock) == "done"
        one.release()
    assert lock.stat().st_uid == 12345


@pytest.mark.root
def test_a_refusal_names_the_run_of_another_user(shared: Path, users: tuple[User, User]) -> None:
    first, second = users
    lock = shared / "node.lock"
    assert first.claim(lock) == "done"
    run_id = json.loads(lock.read_text())["run_id"]
    refused = second.claim(lock)
    assert f"the node is in use by run {run_id} (process {first.process.pid}, started " in refused


@pytest.mark.root
def test_a_refusal_names_the_owner_of_an_unreadable_lock(shared: Path, users: tuple[User, User]) -> None:
    lock = shared / "node.lock"
    lock.touch(0o600)
    os.chown(lock, 12345, 12345)
    assert users[1].claim(lock).endswith(f"is another user's, who has to run: chmod 644 {lock}")
    assert users[0].claim(lock) == "done"
    users[0].release()
    assert users[1].claim(lock) == "done", "its owner has made it readable by using it"


def test_a_lock_is_world_readable_whatever_the_umask(shared: Path, user: Callable[[int | None], User]) -> None:
    assert user(None).claim(shared / "node.lock") == "done"
    assert (shared / "node.lock").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "content", [b"{half a record", b"[1]", b"7", b"\xff\xfe\x00", b'{"run_id": [1], "pid": {}}', b"[" * 100_000, b""]
)
def test_a_free_lock_with_damaged_content_is_taken(tmp_path: Path, content: bytes) -> None:
    lock = run_record.state_folder(tmp_path) / "lock"
    lock.parent.mkdir(parents=True)
    lock.write_bytes(content)
    mine = claim(tmp_path, {})
    assert json.loads(lock.read_text())["run_id"] == mine.run_id
    mine.release()


def test_a_refusal_names_only_a_well_formed_run_of_a_living_process(tmp_path: Path) -> None:
    mine = claim(tmp_path, {})
    lock = run_record.state_folder(tmp_path) / "lock"
    content: dict[str, Any] = json.loads(lock.read_text())
    gone = 2**22 + 1
    for change in ({"results": "\x1b[2J"}, {"started_epoch_seconds": "noon"}, {"pid": "me"}, {"pid": gone}):
        lock.write_text(json.dumps(content | change))
        with pytest.raises(OwnershipError, match="in use by another run;"):
            claim(tmp_path, {})
    mine.release()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_that_is_not_a_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    lock = run_record.state_folder(tmp_path) / "lock"
    lock.parent.mkdir(parents=True)
    if kind == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(OwnershipError, match="lock is not a regular file; remove it"):
        claim(tmp_path, {})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "nothing", "list"])
def test_a_holder_is_read_from_a_regular_file_only(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    (tmp_path / "elsewhere").write_text('{"pid": 1}')
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "list":
        path.write_text("[1]")
    assert file_lock.read_holder(path) == {}
    assert file_lock.read_holder(tmp_path / "elsewhere") == {"pid": 1}


def test_a_lock_that_was_removed_while_it_was_waited_for_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = file_lock.acquire(path)
    assert first is not None

    def remove() -> None:
        path.unlink()
        first.close()

    second = file_lock.acquire(path, on_wait=remove)
    assert second is not None and second.identity == file_lock.identity_at(path)
    assert file_lock.acquire(path) is None, "all wait for one file"
    second.close()
