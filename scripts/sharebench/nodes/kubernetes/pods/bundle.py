"""The tenant's code as one archive that any Python runs: `scripts/tenant`, and prometheus_client as pure Python.

Beside the sources lies byte code of this Python, which spares pods with the same one from compiling them. Another
Python sees by its magic number that it is not for it, and takes the sources.
"""

from __future__ import annotations

import base64
import hashlib
import io
import marshal
import zipfile
from functools import cache
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path

from sharebench.core.files import SCRIPTS

# The sampler's side of telemetry comes along at once: the driver asks for it when all tenants are at work, where every
# file that is opened waits for the loop to let go of the interpreter, some 20 ms each.
MAIN = "import tenant.gpu.telemetry\nfrom tenant.__main__ import main\n\nmain()\n"
# The same bytes for the same code, whenever it is packed; the format knows no time before this.
EPOCH = (1980, 1, 1, 0, 0, 0)
# PEP 552: byte code that is known by its source's hash, which is not to be checked; the hash may then be anything.
UNCHECKED = (0b01).to_bytes(4, "little") + bytes(8)


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _byte_code(name: str, source: bytes) -> bytes:
    """What Python keeps in a .pyc of a module; it says nothing of where the source was.

    In marshal's second version: later ones write the same code differently, by what else refers to its constants.
    """
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + UNCHECKED + marshal.dumps(code, 2)


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
                name, source = str(file.relative_to(package.parent)), file.read_bytes()
                add(name, source)
                add(f"{name}c", _byte_code(name, source))
    return packed.getvalue()


def digest(content: bytes) -> str:
    """SHA-256 of an archive, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str:
    """An archive as a ConfigMap's binaryData has it."""
    return base64.b64encode(content).decode()
