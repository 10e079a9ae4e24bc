"""Packs the files for a test bed on the GPU of a machine without network, in parts of limited size."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.testbed import images, programs, requirements, schedulers
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import cache

MIB = 1 << 20
PLUGINS = ("bridge", "host-local", "loopback")
WITH_LIBRARIES = ("ip", "nft", "openssl")  # started with the libraries of the machine that packed them
UNPACK = Path(__file__).parent / "standins" / "unpack"
OPENSSL_CONFIG = Path("/etc/ssl/openssl.cnf")


def parts() -> dict[str, dict[str, Path]]:
    """Name of an archive -> path in it -> file. Raises TestbedError."""
    built = (*programs.NODE_PROGRAMS, *programs.GPU_PROGRAMS, programs.DRA, programs.CDI_HOOK)
    found = {program.name: _files(program) for program in built}
    plugins = requirements.cni_folder()
    if plugins is None:
        raise TestbedError("no CNI plugins here: apt-get install containernetworking-plugins")
    tools = {f"bin/{name}": plugins / name for name in PLUGINS} | {"bin/runc": _tool("runc"), "unpack": UNPACK}
    for name in WITH_LIBRARIES:
        tools[f"libexec/{name}"] = _tool(name)
        tools |= {f"lib/{file.name}": file.resolve() for file in _libraries(_tool(name))}
    images.pause()
    tools["bin/pause"] = cache() / "images" / "pause"
    if schedulers.missing("hami") is None:
        others = Path(os.environ[schedulers.FOLDER])
        found["schedulers"] = {f"schedulers/{name}": others / name for name in schedulers.NEEDED["hami"]}
    return found | {"tools": tools | {"openssl.cnf": OPENSSL_CONFIG}}


def _files(program: programs.Program) -> dict[str, Path]:
    """The program's files by path; aliases are links, and stay links in the archive."""
    return {f"bin/{name}": file for name, file in programs.obtain(program).items()}


def _tool(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise TestbedError(f"no {name} on PATH")
    return Path(found).resolve()


def _libraries(program: Path) -> list[Path]:
    """All libraries that it is linked to except the C library, which must be the machine's."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = [Path(path) for path in re.findall(r"=> (/\S+)", said)]
    return [file for file in found if not re.match(r"(libc|libm|libdl|libpthread|librt)\.so", file.name)]


def _compressed(folder: Path, name: str, files: dict[str, Path]) -> Path:
    target = folder / f"{name}.tar.xz"
    with lzma.open(target, "wb", preset=6) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for path, file in files.items():
            archive.add(file, path)
    return target


def pack(out: Path, most_mib: int) -> list[Path]:
    """Folders `out/1`, `out/2`, ... of at most this size, each with the script `unpack`. Raises TestbedError."""
    loads: list[tuple[Path, int]] = []
    with TemporaryDirectory(dir=out.parent) as folder, ThreadPoolExecutor() as workers:
        made = list(workers.map(lambda part: _compressed(Path(folder), *part), parts().items()))
        for file in sorted(made, key=lambda file: -file.stat().st_size):
            size = file.stat().st_size
            if size > most_mib * MIB:
                raise TestbedError(f"{file.name} alone has {size / MIB:.0f} MiB: allow loads of that size")
            for index, (load, used) in enumerate(loads):
                if used + size <= most_mib * MIB:
                    loads[index] = (load, used + size)
                    break
            else:
                load = out / str(len(loads) + 1)
                load.mkdir(parents=True)
                shutil.copy(UNPACK, load / "unpack")
                loads.append((load, size))
            shutil.move(file, load / file.name)
    return [load for load, _ in loads]
