"""Container images without Docker or a registry: one archive in the format of `docker save`.

containerd (`ctr images import`) and kind (`kind load image-archive`) read it. All images but `pause` stand on one root
file system: Debian with Python, numpy and prometheus_client, which is what a tenant needs, and aiohttp for clients.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from cluster.testbed import nvml, programs
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import cache, locked

SUITE = "bookworm"
# mount: for `mps-control-daemon mount-shm`
PACKAGES = "python3,python3-numpy,python3-prometheus-client,python3-aiohttp,mount"
REGISTRY = "testbed.local"  # does not exist, so that nothing is ever pulled
NAMES = ("pause", "python", "nvidia", "mig", "dra", "httpbin")
PAUSE, PYTHON, GPU, MIG, DRA, HTTPBIN = (f"{REGISTRY}/{name}:1" for name in NAMES)
# Images of programs that only some clusters need.
FURTHER = {MIG: programs.MIG, DRA: programs.DRA, HTTPBIN: programs.HTTPBIN}
# Images with only a project's program: image -> entrypoint.
FROM_SCRATCH = {HTTPBIN: ("/usr/bin/go-httpbin",)}
STANDINS = Path(__file__).parent / "standins"
EXAMPLES = Path(__file__).parents[3] / "examples"
SHARED_STANDINS = Path(__file__).parents[2] / "standins"


@dataclass(frozen=True)
class Image:
    """files: path in the image -> content, all executable."""

    name: str
    files: dict[str, bytes]
    on_root: bool = True
    entry: tuple[str, ...] = ()
    user: str = ""


def _layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def write_archive(target: Path, root: bytes, images: list[Image]) -> None:
    """Write an archive, in which a layer that several images share is stored once."""
    written: set[str] = set()
    manifest = []
    with tarfile.open(target, "w") as archive:

        def put(name: str, content: bytes) -> None:
            if name not in written:
                written.add(name)
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))

        for image in images:
            layers = [root] * image.on_root + [_layer(image.files)] * bool(image.files)
            digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
            config = {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "Env": ["PATH=/opt/testbed/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"],
                    "Entrypoint": list(image.entry),
                    "User": image.user,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            }
            text = json.dumps(config).encode()
            file = f"{hashlib.sha256(text).hexdigest()}.json"
            put(file, text)
            for digest, layer in zip(digests, layers, strict=True):
                put(f"{digest}.tar", layer)
            manifest.append(
                {"Config": file, "RepoTags": [image.name], "Layers": [f"{digest}.tar" for digest in digests]}
            )
        put("manifest.json", json.dumps(manifest).encode())


def root_file_system() -> Path:
    """The tar of the root file system, made once by mmdebstrap."""
    folder = cache() / "images"
    target = folder / f"root-{SUITE}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}.tar"
    with locked("root"):
        if not target.exists():
            if not shutil.which("mmdebstrap"):
                raise TestbedError("no mmdebstrap to make the root file system of pods: apt-get install mmdebstrap")
            print("test bed: making a root file system for pods (once)", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            building = target.with_suffix(".building.tar")
            without = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
            command = ["mmdebstrap", "--variant=essential", f"--include={PACKAGES}", *without, SUITE, str(building)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise TestbedError(f"mmdebstrap failed:\n{done.stderr[-1000:]}")
            building.rename(target)
    return target


def pause() -> Image:
    """The static binary that holds a pod's namespaces; from SHAREBENCH_TESTBED_BIN if it is there."""
    target = Path(os.environ.get("SHAREBENCH_TESTBED_BIN", ""), "pause")
    if not target.is_file():
        target = cache() / "images" / "pause"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-Os", "-static", "-s", "-o", str(target), str(STANDINS / "pause.c")], check=True)
    return Image(PAUSE, {"/pause": target.read_bytes()}, on_root=False, entry=("/pause",), user="65535:65535")


def _program_files(binaries: dict[str, Path]) -> dict[str, bytes]:
    return {f"/usr/bin/{name}": file.read_bytes() for name, file in binaries.items()}


def _with_standins(binaries: dict[str, Path]) -> dict[str, bytes]:
    """The files of NVIDIA's programs with the stand-ins that they need."""
    programs_only = {name: file for name, file in binaries.items() if file.suffix != ".yaml"}
    files = _program_files(programs_only)
    for name in ("nvidia-smi", "with-mock-driver", "fake-dbus.py"):
        files[f"/usr/bin/{name}"] = (STANDINS / name).read_bytes()
    control = (SHARED_STANDINS / "nvidia-cuda-mps-control").read_text().replace("#!PYTHON", "#!/usr/bin/python3", 1)
    files["/usr/bin/nvidia-cuda-mps-control"] = control.encode()
    library = nvml.build(cache() / "images", list(programs_only.values()))
    files["/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"] = library.read_bytes()
    return files


def _archived(name: str, images: list[Image]) -> Path:
    """The archive of these images, rebuilt if their contents have changed."""
    root = root_file_system()
    digest = hashlib.sha256(f"{root.name} {root.stat().st_mtime_ns}".encode())
    for image in images:
        digest.update(repr((image.name, image.on_root, image.entry, image.user)).encode())
        for path, content in sorted(image.files.items()):
            digest.update(path.encode() + hashlib.sha256(content).digest())
    target = root.parent / f"{name}-{digest.hexdigest()[:12]}.tar"
    if not target.exists():
        building = target.with_suffix(".building.tar")
        write_archive(building, root.read_bytes(), images)
        building.rename(target)
    return target


def examples() -> dict[str, bytes]:
    """The files of a user's image: programs of examples/, which studies may start."""
    return {f"/opt/testbed/examples/{file.name}": file.read_bytes() for file in EXAMPLES.glob("*.py")}


def archive() -> Path:
    """The archive of the images that every test cluster has."""
    binaries = {name: file for program in programs.GPU_PROGRAMS for name, file in programs.obtain(program).items()}
    root_file_system()
    with locked("images"):
        return _archived("images", [pause(), Image(PYTHON, examples()), Image(GPU, _with_standins(binaries))])


def further_archive(image: str) -> Path:
    """An image of `FURTHER`."""
    program = FURTHER[image]
    binaries = programs.obtain(program)
    with locked("images"):
        files = _with_standins(binaries) if program.nvml else _program_files(binaries)
        entry = FROM_SCRATCH.get(image, ())
        return _archived(program.name, [Image(image, files, on_root=not entry, entry=entry)])


def build_all() -> None:
    """Build everything that the tests need, so that no test waits for it."""
    for program in (*programs.NODE_PROGRAMS, *programs.TOOLS):
        programs.obtain(program)
    archive()
    for image in FURTHER:
        further_archive(image)
