"""The check of snakemake's arguments that `make run` makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/check_arguments.py"


def _bomb(line: str) -> bytes:
    """A file of 20 levels, each of which has the one before four times."""
    return ("workload_catalogue:\n  v0: &v0 {a: 1}\n" + "".join(line.format(n, n - 1) for n in range(1, 20))).encode()


FILES = {
    "good.yaml": b"repeats: 3\n",
    "tabs.json": b'{\n\t"repeats": 3\n}\n',
    "latin.yaml": b"# caf\xe9\nrepeats: 3\n",
    "utf16.yaml": "repeats: 3\n".encode("utf-16"),
    "open.yaml": b"repeats: [3\n",
    "list.yaml": b"- repeats\n",
    "empty.yaml": b"",
    "deep.yaml": b"a: " + b"[" * 3000,
    "huge.yaml": b"a: " + b"9" * 6000,
    "python.yaml": b"a: !!python/object/apply:os.getcwd []\n",
    "bomb.yaml": _bomb("  v{0}: &v{0} {{a: *v{1}, b: *v{1}, c: *v{1}, d: *v{1}}}\n"),
    "merges.yaml": _bomb("  v{0}: &v{0} {{<<: [*v{1}, *v{1}, *v{1}, *v{1}]}}\n"),
    "itself.yaml": b"workload_catalogue: &all {matmul: *all}\n",
}
TOO_LARGE = "it cannot be read as YAML: its aliases stand for more than 100000 values; write out those that it needs"
NEEDS_FORM = "it is not KEY=VALUE, such as repeats=3; targets stand before the options"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("restore --cores 1 --configfile good.yaml tabs.json --config a=b=c d= -n", None),
        ("--configfile=good.yaml --config=a=b", None),
        ("--config strategies", f"--config strategies: {NEEDS_FORM}"),
        ("--config a=b restore", f"--config restore: {NEEDS_FORM}"),
        ("-C ={a}", f"--config ={{a}}: {NEEDS_FORM}"),
        ("--configfile none.yaml", "--configfile none.yaml: No such file or directory; name a file of the folder "),
        ("--configfile=.", "--configfile .: Is a directory; "),
        ("--configfiles good.yaml latin.yaml", "--configfile latin.yaml: it is not text in UTF-8; save it as that"),
        ("--configfile utf16.yaml", "--configfile utf16.yaml: it is not text in UTF-8; save it as that"),
        ("--configfile open.yaml", "--configfile open.yaml: line 2: "),
        ("--configfile list.yaml", "--configfile list.yaml: it has no keys; "),
        ("--configfile empty.yaml", "--configfile empty.yaml: it has no keys; "),
        ("--configfile deep.yaml", "--configfile deep.yaml: it cannot be read as YAML: "),
        ("--configfile huge.yaml", "--configfile huge.yaml: it cannot be read as YAML: "),
        ("--configfile python.yaml", "--configfile python.yaml: line 1: could not determine a constructor"),
        *(
            (f"--configfile {name}.yaml", f"--configfile {name}.yaml: {TOO_LARGE}")
            for name in ("bomb", "merges", "itself")
        ),
    ],
)
def test_what_snakemake_cannot_use_is_one_line(tmp_path: Path, arguments: str, line: str | None) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, str(SCRIPT), *arguments.split()]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == (line is not None)
    assert len(checked.stderr.splitlines()) == (line is not None)
    assert checked.stderr.startswith(line or "")


@pytest.mark.parametrize(("cache", "code"), [("", 1), ("caches/own", 0)])
def test_a_home_that_cannot_be_written_to_is_one_line(tmp_path: Path, cache: str, code: int) -> None:
    (tmp_path / "home").write_text("")
    variables = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": cache and str(tmp_path / cache)}
    command = [sys.executable, str(SCRIPT)]
    checked = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert checked.returncode == code
    line = f"{tmp_path}/home/.cache: Not a directory; Snakemake needs a cache: set XDG_CACHE_HOME to a folder "
    assert checked.stderr.startswith(line) if code else not checked.stderr
    assert checked.stderr.count("\n") == code
