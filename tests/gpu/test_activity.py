"""Activity from NVML's GPM on a real GPU (Hopper or later): idle, multiplying and copying; takes half a minute."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sharebench.measure.nodes.host.nvml import Gpu
from sharebench.model.capabilities import has_nvidia_gpu
from sharebench.model.gpu_python import gpu_python
from tenant.gpu.nvml import ActivityCounters

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_nvidia_gpu(), reason="no NVIDIA GPU on this host")]

SECONDS = 3.0
MATMUL = (
    "left, right, out = torch.randn(3, 8192, 8192, dtype=torch.bfloat16, device='cuda')\n"
    "step = lambda: torch.mm(left, right, out=out)"
)
COPY = "source, target = torch.empty(2, 1 << 30, dtype=torch.uint8, device='cuda')\nstep = lambda: target.copy_(source)"
LOOP = """
import torch
{work}
step(), torch.cuda.synchronize(), print('ready', flush=True)
while True:
    for _ in range(9): step()
    torch.cuda.synchronize()
"""


@contextmanager
def running(work: str) -> Iterator[None]:
    """Run the work in a separate process."""
    python = str(gpu_python("auto") or sys.executable)
    process = subprocess.Popen([python, "-c", LOOP.format(work=work)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()


def mean_percent(gpu: Any) -> dict[str, float]:
    """Mean activity from now on."""
    activity, began = ActivityCounters(gpu), time.monotonic()
    activity.read(began)
    time.sleep(SECONDS)
    ended = time.monotonic()
    totals = activity.read(ended)
    assert activity.reason is None, activity.reason
    return {name.removesuffix("_seconds"): 100 * total / (ended - began) for name, total in totals.items()}


def reading_ms(gpu: Any) -> float:
    """Median duration of one reading, in ms."""
    activity, taken = ActivityCounters(gpu), []
    for _ in range(11):
        began = time.monotonic()
        activity.read(began)
        taken.append(time.monotonic() - began)
        activity.wait_for_next()
    return 1e3 * statistics.median(taken[1:])


def test_activity_matches_the_work() -> None:
    gpu = Gpu("0").handle
    if (reason := ActivityCounters(gpu).reason) is not None:
        pytest.skip(reason)
    assert mean_percent(gpu) == pytest.approx({"sm_active": 0, "sm_occupancy": 0, "dram_active": 0}, abs=1)
    with running(MATMUL):
        matmul = mean_percent(gpu)
    with running(COPY):
        copy, cost_ms = mean_percent(gpu), reading_ms(gpu)
    # 90.05 was seen on an H200.
    assert matmul["sm_active"] > 80
    assert 0 < matmul["sm_occupancy"] < matmul["sm_active"]
    assert copy["dram_active"] > 60 > matmul["dram_active"]
    assert cost_ms < 10
