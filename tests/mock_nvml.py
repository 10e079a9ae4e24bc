"""Building the mock of NVML (standins/mocknvml.c)."""

import shutil
import subprocess
from pathlib import Path

import pytest

NVML = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("standins") / "mocknvml.c"


def build(folder: Path) -> Path:
    """Build the library in this folder; skips the test without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler for the mock NVML")
    built = folder / NVML
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{NVML}", "-o", str(built), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True)
    return built
