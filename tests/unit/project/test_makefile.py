"""`make` prints its help, and does not take a half-made environment for a whole one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Behaves as Debian's Python without the package python3-venv: it links the interpreter but lacks pip.
PYTHON_WITHOUT_PIP = """#!/bin/sh
if [ "$1" = -m ]; then mkdir -p .venv/bin; ln -s {python} .venv/bin/python; echo "ensurepip is missing"; exit 1; fi
exec {python} "$@"
"""


# Says that it is a Python of another version.
PYTHON_OF_A_VERSION = """#!/bin/sh
[ "$1" = -c ] || exit 7
exec {python} -c "import sys; sys.version_info = {version}; sys.version = 'this version'; $2"
"""


def run_make(folder: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """Run `make` with these targets in a folder with a copy of the Makefile."""
    shutil.copy(ROOT / "Makefile", folder)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(["make", *targets], cwd=folder, env=environment, capture_output=True, text=True)


def test_make_alone_prints_the_help_and_does_nothing(tmp_path: Path) -> None:
    alone = run_make(tmp_path)
    assert alone.returncode == 0 and alone.stdout == run_make(tmp_path, "help").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    for target in " ".join(phony).split():
        assert target.removesuffix("-up").removesuffix("-down") in alone.stdout, f"make {target} is not explained"


def test_install_makes_the_environment_once(tmp_path: Path) -> None:
    for name in (".venv/bin/python", "pyproject.toml", "envs/sharebench.txt", ".venv/run.stamp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert ".venv is ready: source .venv/bin/activate" in run_make(tmp_path, "install").stdout


@pytest.mark.parametrize("status", [0, 3])
def test_a_long_installation_has_a_line_from_time_to_time(status: int, tmp_path: Path) -> None:
    for name in (".venv/bin/python", "pyproject.toml", "envs/sharebench.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    slow = f'#!/bin/sh\ncase "$*" in *require-hashes*) echo Collecting this; sleep 3; exit {status};; esac\n'
    (tmp_path / ".venv/bin/python").write_text(slow)
    (tmp_path / ".venv/bin/python").chmod(0o755)
    # On a busy machine the shell that prints may get no core in these seconds.
    for _ in range(5):
        (tmp_path / ".venv/run.stamp").unlink(missing_ok=True)
        installed = run_make(tmp_path, "install", "SHOW_SECONDS=1", "UV=")
        if has_line := re.search(r"^  [123] s: Collecting this$", installed.stdout, re.M):
            break
    assert has_line
    assert ("installing the command sharebench\n" in installed.stdout) == (status == 0)
    assert (installed.returncode == 0) == (status == 0) == (tmp_path / ".venv/run.stamp").exists()


def test_run_checks_its_arguments_first(tmp_path: Path) -> None:
    for name in (".venv/bin/python", "pyproject.toml", "envs/sharebench.txt", ".venv/run.stamp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    (tmp_path / ".venv/run.stamp").touch()
    slip = run_make(tmp_path, "run", "GPU_ENV=", "ARGS=--config strategies")
    assert slip.returncode != 0
    assert slip.stderr.startswith("--config strategies: it is not KEY=VALUE")


@pytest.mark.parametrize(
    ("version", "is_taken"), [((3, 10, 9), False), ((3, 11, 0), True), ((3, 13, 9), True), ((3, 14, 0), False)]
)
def test_another_python_is_refused_in_one_line(version: tuple[int, ...], is_taken: bool, tmp_path: Path) -> None:
    for name in ("envs/sharebench.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    python = tmp_path / "other"
    python.write_text(PYTHON_OF_A_VERSION.format(python=sys.executable, version=version))
    python.chmod(0o755)
    made = run_make(tmp_path, "install", f"PYTHON={python}")
    line = "needs Python 3.11 to 3.13, {} is this; name another: make PYTHON=python3.12"
    lines = [each for each in made.stderr.splitlines() if not each.startswith("make: ")]
    assert lines == ([] if is_taken else [line.format(sys.executable)])
    assert made.returncode != 0 and not (tmp_path / ".venv").exists()


def test_an_environment_that_failed_half_way_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/sharebench.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    python = tmp_path / "half"
    python.write_text(PYTHON_WITHOUT_PIP.format(python=sys.executable))
    python.chmod(0o755)
    for attempt in range(2):
        failed = run_make(tmp_path, "run", f"PYTHON={python}", "GPU_ENV=")
        assert failed.returncode != 0
        # Making it can take half a minute on a busy machine.
        assert "making .venv\nensurepip is missing" in failed.stdout, f"attempt {attempt + 1}: {failed.stderr}"
