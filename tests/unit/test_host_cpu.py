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
