"""The binaries: from the folder SHAREBENCH_TESTBED_BIN, else from the cache, else built from pinned sources.

Every folder below `programs/` is a Go module whose go.mod and go.sum pin what is built. The cache knows a build by the
hash of these files, so that checkouts with other pins live side by side. Programs of one module share its versions, and
so the compiled packages in Go's cache: most of what NVIDIA's programs consist of is part of Kubernetes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import cache, locked

SOURCES = Path(__file__).parent / "programs"
KUBERNETES = "v1.34.4"
SOME_MODULE = "github.com/spf13/cobra"
ATTEMPTS = 3  # at what needs the network
TAGS = "netgo,osusergo,remove_all_sd,enable_kubernetes_sd"  # sd: the ways in which Prometheus finds its targets


@dataclass(frozen=True)
class Program:
    """What is built together.

    folder: its Go module in `programs/`. binaries: names that the build leaves behind. packages: what is built.
    aliases: names under which the one binary is also called. stamps: Go variables set to a version.
    files: name -> (module, path in it) of a file that is taken from the sources. nvml: linked against NVML at run time.
    """

    name: str
    folder: str
    binaries: tuple[str, ...]
    packages: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()
    files: tuple[tuple[str, str, str], ...] = ()
    nvml: bool = False


def _commands(folder: str, *names: str) -> tuple[str, ...]:
    """The packages of a project's commands."""
    return tuple(f"{folder}/{name}" for name in names)


_PLUGIN = ("nvidia-device-plugin", "gpu-feature-discovery", "config-manager", "mps-control-daemon")
_MIG = ("nvidia-mig-parted", "nvidia-mig-manager")
_CONTAINERD = ("containerd", "ctr", "containerd-shim-runc-v2")
KUBE = Program(
    "kube",
    "kubernetes",
    ("kube",),
    (".",),
    aliases=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
    stamps=tuple(
        f"k8s.io/component-base/version.{variable}"
        for variable in (f"gitVersion={KUBERNETES}", "gitMajor=1", f"gitMinor={KUBERNETES.split('.')[1]}")
    ),
)
CONTAINERD = Program(
    "containerd",
    "containerd",
    _CONTAINERD,
    _commands("github.com/containerd/containerd/v2/cmd", *_CONTAINERD),
    stamps=("github.com/containerd/containerd/v2/version.Version=2.2.9",),
)
NVIDIA = Program(
    "nvidia",
    "kubernetes",
    _PLUGIN,
    _commands("github.com/NVIDIA/k8s-device-plugin/cmd", *_PLUGIN),
    stamps=("github.com/NVIDIA/k8s-device-plugin/internal/info.version=v0.19.3",),
    nvml=True,
)
NFD = Program(
    "nfd",
    "kubernetes",
    ("nfd-master",),
    ("sigs.k8s.io/node-feature-discovery/cmd/nfd-master",),
    stamps=("sigs.k8s.io/node-feature-discovery/pkg/version.version=v0.18.3",),
    files=(("nfd-api-crds.yaml", "sigs.k8s.io/node-feature-discovery", "deployment/base/nfd-crds/nfd-api-crds.yaml"),),
)
MIG = Program(
    "mig",
    "kubernetes",
    _MIG,
    _commands("github.com/NVIDIA/mig-parted/cmd", *_MIG),
    stamps=("github.com/NVIDIA/mig-parted/internal/info.version=v0.13.1",),
    nvml=True,
)
DRA = Program(
    "dra",
    "dra",
    ("gpu-kubelet-plugin",),
    ("sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin",),
    stamps=("sigs.k8s.io/dra-driver-nvidia-gpu/internal/info.version=v0.4.1",),
    files=(("mps-daemon.yaml", "sigs.k8s.io/dra-driver-nvidia-gpu", "templates/mps-control-daemon.tmpl.yaml"),),
    nvml=True,
)
HELM = Program("helm", "helm", ("helm",), ("helm.sh/helm/v3/cmd/helm",))
FAKE_PLUGIN = Program("fake-plugin", "kubernetes", ("fake-plugin",), ("./fake-plugin",))
PROMETHEUS = Program(
    "prometheus",
    "prometheus",
    ("prometheus", "operator"),
    (
        "github.com/prometheus/prometheus/cmd/prometheus",
        "github.com/prometheus-operator/prometheus-operator/cmd/operator",
    ),
)
NODE_PROGRAMS = (KUBE, CONTAINERD)
TOOLS = (HELM, FAKE_PLUGIN)  # of some tests
GPU_PROGRAMS = (NVIDIA, NFD)


