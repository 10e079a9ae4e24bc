"""The binaries: from the folder SHAREBENCH_TESTBED_BIN, else from the cache, else built from pinned sources.

The cache knows a build by the hash of its pins, so that checkouts with other pins live side by side. Programs of the
same modules share their versions, and so the compiled packages in Go's cache: most of what NVIDIA's programs consist of
is part of Kubernetes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.testbed import sources
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import cache, locked
from cluster.testbed.sources import OWN

TAGS = "netgo,osusergo,remove_all_sd,enable_kubernetes_sd"  # sd: the ways in which Prometheus finds its targets


@dataclass(frozen=True)
class Program:
    """Programs that are built together.

    modules: the pinned ones, of which the first sets the version of Go. binaries: names that the build leaves behind.
    packages: what is built; `./NAME` lies in `programs/`. aliases: names under which the one binary is also called.
    stamps: Go variables set to a version. files: name -> (module, path in it) of a file that is taken from the sources.
    nvml: linked against NVML at run time.
    """

    name: str
    modules: tuple[str, ...]
    binaries: tuple[str, ...]
    packages: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()
    files: tuple[tuple[str, str, str], ...] = ()
    nvml: bool = False


def _commands(module: str, *names: str) -> tuple[str, ...]:
    """The packages of a project's commands."""
    return tuple(f"{module}/cmd/{name}" for name in names)


def _stamp(module: str, variable: str) -> str:
    return f"{module}/{variable}={sources.version(module)}"


_PLUGIN = ("nvidia-device-plugin", "gpu-feature-discovery", "config-manager", "mps-control-daemon")
_MIG = ("nvidia-mig-parted", "nvidia-mig-manager")
_CONTAINERD = ("containerd", "ctr", "containerd-shim-runc-v2")
# NVIDIA's programs need a newer cgroups module, with which this kubelet does not build.
_KUBERNETES = (sources.KUBERNETES, sources.PLUGIN, sources.MIG, sources.NFD, sources.CGROUPS)
_RELEASE = sources.version(sources.KUBERNETES)
KUBE = Program(
    "kube",
    _KUBERNETES,
    ("kube",),
    ("./kube",),
    aliases=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    stamps=tuple(
        f"k8s.io/component-base/version.{variable}"
        for variable in (f"gitVersion={_RELEASE}", "gitMajor=1", f"gitMinor={_RELEASE.split('.')[1]}")
    ),
)
CONTAINERD = Program(
    "containerd",
    (sources.CONTAINERD,),
    _CONTAINERD,
    _commands(sources.CONTAINERD, *_CONTAINERD),
    stamps=(_stamp(sources.CONTAINERD, "version.Version"),),
)
NVIDIA = Program(
    "nvidia",
    _KUBERNETES,
    _PLUGIN,
    _commands(sources.PLUGIN, *_PLUGIN),
    stamps=(_stamp(sources.PLUGIN, "internal/info.version"),),
    nvml=True,
)
NFD = Program(
    "nfd",
    _KUBERNETES,
    ("nfd-master",),
    _commands(sources.NFD, "nfd-master"),
    stamps=(_stamp(sources.NFD, "pkg/version.version"),),
    files=(("nfd-api-crds.yaml", sources.NFD, "deployment/base/nfd-crds/nfd-api-crds.yaml"),),
)
MIG = Program(
    "mig",
    _KUBERNETES,
    _MIG,
    _commands(sources.MIG, *_MIG),
    stamps=(_stamp(sources.MIG, "internal/info.version"),),
    nvml=True,
)
DRA = Program(
    "dra",
    (sources.DRA,),
    ("gpu-kubelet-plugin",),
    _commands(sources.DRA, "gpu-kubelet-plugin"),
    stamps=(_stamp(sources.DRA, "internal/info.version"),),
    files=(("mps-daemon.yaml", sources.DRA, "templates/mps-control-daemon.tmpl.yaml"),),
    nvml=True,
)
CDI_HOOK = Program(
    "cdi-hook", (sources.TOOLKIT,), ("nvidia-cdi-hook",), _commands(sources.TOOLKIT, "nvidia-cdi-hook"), nvml=True
)
HELM = Program("helm", (sources.HELM,), ("helm",), _commands(sources.HELM, "helm"))
# An independent server.
HTTPBIN = Program("httpbin", (sources.HTTPBIN,), ("go-httpbin",), _commands(sources.HTTPBIN, "go-httpbin"))
PROMETHEUS = Program(
    "prometheus",
    (sources.OPERATOR, sources.PROMETHEUS),
    ("prometheus", "operator"),
    (*_commands(sources.PROMETHEUS, "prometheus"), *_commands(sources.OPERATOR, "operator")),
)
NODE_PROGRAMS = (KUBE, CONTAINERD)
TOOLS = (HELM,)  # of some tests
GPU_PROGRAMS = (NVIDIA, NFD)


