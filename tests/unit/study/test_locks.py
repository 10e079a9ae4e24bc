"""The environments of tenants and client, from lock files."""

from pathlib import Path

import pytest

from sharebench.study.study import ENVS, client_environment, tenant_environment

LOCK = """#
# made by a tool at some time
numpy==2.1.0 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
    # via -r tenant.in
prometheus-client==0.21.0 ; python_version >= "3.11" \\
    --hash=sha256:cccc
"""


def environment(folder: Path, text: str) -> str:
    """The result of `tenant_environment` for a lock file with this text."""
    lock = folder / "lock.txt"
    lock.write_text(text)
    tenant_environment.cache_clear()
    try:
        return tenant_environment(str(lock))
    finally:
        tenant_environment.cache_clear()


def test_the_tenant_environment_is_the_pins_of_the_lock(tmp_path: Path) -> None:
    assert environment(tmp_path, LOCK) == "numpy==2.1.0 prometheus-client==0.21.0"
    noise = LOCK.replace("some time", "another").replace("aaaa", "dddd").replace("    # via -r tenant.in\n", "")
    assert environment(tmp_path, noise) == environment(tmp_path, LOCK)
    assert environment(tmp_path, LOCK.replace("2.1.0", "2.1.1")) != environment(tmp_path, LOCK)


def test_the_client_environment_is_the_pin_of_aiohttp() -> None:
    assert client_environment() in tenant_environment("sharebench.txt").split()
    assert "\naiohttp" in (ENVS / "sharebench.in").read_text(), "nothing else brings it for certain"


def test_the_clients_image_has_a_dozen_packages_with_the_pins_of_the_pipeline() -> None:
    pins = set(tenant_environment("client.txt").split())
    assert len(pins) <= 12 and pins <= set(tenant_environment("sharebench.txt").split())
    assert {"aiohttp", "numpy", "prometheus-client"} <= {pin.partition("==")[0] for pin in pins}


@pytest.mark.parametrize("lock", ["sharebench.txt", "dev.txt"])
def test_the_pipelines_locks_leave_out_what_is_never_imported(lock: str) -> None:
    unused = [line for line in (ENVS / "unused.in").read_text().splitlines() if not line.startswith("#")]
    assert "opencv-python-headless" in unused
    assert not set(unused) & {pin.partition("==")[0] for pin in tenant_environment(lock).split()}


@pytest.mark.parametrize("lock", ["tenant-cpu.txt", "tenant-gpu.txt"])
def test_every_pin_of_the_real_lock_counts(lock: str) -> None:
    lines = (ENVS / lock).read_text().splitlines()
    pins = [line for line in lines if "==" in line and not line.lstrip().startswith(("#", "--"))]
    assert len(tenant_environment(lock).split()) == len(pins) >= 2
