"""What GPM reports of a GPU that idles, multiplies and copies, and what a reading costs: JSON.

`PYTHONPATH=scripts python tests/gpu/activity.py` needs pynvml, and an interpreter with torch as its argument if it has
none itself.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenant.gpu.nvml import Activity, granted_gpu

SECONDS = 3.0
# Each is repeated in a process of its own until that is ended.
WORK = {
    "matmul": "left, right, out = torch.randn(3, 8192, 8192, dtype=torch.bfloat16, device='cuda')\n"
    "step = lambda: torch.mm(left, right, out=out)",
    "copy": "source, target = torch.empty(2, 1 << 30, dtype=torch.uint8, device='cuda')\n"
    "step = lambda: target.copy_(source)",
}
LOOP = """
import torch
{work}
step(), torch.cuda.synchronize(), print('ready', flush=True)
while True:
    for _ in range(9): step()
    torch.cuda.synchronize()
"""


@contextmanager
def running(python: str, work: str) -> Iterator[None]:
    """The work goes on, in steps that follow each other."""
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
    activity, began = Activity(gpu), time.monotonic()
    activity.read(began)
    time.sleep(SECONDS)
    ended = time.monotonic()
    totals = activity.read(ended)
    assert activity.reason is None, activity.reason
    return {name.removesuffix("_seconds"): 100 * total / (ended - began) for name, total in totals.items()}


def reading_ms(gpu: Any) -> float:
    """Median time that one reading takes, in ms."""
    activity, taken = Activity(gpu), []
    for _ in range(11):
        began = time.monotonic()
        activity.read(began)
        taken.append(time.monotonic() - began)
        activity.settle()
    return 1e3 * statistics.median(taken[1:])


def all_of(gpu: Any, python: str) -> dict[str, Any]:
    """Activity at rest, and of each work; the time of a reading while the last is at work."""
    seen: dict[str, Any] = {"idle": mean_percent(gpu)}
    for name, work in WORK.items():
        with running(python, work):
            seen[name] = mean_percent(gpu)
            seen["reading_ms"] = reading_ms(gpu)
    return seen


if __name__ == "__main__":
    print(json.dumps(all_of(granted_gpu(), (sys.argv[1:] or [sys.executable])[0]), indent=1))
