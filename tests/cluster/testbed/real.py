"""The machine's own GPU in place of the mock: differences in images, containers and manifests.

Images are a skeleton over the machine's own /usr and its Python, which containerd mounts into every container: so a pod
has torch without an image of gigabytes. How a container gets the driver differs:

- `real`: /usr has the driver's libraries; the device plugin hands the device files to the kubelet.
- `real-cdi`: the driver is hidden from all containers; a tenant gets its parts by CDI, from NVIDIA's DRA driver.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml
from cluster.testbed import images, programs
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import Instance, cache

BIN = "/opt/testbed/bin"  # NVIDIA's programs in a container: first in the PATH of its image
CDI_HOOK = "/run/testbed/nvidia-cdi-hook"  # on the node, where standins/driver-root puts it
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
FOLDERS = {"usr": 0o755, "opt": 0o755, "etc": 0o755, "tmp": 0o1777, "var": 0o755, "run": 0o755, "root": 0o700}
LOADER = "ld-linux-x86-64.so.2"
MPS = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
LIBRARY_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
CONTROL_DEVICE = Path("/dev/nvidiactl")
MPS_DAEMON = "/usr/bin/mps-control-daemon"
DRIVER_ROOT = Path(__file__).parent / "standins" / "driver-root"


def library_folder() -> Path | None:
    """Folder of the driver's libraries with their full names, libcuda.so.VERSION."""
    return next((folder for folder in map(Path, LIBRARY_FOLDERS) if any(folder.glob("libcuda.so.*.*"))), None)


def program_folder() -> Path | None:
    """Folder of the driver's MPS programs."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/nvidia/bin", "/usr/bin"])
    found = shutil.which(MPS[0], path=places)
    return Path(found).parent if found else None


def missing() -> str | None:
    if not CONTROL_DEVICE.exists():
        return f"no NVIDIA driver here: there is no {CONTROL_DEVICE}; without `--gpu` the test bed has a mock GPU"
    if library_folder() is None:
        return f"no libcuda.so.VERSION in {', '.join(LIBRARY_FOLDERS)}"
    if program_folder() is None:
        return f"no {MPS[0]} on PATH or in /usr/local/nvidia/bin: it comes with NVIDIA's driver"
    return None


def python_folders() -> list[str]:
    """Folders outside of /usr that this interpreter, and so each tenant, needs."""
    return [
        folder
        for folder in dict.fromkeys((sys.prefix, sys.base_prefix))
        if not folder.startswith("/usr/") and folder != "/usr"
    ]


def _skeleton(hides_driver: bool) -> bytes:
    buffer = io.BytesIO()
    links, folders, files = dict(LINKS), dict(FOLDERS), {}
    if hides_driver:
        folders["usr/lib64"] = 0o755
        links[f"usr/lib64/{LOADER}"] = str(Path("/lib64", LOADER).resolve())
        # By this, nvidia-cdi-hook knows where this loader searches for libraries.
        files["etc/debian_version"] = b"trixie/sid\n"
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, mode in folders.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def archive(found: Instance) -> Path:
    """The images of a test bed on the machine's own GPU, all but `pause` over the skeleton. Raises TestbedError."""
    built = (*programs.GPU_PROGRAMS, *((programs.DRA,) if found.hides_driver else ()))
    files = {name: file.read_bytes() for program in built for name, file in programs.obtain(program).items()}
    files["nvidia-smi"] = (images.STANDINS / "nvidia-smi").read_bytes()
    folder = program_folder()
    if folder is None:
        raise TestbedError(missing() or "no MPS programs")
    files |= {name: (folder / name).read_bytes() for name in MPS}
    content = {f"{BIN}/{name}": data for name, data in files.items()}
    # The first python3 in the PATH is the one that has torch.
    python = images.examples() | {f"{BIN}/python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()}
    target = cache() / "images" / f"{found.gpu}.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    nvidia = [images.Image(name, content) for name in (images.GPU, images.DRA)]
    made = [images.pause(), images.Image(images.PYTHON, python), *nvidia]
    images.write_archive(target, _skeleton(found.hides_driver), made)
    return target


def runtime_spec(found: Instance, default: str) -> str:
    """The base OCI spec of all containers: `default` with the machine's folders mounted read-only."""
    spec = json.loads(default)
    seen = ["/usr", *python_folders()]
    if found.hides_driver:
        # /usr/lib64 is private: CDI's hook creates links to the driver's libraries in it.
        parts = sorted(part for part in Path("/usr").iterdir() if part.is_dir() and not part.is_symlink())
        seen = [*(str(part) for part in parts if part.name != "lib64"), *python_folders()]
    elif Path("/etc/ld.so.cache").exists():
        seen.append("/etc/ld.so.cache")
    bound = [{"destination": each, "type": "bind", "source": each, "options": ["rbind", "ro"]} for each in seen]
    libraries = library_folder()
    if found.hides_driver and libraries and libraries.is_relative_to("/usr/local/nvidia"):
        options = ["ro", "nosuid", "nodev", "mode=755"]
        hidden = {"destination": "/usr/local/nvidia", "type": "tmpfs", "source": "tmpfs", "options": options}
        bound.append(hidden)
    return json.dumps(spec | {"mounts": spec["mounts"] + bound})


def on_real_driver(manifest: str) -> str:
    """A manifest of the test bed without its mock: NVIDIA's programs on the machine's own driver."""
    objects = [each for each in yaml.safe_load_all(manifest) if each["metadata"]["name"] != "mock-gpu"]
    for each in objects:
        if each["kind"] != "DaemonSet":
            continue
        pod = each["spec"]["template"]["spec"]
        pod["initContainers"] = [one for one in pod.get("initContainers", ()) if one["name"] != "driver-root"]
        for container in (*pod["initContainers"], *pod["containers"]):
            _without_mock(container)
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "mock"]
        if each["metadata"]["name"] == "mps-control-daemon":
            del pod["shareProcessNamespace"]
            pod["hostPID"] = True  # as the chart has it from 0.17 on: the driver knows clients by the machine's numbers
    return yaml.safe_dump_all(objects)


ENVIRONMENT = {
    "nvidia-device-plugin-ctr": {"PASS_DEVICE_SPECS": "true"},
    "hami-device-plugin-ctr": {"PASS_DEVICE_SPECS": "true"},
    "gpus": {"NVIDIA_CDI_HOOK_PATH": CDI_HOOK, "FEATURE_GATES": "TimeSlicingSettings=true,MPSSupport=true"},
}


MOCK_VARIABLES = ("MOCK_GPUS", "LD_LIBRARY_PATH")


def _without_mock(container: dict[str, Any]) -> None:
    container.pop("envFrom", None)
    command = [part.replace(MPS_DAEMON, f"{BIN}/mps-control-daemon") for part in container["command"]]
    container["command"] = [part for part in command if part != "with-mock-driver"]
    container["volumeMounts"] = [mount for mount in container.get("volumeMounts", ()) if mount["name"] != "mock"]
    given = ENVIRONMENT.get(container["name"], {})
    kept = [entry for entry in container.get("env", ()) if entry["name"] not in (*given, *MOCK_VARIABLES)]
    for entry in kept:
        if entry.get("value") == MPS_DAEMON:
            entry["value"] = f"{BIN}/mps-control-daemon"
    container["env"] = kept + [{"name": name, "value": value} for name, value in given.items()]
