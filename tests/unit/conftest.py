"""A host without a GPU, and stand-ins of NVIDIA's parts (tests/standins): a mock NVML, the MPS control program."""

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import mock_nvml as mock_nvml_library
import psutil
import pytest

from sharebench.config import nodes
from sharebench.core import capabilities
from sharebench.nodes.host import mps

STANDINS = Path(__file__).resolve().parents[1] / "standins"


@pytest.fixture(scope="module", autouse=True)
def no_gpu_on_this_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`node: auto` means the same on every host; a test shows a GPU where it needs one."""
    nowhere = tmp_path_factory.getbasetemp() / "no-such-device"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "GPU_DEVICE_FILE", nowhere)
        patch.setattr(capabilities, "GPU_PROC_FOLDER", nowhere)
        yield


@pytest.fixture(scope="module", autouse=True)
def two_cores_for_configs() -> Iterator[None]:
    """A config with numbers of cores means the same on every host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "usable_cores", lambda: [0, 1])
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mock in place of the driver's library, for this process; the folder that it is in, for others."""
    built = mock_nvml_library.build(tmp_path_factory.mktemp("nvml"))
    # A library of that name is then loaded, and asking for it again gives the same one.
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
    return built.parent


@pytest.fixture
def mock_nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One mock H200; the file is its MIG layout, MIG mode being off until something is written to it."""
    file = tmp_path / "mig" / "layout"
    file.parent.mkdir()
    monkeypatch.setenv("MOCK_GPU_NAME", "NVIDIA H200")
    monkeypatch.setenv("MOCK_MIG_LAYOUT", str(file))
    return file


@pytest.fixture
def mps_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The MPS control program's stand-in on PATH; what a test leaves running under its folder ends with it.

    MPS processes of this machine that are not the test's own are not seen: a GPU's, a cluster's of tests/cluster.
    """
    program = tmp_path / "bin" / mps.CONTROL
    program.parent.mkdir()
    # Named directly in the first line, so that the process bears the program's name.
    program.write_text((STANDINS / mps.CONTROL).read_text().replace("PYTHON", sys.executable, 1))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for limit in ("COMMAND_SECONDS", "START_SECONDS", "QUIT_SECONDS"):
        # The stand-in is a Python that starts for every question, on however busy a machine.
        monkeypatch.setattr(mps, limit, 120.0)
    on_this_machine = mps._daemons

    def of_this_test() -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
        return (found for found in on_this_machine() if mps._pipe_folder(found[1]).is_relative_to(tmp_path))

    monkeypatch.setattr(mps, "_daemons", of_this_test)
    yield program
    mps.kill_leftovers(tmp_path)
