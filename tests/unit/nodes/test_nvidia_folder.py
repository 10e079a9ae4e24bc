"""The folder of a GPU on its host: leftovers, planted links, a full disk."""

from pathlib import Path

import pytest
from unit.nodes import test_nvidia_node
from unit.nodes.test_nvidia_node import state

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import mps
from sharebench.measure.nodes.host.nvidia import NvidiaNode

pytestmark = pytest.mark.usefixtures("mock_nvml", "mps_control")
node = test_nvidia_node.node


def test_leftovers_of_a_killed_run_of_another_study_are_swept(
    node: NvidiaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.ensure(state("mps"))
    pid = node._daemons()[0].pid
    assert pid is not None
    (tmp_path / "other").mkdir()
    other = NvidiaNode(node.options, tmp_path / "other")
    other.sweep()
    assert not mps.is_running(pid) and not node.host_folder.exists()


def test_a_planted_link_in_place_of_the_host_folder_is_refused(node: NvidiaNode, tmp_path: Path) -> None:
    precious = tmp_path / "precious" / "mps" / "0"
    precious.mkdir(parents=True)
    node.host_folder.symlink_to(tmp_path / "precious")
    for act in (node.sweep, lambda: node.ensure(state("mps"))):
        with pytest.raises(NodeError, match="is not a folder of this user"):
            act()
    assert precious.is_dir()


def test_a_folder_that_appears_after_the_first_look_is_refused(
    node: NvidiaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()

    def meanwhile(*_: object) -> None:
        node.host_folder.symlink_to(tmp_path / "elsewhere")

    monkeypatch.setattr(mps, "foreign_daemon", meanwhile)
    with pytest.raises(NodeError, match="is not a folder of this user"):
        node.ensure(state("mps"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_restore_works_on_a_full_disk(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.ensure(state("mps"))
    pid = node._daemons()[0].pid
    assert pid is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sharebench.measure.nodes.node.write_json", full)
    with pytest.raises(OSError, match="No space left"):
        node.restore()
    assert not mps.is_running(pid)
