"""The mock NVML as a shared library, for NVIDIA's programs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "standins" / "mocknvml.c"
SONAME = "libnvidia-ml.so.1"
NOT_SUPPORTED = 3


def missing_functions(programs: list[Path]) -> list[str]:
    """NVML functions that the programs link against and the mock lacks."""
    undefined: set[str] = set()
    for program in programs:
        symbols = subprocess.run(
            ["nm", "--dynamic", "--undefined-only", str(program)], capture_output=True, text=True, check=True
        ).stdout
        undefined.update(re.findall(r" U (nvml\w+)", symbols))
    return sorted(undefined - set(re.findall(r"\b(nvml[A-Z]\w*)\(", SOURCE.read_text())))


def build(folder: Path, programs: list[Path]) -> Path:
    """Build the library in `folder`. Functions that the mock lacks return "not supported"."""
    stubs, library = folder / "stubs.c", folder / SONAME
    missing = missing_functions(programs)
    stubs.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in missing))
    shared = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-s", f"-Wl,-soname,{SONAME}"]
    subprocess.run([*shared, "-o", str(library), str(SOURCE), str(stubs), "-lpthread"], check=True)
    return library
