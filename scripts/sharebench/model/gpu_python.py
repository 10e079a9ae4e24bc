"""The interpreter of GPU tenants on this host."""

from pathlib import Path

from sharebench.core.files import REPOSITORY
from sharebench.core.redact import OUTSIDE_PREFIX

# `make gpu-env` makes it.
GPU_ENVIRONMENT = REPOSITORY / ".venv-gpu" / "bin" / "python"


def has_own_python(python: str) -> bool:
    """Whether the config's `nvidia.python` names an interpreter of this host; that of a published config does not."""
    return python != "auto" and not python.startswith(OUTSIDE_PREFIX)


def gpu_python(python: str) -> Path | None:
    """The interpreter of GPU tenants by the config's `nvidia.python`; None where `auto` finds none."""
    if has_own_python(python):
        return Path(python)
    return GPU_ENVIRONMENT if GPU_ENVIRONMENT.exists() else None