def _environment(program: Program) -> dict[str, str]:
    flags = f"-mod=mod -trimpath -buildvcs=false -tags={TAGS} {os.environ.get('GOFLAGS', '')}".strip()
    # With the same tags, packages compile to the same result with and without cgo, and are compiled only once.
    environment = {"CGO_ENABLED": "1" if program.nvml else "0", "GOFLAGS": flags}
    if program.nvml:  # the library is opened at run time: its functions stay unresolved, and are bound when called
        environment["CGO_LDFLAGS"] = "-Wl,--unresolved-symbols=ignore-in-object-files"
    return environment


def _linker_flags(program: Program) -> str:
    lazy = ["-extldflags=-Wl,-z,lazy"] if program.nvml else []
    return " ".join(["-s", "-w", *lazy, *(f"-X {stamp}" for stamp in program.stamps)])


def _write_module(program: Program, folder: Path) -> None:
    """A Go module in which the program is built: it requires the pinned modules, and these versions of them.

    Which versions of all others are needed their own go.mod say, and their go.sum what is in these. For the rest, Go
    asks its checksum database.
    """
    lines, sums = ["module sharebench.invalid/testbed"], ""
    for module in program.modules:
        version, digest = sources.pins()[module]
        source = sources.folder(module)
        described = json.loads(sources.go("mod", "edit", "-json", source / "go.mod"))
        if module == program.modules[0]:
            lines.append(f"go {described['Go']}")
            lines += [f"godebug {each['Key']}={each['Value']}" for each in described.get("Godebug") or ()]
        lines += [f"require {module} {version}", f"replace {module} => {module} {version}"]
        # Other modules of its repository have its version; those of Kubernetes v1.N have v0.N.
        beside = [each["Old"]["Path"] for each in described.get("Replace") or () if "Version" not in each["New"]]
        of_those = re.sub(r"^v1\.", "v0.", version)
        lines += [f"replace {path} => {path} {of_those}" for path in beside]
        # A module without dependencies has no sums.
        theirs = (source / "go.sum").read_text() if (source / "go.sum").exists() else ""
        sums += f"{module} {version} {digest}\n{theirs}"
    shutil.copytree(OWN, folder, dirs_exist_ok=True)
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    (folder / "go.sum").write_text(sums)


def _build(program: Program, target: Path) -> None:
    print(f"test bed: building {program.name} from source (once)", flush=True)
    begun, cpu_before = time.monotonic(), _cpu_seconds()
    target.mkdir(parents=True)
    with TemporaryDirectory() as folder:
        _write_module(program, Path(folder))
        sources.go(
            "build",
            "-p",
            str(os.cpu_count() or 1),
            "-gcflags=all=-dwarf=false",  # it is not debugged, and builds sooner
            "-ldflags",
            _linker_flags(program),
            "-o",
            f"{target}/",
            *program.packages,
            folder=Path(folder),
            **_environment(program),
        )
    for alias in program.aliases:
        (target / alias).symlink_to(program.binaries[0])
    for name, module, path in program.files:
        shutil.copyfile(sources.file(module, path), target / name)
    took, cpu = time.monotonic() - begun, _cpu_seconds() - cpu_before
    print(f"test bed: built {program.name} in {took:.0f} s ({cpu:.0f} s of CPU)", flush=True)


def _cpu_seconds() -> float:
    """CPU time of all ended commands."""
    times = os.times()
    return times.children_user + times.children_system


def _key(program: Program) -> str:
    digest = hashlib.sha256(repr((program, [sources.pins()[module] for module in program.modules])).encode())
    for package in program.packages:
        if package.startswith("./"):
            digest.update((OWN / package / "main.go").read_bytes())
    return digest.hexdigest()[:12]


def _folder(program: Program) -> Path:
    return cache() / "programs" / f"{program.name}-{_key(program)}"


def unobtainable(programs: Iterable[Program]) -> str | None:
    """Why these programs cannot be built, as far as that is known before; None otherwise."""
    if os.environ.get("SHAREBENCH_TESTBED_BIN") or all(_folder(program).exists() for program in programs):
        return None
    with TemporaryDirectory() as empty:
        try:
            some = f"{sources.CGROUPS}@{sources.version(sources.CGROUPS)}"
            sources.go("mod", "download", some, GOMODCACHE=empty, GOFLAGS="-modcacherw")
        except TestbedError as error:
            return f"Go gets no modules here: {str(error).splitlines()[-1]}"
    return None


def obtain(program: Program) -> dict[str, Path]:
    """Files of the program, by name; builds it if necessary."""
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
