"""Finds phrases and names of words.yaml in documents and code: `python docs/prose.py [--python] [FILE ...]`.

Checks Markdown, but not code in backticks or output of programs (```text); YAML, Snakemake files and the Makefile;
with `--python` also comments, texts and names of Python; and what a reflow of Markdown has broken. Prints
`file:line: phrase -> instead` for each; exits 1 if there is any.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
# Published data and the design of edition two do not change, and other projects wrote the manifests.
SKIPPED = re.compile(
    r"docs/words\.yaml$|docs/prose\.py$|tests/cluster/testbed/manifests/|published/(edition-two/|.*\.yaml$)"
)
TEXT = {".md", ".yaml", ".yml", ".smk", ".cff"}


WORDS: dict[str, dict[str, str]] = yaml.safe_load((ROOT / "docs/words.yaml").read_text())


def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Each phrase as a pattern that also matches across line ends and comment signs, with what to write instead."""
    whole = r"(?<![\w/])(?:{})(?![\w/])".format
    return [
        (re.compile(whole(key.replace(" ", r"[\s#]+")), re.I), instead) for key, instead in WORDS["phrases"].items()
    ]


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each function and constant in a Python file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
            yield node.lineno, node.id


def prose(path: Path) -> str:
    """The text of a file, line by line, with everything else blanked."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"(?s)^ *```text$.*?^ *```$|`[^`\n]+`", lambda code: re.sub(".", "¤", code[0]), text, flags=re.M)
    if path.suffix != ".py":
        return text
    lines = [""] * (text.count("\n") + 2)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_text = tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE") and " " in token.string
            if is_text or token.type == tokenize.COMMENT:
                for index, line in enumerate(token.string.split("\n"), token.start[0]):
                    lines[index - 1] += line
    return "\n".join(lines)


def broken_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line and content of what a reflow of Markdown has broken: block quotes, and lines that stand twice."""
    lines = re.sub(r"(?ms)^ *```.*?^ *```$|^¤+$", lambda code: "\n" * code[0].count("\n"), text).split("\n")
    for index, line in enumerate(lines):
        is_outside = index and lines[index - 1].startswith(">") and line.strip() and not line.startswith(">")
        is_repeated = len(line) > 20 and not line.startswith("|") and line in lines[max(0, index - 3) : index]
        if is_outside or is_repeated or (re.search(r"\w[^|]* > \w", line) and not line.startswith("|")):
            yield index + 1, line.strip()


def main(arguments: list[str]) -> int:
    """Prints the findings and returns the exit status."""
    suffixes = TEXT | {".py"} if "--python" in arguments else TEXT
    named = [name for name in arguments if not name.startswith("-")]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [name for name in listed if not SKIPPED.search(name) and Path(name).suffix in suffixes] + ["Makefile"]
    found, phrases = [], patterns()
    for name in named or files:
        text = prose(ROOT / name)
        for pattern, instead in phrases:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {' '.join(match[0].split())} -> {instead}")
        for line, broken in broken_lines(text) if name.endswith(".md") else ():
            found.append(f"{name}:{line}: {broken} -> mend the reflow: a block quote, or a line that stands twice")
        for line, word in names(ROOT / name) if name.endswith(".py") else ():
            for expression, instead in WORDS["names"].items():
                if re.fullmatch(expression, word.lower().strip("_")):
                    found.append(f"{name}:{line}: {word} -> {instead}")
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
