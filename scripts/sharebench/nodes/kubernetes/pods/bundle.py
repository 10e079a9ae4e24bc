"""The tenant's code as one archive that any Python runs: sources of `scripts/tenant`, prometheus_client and pynvml."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# The sampler's side of telemetry is imported at the start: the driver asks for it when all tenants are at work, where
# each file that is opened waits some 20 ms for the loop to release the interpreter.
MAIN = "import tenant.gpu.telemetry\nfrom tenant.__main__ import main\n\nmain()\n"
# The same code is the same bytes, whenever it is packed; the format has no earlier time.
EPOCH = (1980, 1, 1, 0, 0, 0)


def _sources(name: str) -> dict[str, bytes]:
    """The Python files of an installed package or module, by their paths from where it is installed."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return {origin.name: origin.read_bytes()}
    folder = origin.parent
    return {str(file.relative_to(folder.parent)): file.read_bytes() for file in sorted(folder.rglob("*.py"))}


@cache
def archive() -> bytes:
    """A zip whose `__main__.py` is the tenant's command line."""
    sources = {"__main__.py": MAIN.encode()}
    for name in ("tenant", "prometheus_client", "pynvml"):
        sources |= _sources(name)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        for name, source in sources.items():
            bundle.writestr(zipfile.ZipInfo(name, EPOCH), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def digest(content: bytes) -> str:
    """SHA-256 of an archive, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str:
    """An archive as a ConfigMap's binaryData has it."""
    return base64.b64encode(content).decode()
