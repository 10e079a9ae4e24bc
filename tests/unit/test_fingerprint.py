"""The fingerprint of code: blind to looks, sharp on meaning, the same on every Python."""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from sharebench.fingerprint import fingerprint

SOURCES = Path(__file__).parent / "fingerprint_sources"
SCRIPTS = Path(__file__).parents[2] / "scripts"
GOLDEN = SOURCES / "golden.txt"
MESSY = SOURCES / "messy.txt"
# When one of these changes, every cell that anyone has measured becomes stale: only with a very good reason.
GOLDEN_DIGESTS = {"golden": "0f52dd62bb8e4eca", "messy": "187f88a7cf3e27b5"}
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture
def digest(tmp_path: Path):
    """Fingerprint of a text, always under the same file name."""

    def of(text: str) -> str:
        path = tmp_path / "code.py"
        path.write_bytes(text.encode())
        return fingerprint([path])

    return of


def interpreter(version: str) -> str | None:
    """A runnable Python of that minor version on this machine."""
    found = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*([found] if found else []), *map(str, root.glob(f"versions/{version}.*/bin/python"))]
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        candidates.insert(0, sys.executable)
    for candidate in candidates:
        shown = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if shown.returncode == 0 and shown.stdout.startswith(f"Python {version}."):
            return candidate
    return None


