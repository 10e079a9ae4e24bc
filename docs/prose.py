"""Finds phrases of words.yaml in documents and code: `python docs/prose.py [--python] [FILE ...]`.

Checks Markdown, but not code in backticks or output of programs (```text); YAML, Snakemake files and the Makefile;
with `--python` also comments and texts of Python. Prints `file:line: phrase -> instead`; exits 1 if there is any.
"""

import re
import subprocess
import sys
import tokenize
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
# Data are as they were published, manifests as others wrote them.
SKIPPED = re.compile(r"docs/words\.yaml$|docs/prose\.py$|tests/cluster/testbed/manifests/|published/.*\.yaml$")
TEXT = {".md", ".yaml", ".yml", ".smk", ".cff"}


def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Each phrase as a pattern that also matches across line ends and comment signs, with what to write instead."""
    phrases: dict[str, str] = yaml.safe_load((ROOT / "docs/words.yaml").read_text())
    whole = r"(?<![\w/])(?:{})(?![\w/])".format
    return [(re.compile(whole(key.replace(" ", r"[\s#]+")), re.I), instead) for key, instead in phrases.items()]


def prose(path: Path) -> str:
    """The text of a file with all else blanked, line by line."""
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


def main(arguments: list[str]) -> int:
    """Prints what it finds; the exit status."""
    suffixes = TEXT | {".py"} if "--python" in arguments else TEXT
    named = [name for name in arguments if not name.startswith("-")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in tracked if not SKIPPED.search(name) and Path(name).suffix in suffixes] + ["Makefile"]
    found = []
    for name in named or files:
        text = prose(ROOT / name)
        for pattern, instead in patterns():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {' '.join(match[0].split())} -> {instead}")
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
