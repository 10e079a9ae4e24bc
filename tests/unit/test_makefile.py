"""What `make` does when it cannot make an environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# As Debian's Python without its package python3-venv: a link to the interpreter is there, pip is not.
HALF = """#!/bin/sh
if [ "$1" = -m ]; then mkdir -p .venv/bin; ln -s {python} .venv/bin/python; echo "ensurepip is missing"; exit 1; fi
exec {python} "$@"
"""


def test_an_environment_that_failed_half_way_is_not_taken_for_one(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/sharebench.txt").touch()
    python = tmp_path / "half"
    python.write_text(HALF.format(python=sys.executable))
    python.chmod(0o755)
    for attempt in range(2):
        made = subprocess.run(
            ["make", "run", f"PYTHON={python}", "GPU_ENV="],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
            capture_output=True,
            text=True,
        )
        assert made.returncode != 0
        assert "ensurepip is missing" in made.stdout, f"attempt {attempt + 1}: {made.stderr}"
