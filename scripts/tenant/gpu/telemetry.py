"""Samples of the GPU from within a tenant's pod, where the driver of the study has no access.

`python -m tenant.gpu.telemetry` is a process of its own, so that the tenant never waits for NVML. It prints whether it
can sample, samples until its standard input closes, and then prints all samples.
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

# The folder of this code, or the archive that a pod runs it from.
IMPORT_ROOT = Path(__file__).parents[2]
# A driver that wakes up its GPU takes seconds.
START_SECONDS = 15.0
STOP_SECONDS = 10.0


class GpuSampler:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tenant.gpu.telemetry"],
            env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        is_ready = select.select([self._process.stdout], [], [], START_SECONDS)[0]
        line = self._process.stdout.readline() if is_ready else ""
        self.reason: str | None = json.loads(line)["reason"] if line else "the sampler in the pod did not start"
        """Why the GPU is not sampled; None if it is."""
        if self.reason is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> GpuSamples:
        """Stop sampling and return the samples. Raises RefusedError if the process does not answer."""
        try:
            text, _ = self._process.communicate("\n", timeout=STOP_SECONDS)
            answer: GpuSamples = json.loads(text)
            return answer
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.wait()
            raise RefusedError("the sampler in the pod did not answer") from None


def _print(document: GpuSamples | dict[str, str | None]) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(document), flush=True)


def main() -> None:
    """Sample until standard input closes, or print why that is not possible."""
    # Imported here: the tenant imports this module, too, and must not hold NVML's package in its memory.
    from tenant.gpu.nvml import ActivityCounters, NvmlError, gpu_samples, granted_gpu

    try:
        gpu = granted_gpu()
    except NvmlError as error:
        _print({"reason": str(error)})
        return
    activity = ActivityCounters(gpu)
    readings = gpu_samples(gpu, activity)
    first = next(readings)
    _print({"reason": None})
    _print({"samples": [first, *readings], "activity_reason": activity.reason})


if __name__ == "__main__":
    main()
