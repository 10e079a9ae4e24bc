"""A GPU through NVML, and its MIG layout, on a mock NVML (tests/standins) with an H200's geometry."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import mig
from sharebench.measure.nodes.host.nvml import Gpu
from sharebench.model.strategy import profile_matches

pytestmark = pytest.mark.usefixtures("mock_nvml")


def test_facts_of_a_whole_gpu() -> None:
    gpu = Gpu("0")
    facts = gpu.facts()
    assert (gpu.product, gpu.sm_count) == ("NVIDIA H200", 132)
    assert (facts["cuda"], facts["compute_capability"], facts["mig_mode"]) == ("12.8", "9.0", "off")
    # The mock knows no power and no clocks, as some virtual machines do not.
    assert facts["power_limit_watts"] is None and facts["sm_clock_max_mhz"] is None


@pytest.mark.parametrize("which", ["7", "GPU-none"])
def test_a_missing_gpu_is_reported_in_one_line(which: str) -> None:
    with pytest.raises(NodeError, match=f"no GPU {which}; this host has 1"):
        Gpu(which)


def test_existing_instances_are_listed(mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 3g.71gb@0 1g.18gb@6 1g.18gb@5-\n")
    found = Gpu("0").instances()
    # A GPU instance without its compute instance makes no device.
    assert sorted((each.profile, each.sm_count) for each in found) == [("1g.18gb", 16), ("3g.71gb", 60)]


def test_processes_are_listed_once_with_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "processes"
    file.write_text("compute 641 66\nmps 644 710\ngraphics 9 8\n")
    monkeypatch.setenv("MOCK_PROCESSES", str(file))
    kinds = {each.pid: each.kind for each in Gpu("0").occupants()}
    assert kinds == {641: "compute", 644: "mps", 9: "graphics"}


def test_an_mps_client_of_another_gpu_is_not_on_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "processes").write_text("mps 644 710\n")
    monkeypatch.setenv("MOCK_PROCESSES", str(file))
    gpu, here = Gpu("0"), pynvml.nvmlDeviceGetMPSComputeRunningProcesses
    elsewhere = SimpleNamespace(pid=700, usedGpuMemory=None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMPSComputeRunningProcesses", lambda handle: [*here(handle), elsewhere])
    assert [each.pid for each in gpu.occupants()] == [644]


@pytest.mark.parametrize(
    "name, wanted, matches",
    [
        ("1g.18gb", "1g", True),
        ("1g.18gb", "1g.18gb", True),
        ("1g.18gb+me", "1g", False),
        ("1g.18gb+me", "1g.18gb+me", True),
        ("1g.35gb", "1g.18gb", False),
        ("3g.71gb", "1g", False),
        ("1g.24gb-me", "1g", False),
        ("1g.24gb-me", "1g.24gb-me", True),
        ("1g.24gb-me", "1g.24gb", False),
        ("1g.24gb+me.all", "1g", False),
        ("1g.24gb+gfx", "1g", False),
        ("1c.3g.20gb", "3g", False),
    ],
)
def test_profile_names_match_without_their_suffix(name: str, wanted: str, matches: bool) -> None:
    assert profile_matches(name, wanted) is matches


@pytest.mark.parametrize("wanted, name, count", [("1g", "1g.18gb", 7), ("3g", "3g.71gb", 2), ("1g.35gb", "1g.35gb", 4)])
def test_partitioning_creates_as_many_instances_as_fit(mock_nvml: Path, wanted: str, name: str, count: int) -> None:
    mock_nvml.write_text("gpu 0: 2g.35gb@0\n")
    gpu = Gpu("0")
    assert mig.capacity(gpu, wanted) == count
    mig.partition(gpu, [wanted] * count)
    assert [each.profile for each in gpu.instances()] == [name] * count


@pytest.mark.parametrize(
    "original", ["gpu 0: 1g.18gb@6 2g.35gb@4 3g.71gb@0-", "gpu 0:", "gpu 0: 7g.141gb@0", "gpu 0: 1g.18gb@3 1g.18gb@1"]
)
def test_the_original_layout_is_restored_exactly(mock_nvml: Path, original: str) -> None:
    mock_nvml.write_text(original + "\n")
    gpu = Gpu("0")
    before = mig.layout(gpu)
    mig.partition(gpu, ["1g"])
    assert mig.layout(gpu) != before
    mig.restore(gpu, before)
    assert mig.layout(gpu) == before


def test_an_unknown_profile_changes_nothing(mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 2g.35gb@0\n")
    gpu = Gpu("0")
    before = mig.layout(gpu)
    with pytest.raises(NodeError, match=r"no MIG profile 5g; it has 1g\.18gb"):
        mig.partition(gpu, ["1g", "5g"])
    assert mig.capacity(gpu, "5g") == 0
    assert mig.layout(gpu) == before


def test_a_gpu_in_use_is_reported_in_one_line(mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 2g.35gb@0\n")
    mock_nvml.with_name("layout.busy").touch()
    with pytest.raises(NodeError, match="still using the GPU"):
        mig.partition(Gpu("0"), ["1g"])


def test_a_missing_driver_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError_DriverNotLoaded

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    with pytest.raises(NodeError, match="is the NVIDIA driver loaded"):
        Gpu("0")