def _environment(program: Program) -> dict[str, str]:
    environment = {**os.environ, "CGO_ENABLED": "1" if program.nvml else "0"}
    # With the same tags, packages compile to the same with cgo and without, and are compiled once.
    environment["GOFLAGS"] = f"-trimpath -buildvcs=false -tags={TAGS} {os.environ.get('GOFLAGS', '')}".strip()
    if program.nvml:  # the library is opened at run time: its functions stay unresolved, and are bound when called
        environment["CGO_LDFLAGS"] = "-Wl,--unresolved-symbols=ignore-in-object-files"
    return environment


def _linker_flags(program: Program) -> str:
    lazy = ["-extldflags=-Wl,-z,lazy"] if program.nvml else []
    return " ".join(["-s", "-w", *lazy, *(f"-X {stamp}" for stamp in program.stamps)])


def _go(program: Program, *arguments: str, **variables: str) -> str:
    """Standard output of go in the program's module; raises TestbedError with what it said.

    Tried again when it fails: what has been downloaded and compiled by then is kept.
    """
    command = ["nice", "go", *arguments]
    folder, environment = SOURCES / program.folder, _environment(program) | variables
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    last = "\n".join(done.stderr.strip().splitlines()[-5:])
    raise TestbedError(f"building {program.name} failed (go {arguments[0]} in {folder}):\n{last}")


def _build(program: Program, target: Path) -> None:
    if not shutil.which("go"):
        raise TestbedError(
            "no Go compiler (go) on PATH: install Go, or name a folder of binaries: SHAREBENCH_TESTBED_BIN"
        )
    print(f"test bed: building {program.name} from source (once)", flush=True)
    begun, cpu_before = time.monotonic(), _cpu_seconds()
    target.mkdir(parents=True)
    _go(
        program,
        "build",
        "-p",
        str(os.cpu_count() or 1),
        "-gcflags=all=-dwarf=false",  # it is not debugged, and builds sooner
        "-ldflags",
        _linker_flags(program),
        "-o",
        f"{target}/",
        *program.packages,
    )
    if program.packages == (".",):  # named after the module
        (only,) = target.iterdir()
        only.rename(target / program.binaries[0])
    for alias in program.aliases:
        (target / alias).symlink_to(program.binaries[0])
    for name, module, path in program.files:
        shutil.copyfile(Path(_go(program, "list", "-m", "-f", "{{.Dir}}", module), path), target / name)
    took, cpu = time.monotonic() - begun, _cpu_seconds() - cpu_before
    print(f"test bed: built {program.name} in {took:.0f} s ({cpu:.0f} s of CPU)", flush=True)


def _cpu_seconds() -> float:
    """Of all commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _key(program: Program) -> str:
    digest = hashlib.sha256(repr(program).encode())
    for file in sorted(path for path in (SOURCES / program.folder).rglob("*") if path.is_file()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _folder(program: Program) -> Path:
    return cache() / "programs" / f"{program.name}-{_key(program)}"


def unobtainable(programs: Iterable[Program]) -> str | None:
    """Why these programs could not be had, as far as is known before they are built; None if nothing is known."""
    if os.environ.get("SHAREBENCH_TESTBED_BIN") or all(_folder(program).exists() for program in programs):
        return None
    with TemporaryDirectory() as empty:
        try:
            _go(KUBE, "mod", "download", SOME_MODULE, GOMODCACHE=empty, GOFLAGS="-modcacherw")
        except TestbedError as error:
            return f"Go gets no modules here: {str(error).splitlines()[-1]}"
    return None


def obtain(program: Program) -> dict[str, Path]:
    """Name -> file of all that the program consists of; builds it if need be."""
    names = (*program.binaries, *program.aliases, *(name for name, _, _ in program.files))
    given = os.environ.get("SHAREBENCH_TESTBED_BIN")
    if given:
        missing = [name for name in names if not Path(given, name).exists()]
        if missing:
            raise TestbedError(
                f"SHAREBENCH_TESTBED_BIN={given} lacks {', '.join(missing)}: add them, or unset it to build"
            )
        folder = Path(given).absolute()
    else:
        folder = _folder(program)
        with locked(folder.name):
            if not folder.exists():
                building = folder.with_name(f"{folder.name}.building")
                shutil.rmtree(building, ignore_errors=True)
                _build(program, building)
                building.rename(folder)
    return {name: folder / name for name in names}
