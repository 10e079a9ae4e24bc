"""What tenants may import, as far as a cell depends on it."""

from __future__ import annotations

import re
from functools import lru_cache

from sharebench.core.capabilities import has_own_python
from sharebench.core.files import SCRIPTS
from sharebench.core.study_config import StudyConfig

ENVS = SCRIPTS.parent / "envs"


@lru_cache(maxsize=2)
def tenant_environment(lock: str) -> str:
    """What a tenant may import: the pins of its lock in envs/, without hashes and comments."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+==[^\s;\\]+)", (ENVS / lock).read_text(), flags=re.MULTILINE)
    return " ".join(sorted(pins))


def environment_of(config: StudyConfig, node_kind: str) -> str:
    """The lock of the tenants' packages on this kind of node; an interpreter of the user's own has what it has."""
    if node_kind == "nvidia":
        is_own = has_own_python(config["nvidia"]["python"])
        return "own interpreter" if is_own else tenant_environment("tenant-gpu.txt")
    if node_kind == "kubernetes":
        return f"image {config['kubernetes']['image']}"
    return tenant_environment("tenant-cpu.txt")
