"""Activity by NVML's GPM on a real GPU, of Hopper or later; half a minute."""

import sys

import pytest
from gpu.activity import all_of

from sharebench.core.capabilities import gpu_python, has_nvidia_gpu
from sharebench.nodes.host.nvml import Gpu
from tenant.gpu.nvml import Activity

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_nvidia_gpu(), reason="no NVIDIA GPU on this host")]


def test_activity_is_that_of_the_work() -> None:
    gpu = Gpu("0").handle
    if (reason := Activity(gpu).reason) is not None:
        pytest.skip(reason)
    seen = all_of(gpu, str(gpu_python("auto") or sys.executable))
    assert seen["idle"] == pytest.approx({"sm_active": 0, "sm_occupancy": 0, "dram_active": 0}, abs=1)
    # 90.05 was seen on an H200.
    assert seen["matmul"]["sm_active"] > 80
    assert 0 < seen["matmul"]["sm_occupancy"] < seen["matmul"]["sm_active"]
    assert seen["copy"]["dram_active"] > 60 > seen["matmul"]["dram_active"]
    assert seen["reading_ms"] < 10