@pytest.mark.interpreters
@pytest.mark.parametrize("version", PYTHONS)
def test_digest_is_the_same_on_every_python(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    program = (
        "import sys; from pathlib import Path; from sharebench.fingerprint import fingerprint\n"
        "print(*(fingerprint([Path(path)]) for path in sys.argv[1:]))"
    )
    command = [python, "-W", "error", "-c", program, str(GOLDEN), str(MESSY)]
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.split() == list(GOLDEN_DIGESTS.values())


@pytest.mark.parametrize("line_length", ["40", "88", "140"])
def test_ruff_format_changes_nothing(line_length: str, digest, tmp_path: Path) -> None:
    formatted = tmp_path / "formatted.py"
    formatted.write_text(MESSY.read_text())
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", line_length]
    subprocess.run([*command, str(formatted)], check=True, capture_output=True)
    assert formatted.read_text() != MESSY.read_text()
    assert digest(formatted.read_text()) == digest(MESSY.read_text())


SAME = {
    "comment": ("x = 1\n", "# why\nx = 1  # because\n"),
    "module docstring": ("x = 1\n", '"""About."""\nx = 1\n'),
    "docstring reworded": (
        'def f():\n    "One."\n    return 1\n',
        'def f():\n    """Two."""\n    return 1\n',
    ),
    "bare string": ("x = 1\ny = 2\n", "x = 1\n'between' ' two'\ny = 2\n"),
    "bare bytes": ("x = 1\n", "b'nothing'\nx = 1\n"),
    "blank lines and spaces": ("x = [1, 2]\n", "\n\nx   =  [ 1 ,2 ]\n\n"),
    "no newline at the end": ("x = 1\n", "x = 1"),
    "windows line ends": ("if x:\n    y = '''a\nb'''\n", "if x:\r\n    y = '''a\r\nb'''\r\n"),
    "tabs": ("if x:\n    y = 1\n", "if x:\n\ty = 1\n"),
    "byte order mark": ("x = 1\n", "\ufeffx = 1\n"),
    "line continuation": ("x = 1 + 2\n", "x = 1 + \\\n    2\n"),
    "line break in brackets": ("x = f(1, 2)\n", "x = f(\n    1,\n    2\n)\n"),
    "quote style": ("x = 'it'\n", 'x = """it"""\n'),
    "escaped quote": ("x = 'it\\'s'\n", 'x = "it\'s"\n'),
    "string prefix": ("x = 'a', rb'\\d'\n", "x = u'a', BR'\\d'\n"),
    "cut string": ("x = 'ab'\n", "x = ('a'\n     'b')\n"),
    "cut bytes": ("x = b'ab'\n", "x = b'a' b'b'\n"),
    "f-string quotes": ("x = f'{y}'\n", 'x = f"{y}"\n'),
    "cut f-string": ("x = f'{y} {{z}}'\n", "x = f'{y} ' '{z}'\n"),
    "spelling of numbers": ("x = 255, 1000, 0.5, 1e5\n", "x = 0XFF, 1_000, .5, 1E+5\n"),
    "trailing comma in a call": ("f(a)\n", "f(a,)\n"),
    "trailing comma in a list": ("x = [a]\n", "x = [a,]\n"),
    "trailing comma in a set": ("x = {a}\n", "x = {a,}\n"),
    "trailing comma in a pair": ("x = (a, b)\n", "x = (a, b,)\n"),
    "trailing comma in a signature": ("def f(a): pass\n", "def f(a,): pass\n"),
    "trailing comma in an import": ("from a import b\n", "from a import (\n    b,\n)\n"),
    "with in parentheses": ("with a as b, c: pass\n", "with (\n    a as b,\n    c,\n): pass\n"),
    "parentheses around a value": ("x = a + b\n", "x = (\n    a\n    + b\n)\n"),
    "parentheses around an argument": ("f(a if b else c, d=e)\n", "f((a if b else c), d=(e))\n"),
    "parentheses around a result": ("def f(): return a, b\n", "def f(): return (a, b)\n"),
    "parentheses around a condition": ("if a: b()\n", "if (a): b()\n"),
    "parentheses around loop variables": ("for a, b in c: d()\n", "for (a, b) in c: d()\n"),
    "nested parentheses": ("x = a\n", "x = (((a)))\n"),
    "semicolon": ("x = 1\ny = 2\n", "x = 1; y = 2;\n"),
    "one-line suite": ("if a:\n    b()\n    c()\nelse:\n    d()\n", "if a: b(); c()\nelse: d()\n"),
    "one-line suite with a lambda": ("while f(lambda: 1):\n    pass\n", "while f(lambda: 1): pass\n"),
    "one-line case": ("match a:\n  case {1: b}:\n    c()\n", "match a:\n  case {1: b}: c()\n"),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_what_does_not_count(pair: tuple[str, str], digest) -> None:
    first, second = pair
    assert digest(first) == digest(second)


DIFFERENT = {
    "one-element tuple": ("x = (1,)\n", "x = (1)\n"),
    "one-element index": ("x[1,]\n", "x[1]\n"),
    "one-element tuple in a call": ("f((1,))\n", "f((1))\n"),
    "one-element pattern": ("match x:\n    case (a,): pass\n", "match x:\n    case (a): pass\n"),
    "one-element tuple of a lambda": ("x = (lambda a, b: a,)\n", "x = (lambda a, b: a)\n"),
    "bare tuple": ("x = 1,\n", "x = 1\n"),
    "empty tuple": ("f(())\n", "f()\n"),
    "tuple as an argument": ("f((a, b))\n", "f(a, b)\n"),
    "generator in a list": ("x = [(a for a in b)]\n", "x = [a for a in b]\n"),
    "tuple in an assertion": ("assert (a, b)\n", "assert a, b\n"),
    "membership of a choice": ("x = a in (b or c)\n", "x = a in b or c\n"),
    "membership of a tuple": ("x = a in (b, c)\n", "x = a in b, c\n"),
    "order of operations": ("x = (a + b) * c\n", "x = a + b * c\n"),
    "variable": ("x = a\n", "x = b\n"),
    "number": ("x = 1\n", "x = 2\n"),
    "kind of number": ("x = 1\n", "x = 1.0\n"),
    "string": ("x = 'a'\n", "x = 'b'\n"),
    "space in a string": ("x = 'a b'\n", "x = 'a  b'\n"),
    "string and bytes": ("x = 'a'\n", "x = b'a'\n"),
    "string and name": ("x = 'a'\n", "x = a\n"),
    "raw string": ("x = '\\n'\n", "x = r'\\n'\n"),
    "string and f-string": ("x = '{a}'\n", "x = f'{a}'\n"),
    "text of an f-string": ("x = f'{a} b'\n", "x = f'{a}  b'\n"),
    "value in an f-string": ("x = f'{a}'\n", "x = f'{b}'\n"),
    "format in an f-string": ("x = f'{a:.2f}'\n", "x = f'{a:.3f}'\n"),
    "conversion in an f-string": ("x = f'{a!r}'\n", "x = f'{a}'\n"),
    "nested f-string": ("x = f'{f\"{a}\"}'\n", "x = f'{f\"{b}\"}'\n"),
    "letters beside an f-string": ("x = f'ü{a}'\n", "x = f'ö{a}'\n"),
    "used string": ("x = ''\n'a'\n", "x = ''; y = 'a'\n"),
    "operator": ("x = a + b\n", "x = a - b\n"),
    "comparison": ("x = a < b\n", "x = a <= b\n"),
    "order of statements": ("a()\nb()\n", "b()\na()\n"),
    "indentation": ("if x:\n    a()\nb()\n", "if x:\n    a()\n    b()\n"),
    "indentation of else": (
        "for a in b:\n    if a:\n        c()\nelse:\n    d()\n",
        "for a in b:\n    if a:\n        c()\n    else:\n        d()\n",
    ),
    "end of a one-line suite": ("if x: a(); b()\n", "if x: a()\nb()\n"),
    "default": ("def f(a=1): pass\n", "def f(a=2): pass\n"),
    "keyword-only": ("def f(*, a): pass\n", "def f(a): pass\n"),
    "annotation": ("a: int = 1\n", "a: float = 1\n"),
    "decorator": ("@cached\ndef f(): pass\n", "def f(): pass\n"),
    "async": ("async def f(): pass\n", "def f(): pass\n"),
    "import": ("import a as b\n", "import b as a\n"),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_what_counts(pair: tuple[str, str], digest) -> None:
    first, second = pair
    assert digest(first) != digest(second)


def meaning(source: str) -> str:
    """The syntax tree without docstrings: an independent judge of whether two sources are one program."""

    class WithoutBareStrings(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | bytes)
            return None if is_text else self.generic_visit(node)

    return ast.dump(WithoutBareStrings().visit(ast.parse(source)))


def edits(source: str):
    """The source with one token dropped, extended, doubled, in parentheses, or with a comma behind it."""
    lines = source.splitlines(keepends=True)
    for kind, text, (row, left), (last, right), line in tokenize.generate_tokens(io.StringIO(source).readline):
        if row != last or kind not in (tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING):
            continue
        for replacement in ("", f"{text}0", f"{text} {text}", f"({text})", f"{text},"):
            edited = line[:left] + replacement + line[right:]
            yield "".join([*lines[: row - 1], edited, *lines[row:]])


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_no_change_of_the_syntax_tree_goes_unseen(digest) -> None:
    source = GOLDEN.read_text()
    original, original_digest = meaning(source), digest(source)
    seen = 0
    for edited in edits(source):
        try:
            changed = meaning(edited) != original
        except SyntaxError:
            continue
        if changed:
            seen += 1
            assert digest(edited) != original_digest, edited
    assert seen > 300


def test_files_count_by_stem_and_order(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one, two, moved = tmp_path / "one.py", tmp_path / "two.py", tmp_path / "elsewhere" / "one.py"
    for path in (one, two, moved):
        path.write_text("x = 1\n")
    assert fingerprint([one]) == fingerprint([moved])
    assert fingerprint([one]) != fingerprint([two])
    assert fingerprint([one, two]) != fingerprint([two, one])
    assert fingerprint([one, two]) != fingerprint([one])


def test_code_that_moves_between_files_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x = 1\ny = 2\n")
    two.write_text("")
    before = fingerprint([one, two])
    one.write_text("x = 1\n")
    two.write_text("y = 2\n")
    assert fingerprint([one, two]) != before


def test_an_edit_is_seen_within_one_process(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("x = 1\n")
    before = fingerprint([path])
    path.write_text("x = 2\n")
    assert fingerprint([path]) != before


def test_form(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert len(fingerprint([empty])) == 16
    assert int(fingerprint([empty]), 16) >= 0


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fingerprint([tmp_path / "nowhere.py"])


def test_source_that_ends_in_a_bracket(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = (1,\n")
    with pytest.raises((SyntaxError, tokenize.TokenError)):
        fingerprint([path])
