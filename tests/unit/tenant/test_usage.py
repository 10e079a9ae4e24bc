import os
import subprocess
import sys

import numpy as np

from tenant.usage import peak_resident_bytes

from .conftest import SCRIPTS


def test_peak_memory_does_not_include_the_parents() -> None:
    ballast = np.ones(30_000_000)
    assert (peak_resident_bytes() or 0) > ballast.nbytes
    code = "from tenant.usage import peak_resident_bytes; print(peak_resident_bytes())"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    child = int(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))
    assert 2**20 < child < ballast.nbytes
