"""Samples of the GPU from within a tenant's pod, where the driver of the study cannot look.

`python -m tenant.gpu.telemetry` is a process of its own, so that the tenant never waits for NVML. It reports whether
it can sample, goes on until its standard input closes, and then writes all that it saw.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path

from tenant.contract.gpu import GpuSamples
from tenant.failures import RefusedError

# A folder, or the archive that a pod runs from.
PACKED = Path(__file__).parents[2]
# A driver that is waking up its GPU takes seconds.
START_SECONDS = 15.0
STOP_SECONDS = 10.0


class Sampling:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tenant.gpu.telemetry"],
            env={**os.environ, "PYTHONPATH": str(PACKED)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        has_spoken = select.select([self._process.stdout], [], [], START_SECONDS)[0]
        said = self._process.stdout.readline() if has_spoken else ""
        self.reason: str | None = json.loads(said)["reason"] if said else "the sampler in the pod did not start"
        """Why nothing is sampled; None while it is."""
        if self.reason is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> GpuSamples:
        """Stop sampling. Raises RefusedError when the process gives no answer."""
        try:
            text, _ = self._process.communicate("\n", timeout=STOP_SECONDS)
            answer: GpuSamples = json.loads(text)
            return answer
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.wait()
            raise RefusedError("the sampler in the pod gave no answer") from None


def _answer(document: GpuSamples | dict[str, str | None]) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(document), flush=True)


def main() -> None:
    """Sample until standard input closes, or answer with the reason why not."""
    # Not above: the tenant, which imports this module too, would hold NVML's package in its memory.
    from tenant.gpu.nvml import ActivityCounters, NvmlError, gpu_samples, granted_gpu

    try:
        gpu = granted_gpu()
    except NvmlError as error:
        _answer({"reason": str(error)})
        return
    activity = ActivityCounters(gpu)
    readings = gpu_samples(gpu, activity)
    first = next(readings)
    _answer({"reason": None})
    _answer({"samples": [first, *readings], "activity_reason": activity.reason})


if __name__ == "__main__":
    main()
