import os
import subprocess
import sys
import time

import numpy as np

from tenant.usage import CpuMeter, peak_resident_bytes

from .conftest import SCRIPTS


def test_the_meter_counts_the_cpu_time_of_this_process() -> None:
    meter = CpuMeter()
    before = meter.read()
    begin = time.process_time()
    while time.process_time() < begin + 0.05:
        pass
    after = meter.read()
    assert 0.05 <= after.cpu_seconds - before.cpu_seconds < 5
    if after.run_queue_seconds is not None and before.run_queue_seconds is not None:
        assert after.run_queue_seconds >= before.run_queue_seconds


def test_peak_memory_is_of_this_process_and_not_of_its_parent() -> None:
    ballast = np.ones(30_000_000)
    assert (peak_resident_bytes() or 0) > ballast.nbytes
    code = "from tenant.usage import peak_resident_bytes; print(peak_resident_bytes())"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    child = int(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))
    assert 2**20 < child < ballast.nbytes
