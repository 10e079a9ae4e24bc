"""The rules' use of Snakemake's internals."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
INTERNALS = ROOT / "rules" / "internals.smk"


def test_snakemakes_internals_are_used_in_one_file() -> None:
    files = [ROOT / "Snakefile", *(path for path in (ROOT / "rules").glob("*.smk") if path != INTERNALS)]
    assert len(files) > 10
    for path in files:
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
