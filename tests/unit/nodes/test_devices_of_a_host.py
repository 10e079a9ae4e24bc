"""The GPUs of a host as devices that measure at the same time."""

import pytest

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.measure.nodes.host.nvml import Gpu

pytestmark = pytest.mark.usefixtures("mock_nvml")


def test_the_gpus_of_a_host_are_devices_with_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_GPUS", "2")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    every = NvidiaNode.devices({"gpu": "all", "python": "auto", "may_change": []})
    assert [each.options for each in every] == [
        {"gpu": Gpu(index).uuid, "python": "auto", "may_change": []} for index in ("0", "1")
    ]
    first, second = (each.cores or [] for each in every)
    assert sorted(first + second) == [0, 1, 2, 3] and len(first) == 2
    assert NvidiaNode.devices({"gpu": ["1"], "python": "auto", "may_change": []})[0].options == every[1].options
    with pytest.raises(NodeError, match=r"there is no GPU 7; this host has 2"):
        NvidiaNode.devices({"gpu": ["1", "7"], "python": "auto", "may_change": []})


def test_fewer_cores_than_gpus_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_GPUS", "2")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    found = NvidiaNode.devices({"gpu": "all", "python": "auto", "may_change": []})
    assert [each.cores for each in found] == [None, None]
