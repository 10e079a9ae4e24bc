"""The rules' use of Snakemake's internals, and what its linter says of them."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
INTERNALS = ROOT / "rules" / "internals.smk"
FILES = {ROOT / "Snakefile", ROOT / "scripts/study.smk", *(ROOT / "rules").glob("*.smk")}


def test_snakemakes_internals_are_used_in_one_file() -> None:
    for path in FILES - {INTERNALS}:
        # `workflow.basedir` and `snakemake.utils` are documented.
        used = set(re.findall(r"\bworkflow\.(?!basedir)\w+|snakemake\.(?!utils)\w+", path.read_text()))
        assert not used, f"{path.name}: {used}"


def test_every_use_of_an_internal_names_the_test_that_holds_it() -> None:
    functions = re.findall(r"^def \w+\(.*?(?=^\S)", INTERNALS.read_text() + "\nend", re.MULTILINE | re.DOTALL)
    assert len(functions) == INTERNALS.read_text().count("\ndef ")
    tests = {path.name: path.read_text() for path in (ROOT / "tests/pipeline").glob("test_*.py")}
    for function in functions:
        (named,) = re.findall(r"Held by\s+(?:tests/pipeline/(\w+\.py)|(\w+))", function)
        assert named[0] in tests or any(f"def {named[1]}(" in text for text in tests.values() if named[1]), function


def test_no_file_is_long_and_none_ends_the_process_while_the_dag_is_built() -> None:
    assert len(FILES) > 12
    for path in FILES:
        lines = path.read_text().splitlines()
        assert len(lines) <= 150, path
        # What is left sets the exit code of a run that is over.
        assert sum("sys.exit" in line for line in lines) == (path.name == "run.smk"), path
        assert not any("sys.path" in line for line in lines), path


def test_snakemakes_linter_misses_only_the_software_of_each_rule() -> None:
    """No rule could name it, since a job runs with the interpreter of snakemake, and the linter has no exemption."""
    command = [sys.executable, "-m", "snakemake", "--lint", "--quiet", "--config", "node=cpu"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stderr
    assert set(re.findall(r"^    \* (.*):$", said, re.M)) == {
        "Specify a conda environment or container for each rule."
    }, said


def test_a_job_that_measures_takes_its_specs_from_the_run() -> None:
    assert not [path for path in FILES if "--spec" in path.read_text()]
