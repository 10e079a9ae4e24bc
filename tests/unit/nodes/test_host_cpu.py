"""Facts of the host's CPU, read from a made-up /proc and /sys."""

from pathlib import Path

import pytest

from sharebench.nodes.host import host_cpu

CPU = "sys/devices/system/cpu"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_cpu, "ROOT", tmp_path)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


def test_a_host_of_two_sockets_with_smt_and_a_cpu_that_is_offline(root: Path) -> None:
    write(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some  CPU   @ 2.00GHz\ncpu MHz\t: 1999.1")
    write(root, f"{CPU}/smt/control", "on")
    for number in range(8):
        write(root, f"{CPU}/cpu{number}/topology/physical_package_id", str(number // 4))
        # Cores are counted from 0 in each socket, and two threads share one.
        write(root, f"{CPU}/cpu{number}/topology/core_id", str(number % 4 // 2))
        write(root, f"{CPU}/cpu{number}/cpufreq/scaling_governor", "powersave" if number else "performance")
        write(root, f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq", str(3_500_000 + number))
    (root / f"{CPU}/cpu8").mkdir()
    (root / f"{CPU}/cpuidle").mkdir()
    assert host_cpu.facts() == {
        "cpu": "Some CPU @ 2.00GHz",
        "cpu_sockets": 2,
        "cpu_cores": 4,
        "cpu_threads": 8,
        "cpu_smt": "on",
        "cpu_governor": "performance and powersave",
        "cpu_mhz_max": 3500,
    }


def test_what_a_virtual_machine_does_not_know_is_null(root: Path) -> None:
    write(root, "proc/cpuinfo", "model name\t: Virtual CPU")
    facts = host_cpu.facts()
    assert facts.pop("cpu") == "Virtual CPU"
    assert set(facts.values()) == {None}


def test_a_system_without_proc_has_the_platforms_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cpu.platform, "processor", lambda: "")
    monkeypatch.setattr(host_cpu.platform, "machine", lambda: "arm64")
    assert host_cpu.facts()["cpu"] == "arm64"


def test_nothing_names_the_machine() -> None:
    assert not {"host", "hostname", "serial", "uuid"} & host_cpu.facts().keys()


def machine(root: Path, packages: int, cores: int, threads: int) -> list[int]:
    """Numbers of the CPUs of a host on which the second threads of all cores come last, as on most servers."""
    total = packages * cores
    for number in range(total * threads):
        write(root, f"{CPU}/cpu{number}/topology/physical_package_id", str(number % total // cores))
        write(root, f"{CPU}/cpu{number}/topology/core_id", str(number % cores))
    return list(range(total * threads))


def test_devices_share_the_cores_that_are_near_them(root: Path) -> None:
    cores = machine(root, packages=2, cores=4, threads=2)
    first, second = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    assert host_cpu.parts(cores, [first, second]) == [first, second]
    assert host_cpu.parts(cores, [second, first, first]) == [second, [0, 1, 8, 9], [2, 3, 10, 11]]


@pytest.mark.parametrize("near", [[None] * 3, [[0, 1, 2, 3], None, None], [[90], [91], None]])
def test_parts_are_disjoint_and_keep_threads_of_a_core_together(root: Path, near: list[list[int] | None]) -> None:
    found = host_cpu.parts(machine(root, packages=1, cores=8, threads=2), near)
    assert sorted(core for part in found for core in part) == list(range(16))
    assert sorted(map(len, found)) == [4, 6, 6]
    assert all({core % 8 for core in part if core < 8} == {core % 8 for core in part if core >= 8} for part in found)


def test_more_devices_than_cores_have_empty_parts(root: Path) -> None:
    assert sorted(map(len, host_cpu.parts([0, 1], [None] * 3))) == [0, 1, 1]
