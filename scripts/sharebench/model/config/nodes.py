"""Checks of the options of the node that a study measures, which yield each problem as one line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sharebench.model.capabilities import has_nvidia_gpu, resolve_node_kind
from sharebench.model.config.files import is_file
from sharebench.model.config_nodes import KubernetesOptions, NvidiaOptions, StandInOptions
from sharebench.model.gpu_python import gpu_python, has_own_python
from sharebench.model.study_config import StudyConfig
from sharebench.model.user_manifest import strategy_variables
from sharebench.model.words import quoted


def problems(config: StudyConfig, kind: str) -> Iterator[str]:
    """Options in the node's section of a normalised config that this host cannot meet, or that no cluster accepts."""
    if config["measured_elsewhere"]:
        return
    if kind == "cpu":
        yield from _stand_in(config["cpu"])
    if kind == "nvidia":
        yield from _gpu_host(config["nvidia"])
    if kind == "kubernetes":
        yield from _cluster(config["kubernetes"])


def with_python(config: StudyConfig) -> StudyConfig:
    """The config with the path of the interpreter of tenants on this host's GPU, where it gives none and one is found.

    Without .venv-gpu `auto` is the interpreter of snakemake or one on the PATH, the first that has
    what every tenant imports.
    """
    is_here = not config["from"] and not config["measured_elsewhere"] and has_nvidia_gpu()
    if not is_here or resolve_node_kind(config["node"]) != "nvidia":
        return config
    python, found = config["nvidia"]["python"], None
    if has_own_python(python):
        found = python if "/" in python else _on_path(python)
    elif gpu_python(python) is None:
        on_path = filter(None, map(_on_path, ("python3", "python")))
        found = next(filter(_has_frameworks, (sys.executable, *on_path)), None)
    return {**config, "nvidia": {**config["nvidia"], "python": found or python}}


def _on_path(word: str) -> str | None:
    """The absolute path of a program, since PATH may have relative folders."""
    return str(Path(found).absolute()) if (found := shutil.which(word)) else None


@cache
def _has_frameworks(python: str) -> bool:
    needed = ("torch", "numpy", "prometheus_client")
    program = f"import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, {needed})))"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _stand_in(options: StandInOptions) -> Iterator[str]:
    """Cores that this process may not use."""
    usable = usable_cores()
    for core in usable if options["cores"] == "auto" else options["cores"]:
        if core not in usable:
            known = ", ".join(map(str, usable))
            yield f"cpu.cores: {core} is the number of no core that this process may use; name some of {known}, or auto"


def _gpu_host(options: NvidiaOptions) -> Iterator[str]:
    """Requirements of measuring this host's GPU that the host does not meet."""
    if not has_nvidia_gpu():
        yield (
            "node: 'nvidia' is not possible on this host, it shows no NVIDIA GPU (no /dev/nvidia0); "
            "use cpu for the stand-in, or simulated; a plan for another host: --config measured_elsewhere=true"
        )
        return
    python = gpu_python(options["python"])
    if python is None:
        yield (
            "nvidia.python: 'auto' finds no interpreter with torch (.venv-gpu, that of snakemake, PATH); "
            "run `make gpu-env`, or name one that has it, or set node: cpu for the stand-in"
        )
    elif not is_file(python):
        where = quoted(str(python))
        yield f"nvidia.python: {where} is not a file, nor on the PATH; give the path of a Python interpreter"
    if options["hami_core"] is not None and not is_file(options["hami_core"]):
        yield f"nvidia.hami_core: {quoted(options['hami_core'])} is not a file; give the path of HAMi-core's libvgpu.so"


def _cluster(options: KubernetesOptions) -> Iterator[str]:
    """Tolerations that the API server would refuse, and variables that would change a strategy."""
    for name in strategy_variables(options["pod"]):
        yield f"kubernetes.pod: {name} is set by the strategies, and all tenants would have this one; remove it"
    for toleration in options["tolerations"]:
        operator, value = toleration["operator"], toleration["value"]
        if operator == "Exists" and value is not None:
            yield f"kubernetes.tolerations: value: {value!r} has no effect with Exists; set operator: Equal"
        if operator == "Equal" and toleration["key"] is None:
            yield "kubernetes.tolerations: operator: 'Equal' needs a key; name the taint's, or leave operator out"
