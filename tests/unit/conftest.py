"""A host without a GPU, and stand-ins for NVIDIA's parts (tests/standins): a mock NVML, the MPS control program."""

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import mock_nvml as mock_nvml_library
import psutil
import pytest
from hypothesis import HealthCheck, settings

from sharebench.measure.nodes.host import mps
from sharebench.model import capabilities
from sharebench.model.config import nodes

# The same examples everywhere, which a slow machine may take its time for.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

STANDINS = Path(__file__).resolve().parents[1] / "standins"


@pytest.fixture(scope="module", autouse=True)
def no_gpu_on_this_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make `node: auto` mean the same on every host; a test that needs a GPU patches one in."""
    nowhere = tmp_path_factory.getbasetemp() / "no-such-device"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "GPU_DEVICE_FILE", nowhere)
        patch.setattr(capabilities, "GPU_PROC_FOLDER", nowhere)
        yield


@pytest.fixture(scope="module", autouse=True)
def two_cores_for_configs() -> Iterator[None]:
    """Make configs with numbers of cores mean the same on every host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "usable_cores", lambda: [0, 1])
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Load the mock in place of the driver's library; returns its folder, for other processes."""
    built = mock_nvml_library.build(tmp_path_factory.mktemp("nvml"))
    # Loading a library of that name again gives the one that is already loaded.
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
    return built.parent


@pytest.fixture
def mock_nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_mps_daemons: None) -> Path:
    """One mock H200; the file is its MIG layout, MIG mode being off until something is written to it."""
    file = tmp_path / "mig" / "layout"
    file.parent.mkdir()
    monkeypatch.setenv("MOCK_GPU_NAME", "NVIDIA H200")
    monkeypatch.setenv("MOCK_MIG_LAYOUT", str(file))
    return file


@pytest.fixture
def own_mps_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides MPS processes that are not the test's own: those of other tests, of a cluster, or of a GPU's user."""
    all_daemons = mps._daemons

    def own_daemons() -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
        return (found for found in all_daemons() if mps._pipe_folder(found[1]).is_relative_to(tmp_path))

    monkeypatch.setattr(mps, "_daemons", own_daemons)


@pytest.fixture
def mps_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_mps_daemons: None) -> Iterator[Path]:
    """The stand-in of the MPS control program on PATH; its processes end with the test."""
    program = tmp_path / "bin" / mps.CONTROL
    program.parent.mkdir()
    # The first line names the interpreter directly, so that the process has the program's name.
    program.write_text((STANDINS / mps.CONTROL).read_text().replace("PYTHON", sys.executable, 1))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for limit in ("COMMAND_SECONDS", "START_SECONDS", "QUIT_SECONDS"):
        # The stand-in starts a Python for every command, which may take long on a busy machine.
        monkeypatch.setattr(mps, limit, 120.0)
    yield program
    mps.kill_leftovers(tmp_path)
