"""The tenant's code as one archive that any Python runs: `scripts/tenant`, and prometheus_client as pure Python."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
MAIN = "from tenant.__main__ import main\n\nmain()\n"
# The same bytes for the same code, whenever it is packed; the format knows no time before this.
EPOCH = (1980, 1, 1, 0, 0, 0)


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@cache
def archive() -> bytes:
    """A zip whose `__main__.py` is the tenant's command line."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:

        def add(name: str, content: bytes) -> None:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, content)

        add("__main__.py", MAIN.encode())
        for package in (SCRIPTS / "tenant", _package("prometheus_client")):
            for file in sorted(package.rglob("*.py")):
                add(str(file.relative_to(package.parent)), file.read_bytes())
    return packed.getvalue()


def digest(content: bytes) -> str:
    """SHA-256 of an archive, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str:
    """An archive as a ConfigMap's binaryData has it."""
    return base64.b64encode(content).decode()
