"""Facts about the host's CPU, read from a fake /proc and /sys."""

from pathlib import Path

import psutil
import pytest

from sharebench.measure.nodes.host import host_cpu

CPU = "sys/devices/system/cpu"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_cpu, "ROOT", tmp_path)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


def test_facts_of_the_host(root: Path) -> None:
    write(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some  CPU   @ 2.00GHz\ncpu MHz\t: 1999.1")
    for number in range(4):
        write(root, f"{CPU}/cpu{number}/cpufreq/scaling_governor", "powersave" if number else "performance")
        write(root, f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq", str(3_500_000 + number))
    facts = host_cpu.facts()
    assert (facts["cpu"], facts["cpu_governor"]) == ("Some CPU @ 2.00GHz", "performance and powersave")
    assert (facts["cpu_threads"], facts["cpu_mhz_max"]) == (psutil.cpu_count(), 3500)


def test_facts_that_a_virtual_machine_lacks_are_null(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cpu.platform, "processor", lambda: "")
    monkeypatch.setattr(host_cpu.platform, "machine", lambda: "arm64")
    facts = host_cpu.facts()
    assert (facts["cpu"], facts["cpu_governor"], facts["cpu_mhz_max"]) == ("arm64", None, None)


def machine(root: Path, packages: int, cores: int, threads: int) -> list[int]:
    """CPU numbers of a host on which the second threads of all cores come last, as on most servers."""
    total = packages * cores
    for number in range(total * threads):
        write(root, f"{CPU}/cpu{number}/topology/physical_package_id", str(number % total // cores))
        write(root, f"{CPU}/cpu{number}/topology/core_id", str(number % cores))
    return list(range(total * threads))


def test_devices_share_the_cores_on_their_side(root: Path) -> None:
    cores = machine(root, packages=2, cores=4, threads=2)
    first, second = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    assert host_cpu.split_cores(cores, [first, second]) == [first, second]
    assert host_cpu.split_cores(cores, [second, first, first]) == [second, [0, 1, 8, 9], [2, 3, 10, 11]]


@pytest.mark.parametrize("near", [[None] * 3, [[0, 1, 2, 3], None, None], [[90], [91], None]])
def test_parts_are_disjoint_and_keep_threads_of_a_core_together(root: Path, near: list[list[int] | None]) -> None:
    found = host_cpu.split_cores(machine(root, packages=1, cores=8, threads=2), near)
    assert sorted(core for part in found for core in part) == list(range(16))
    assert sorted(map(len, found)) == [4, 6, 6]
    assert all({core % 8 for core in part if core < 8} == {core % 8 for core in part if core >= 8} for part in found)


def test_more_devices_than_cores_have_empty_parts(root: Path) -> None:
    assert sorted(map(len, host_cpu.split_cores([0, 1], [None] * 3))) == [0, 1, 1]


def test_a_host_is_identified_by_its_gpus_and_its_cpu_and_its_boot_by_the_boot_id(root: Path) -> None:
    write(root, "proc/cpuinfo", "model name\t: Some CPU")
    write(root, "proc/sys/kernel/random/boot_id", "boot-1")
    machine(root, packages=2, cores=4, threads=1)
    for number in range(2):
        (root / f"sys/devices/system/node/node{number}").mkdir(parents=True)
    first = host_cpu.host_facts(["GPU-1", "GPU-2"])
    assert first == host_cpu.host_facts(["GPU-2", "GPU-1"])
    assert first["cpu"] == "Some CPU"
    assert first["topology"] is not None
    assert first["topology"].startswith("2 sockets, ") and first["topology"].endswith(" threads, 2 NUMA nodes, 2 GPUs")
    assert "GPU-" not in str(first) and "boot-1" not in str(first)
    assert first["machine"] != host_cpu.host_facts(["GPU-1"])["machine"], "a part of a chassis is a machine of its own"
    write(root, "proc/sys/kernel/random/boot_id", "boot-2")
    later = host_cpu.host_facts(["GPU-1", "GPU-2"])
    assert later["machine"] == first["machine"] and later["boot"] != first["boot"]
    write(root, "proc/cpuinfo", "model name\t: Another CPU")
    assert host_cpu.host_facts(["GPU-1", "GPU-2"])["machine"] != first["machine"]


def test_a_host_without_gpus_is_identified_by_its_machine_id(root: Path) -> None:
    write(root, "proc/cpuinfo", "model name\t: Some CPU")
    found = []
    for name in ("a", "b", "a"):
        write(root, "etc/machine-id", name)
        found.append(host_cpu.host_facts()["machine"])
    assert found[0] == found[2] != found[1]
    assert host_cpu.host_facts()["boot"] is None, "it has no boot id"
