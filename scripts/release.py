"""Prepare a release: version, date, tag, CITATION.cff and CHANGELOG.md together, and one address of the repository.

`make release VERSION=1.0.0`, with ADDRESS=https://… the first time: `pyproject.toml` has it, and every other file gets
it from there.
"""

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PLACEHOLDER = "https://example.org/sharebench"
ADDRESS_FILES = ("CITATION.cff", "README.md", "docs/cluster/quickstart.md", "config/cluster/driver.yaml")
"""Files with the address, besides pyproject.toml."""
ADDRESS = re.compile(r'^Repository = "(.+)"$', re.MULTILINE)


def git(root: Path, *arguments: str) -> str:
    """What git says. Ends the program with its message where it fails."""
    try:
        made = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("git is not there; install it")
    if made.returncode:
        sys.exit(f"git {arguments[0]} failed, and nothing was changed: {made.stderr.strip() or made.stdout.strip()}")
    return made.stdout


def replaced(pattern: str, by: str, text: str, name: str) -> str:
    """The text with the one match replaced. Ends the program where there is another number of them."""
    new, count = re.subn(pattern, lambda _: by, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{name}: {count} lines match {pattern}; there must be one")
    return new


def prepare(root: Path, version: str, address: str | None, day: str) -> None:
    """Edit the files, and commit and tag them. Ends the program, with nothing changed, where that is impossible."""
    tag = f"v{version}"
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"VERSION={version}: it is not of the form 1.0.0")
    if git(root, "status", "--porcelain"):
        sys.exit("the checkout has changes; commit them first, so that the release has only its own")
    if git(root, "tag", "--list", tag):
        sys.exit(f"the tag {tag} is there already; take the next version")
    texts = {
        name: (root / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md", *ADDRESS_FILES)
    }
    (there,) = ADDRESS.findall(texts["pyproject.toml"])
    for name in ("pyproject.toml", *ADDRESS_FILES):
        texts[name] = texts[name].replace(there, address or there)
    for name, pattern, line in (
        ("pyproject.toml", r"^version = .*$", f'version = "{version}"'),
        ("CITATION.cff", r"^version: .*$", f"version: {version}"),
        ("CITATION.cff", r"^date-released: .*$", f'date-released: "{day}"'),
        ("config/cluster/driver.yaml", r"^ +value: v\d[\d.]*$", f"              value: v{version}"),
        ("CHANGELOG.md", rf"^## {re.escape(version)} \(unreleased\)$", f"## {version} ({day})"),
    ):
        texts[name] = replaced(pattern, line, texts[name], name)
    before = git(root, "rev-parse", "HEAD").strip()
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    try:
        git(root, "commit", "--all", "--message", f"Release {version}")
        git(root, "tag", "--annotate", tag, "--message", f"sharebench {version}")
    except BaseException:
        git(root, "reset", "--quiet", "--hard", before)
        raise
    print(f"{tag} is committed and tagged; publish it: git push --follow-tags")
    if (address or there) == PLACEHOLDER:
        print(f"the repository's address is still {PLACEHOLDER}; give ADDRESS=https://…")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--address")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args(arguments)
    prepare(options.root, options.version, options.address, datetime.datetime.now(datetime.UTC).date().isoformat())


if __name__ == "__main__":
    main()
