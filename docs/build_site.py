"""Build the site: the pages of this repository as they lie, and the reports of results/paper, by MkDocs.

MkDocs loads this file as a hook, too: its Markdown wants four spaces where GitHub's takes the width of the list's mark.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "docs" / "mkdocs.yml"
PATTERNS = ("*.md", "docs/**/*.md", "[cerpt]*/*.md", "tests/*/*.md", "published/**/*.md")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
ADDRESS = re.compile(r"[a-z]+:")
# What is wider than the page scrolls by itself, and a shadow at its edge says so. The theme's light blue is pale as ink
# on white, and below white ink.
STYLE = """
table.table { display: block; overflow-x: auto; --bs-table-bg: transparent }
pre > code { background: none }
table.table, pre {
  background:
    linear-gradient(to right, var(--bs-body-bg) 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--bs-body-bg) 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
    linear-gradient(to right, #8886, transparent) 0 0 / 0.9rem 100% no-repeat scroll,
    linear-gradient(to left, #8886, transparent) 100% 0 / 0.9rem 100% no-repeat scroll;
}
.navbar.bg-primary { background: #1b4f9c !important }
[data-bs-theme=light] { --bs-link-color-rgb: 27, 79, 156; --bs-link-color: #1b4f9c }
"""
NO_REPORTS = "None yet: `make paper` builds them, then `make site`."


def copy_pages(root: Path, pages: Path) -> None:
    """Copy all documents and the files that they link to."""
    for document in sorted({path for pattern in PATTERNS for path in root.glob(pattern)}):
        copy(document, root, pages)
        for target in LINK.findall(document.read_text(encoding="utf-8")):
            linked = Path(os.path.normpath(document.parent / target))
            if not ADDRESS.match(target) and linked.is_file() and linked.suffix != ".md":
                copy(linked, root, pages)


def copy(path: Path, root: Path, pages: Path) -> None:
    to = pages / path.relative_to(root)
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def copy_reports(paper: Path, folder: Path) -> None:
    """Copy the report of each rebuilt data set, with a page that lists them."""
    folder.mkdir(parents=True)
    lines = []
    for report in sorted(paper.glob("*/*/report.html")):
        name = report.parent.relative_to(paper)
        shutil.copyfile(report, folder / f"{name.as_posix().replace('/', '-')}.html")
        lines.append(f"- [{name}]({name.as_posix().replace('/', '-')}.html)\n")
    text = "# Reports\n\nOf the published data sets, as a run writes them.\n\n"
    (folder / "README.md").write_text(text + ("".join(lines) or NO_REPORTS + "\n"), encoding="utf-8")


def widened(lines: list[str]) -> Iterator[str]:
    """The lines with the contents of list items indented by four spaces for each level."""
    levels: list[int] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip():
            while levels and indent < levels[-1]:
                levels.pop()
        mark = re.match(r"([-*]|\d+\.) +", line.lstrip())
        rest = line.lstrip() if not levels else line[levels[-1] :]
        yield " " * 4 * len(levels) + (rest if levels else line) if line.strip() else line
        if mark and (not levels or indent >= levels[-1]):
            levels.append(indent + len(mark[0]))


def on_page_markdown(markdown: str, **_: object) -> str:
    return "\n".join(widened(markdown.splitlines()))


def stage(root: Path, paper: Path, pages: Path) -> None:
    """Copy what the site is built from."""
    shutil.rmtree(pages, ignore_errors=True)
    copy_pages(root, pages)
    copy_reports(paper, pages / "reports")
    (pages / "site.css").write_text(STYLE, encoding="utf-8")


def render(pages: Path, site: Path) -> None:
    """Write the site. A link that leads nowhere ends it."""
    # Imported late: MkDocs loads this file, and .venv has it only for tests.
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(SETTINGS), docs_dir=str(pages), site_dir=str(site), strict=True))
    name_results(site / "search" / "search_index.json")


def name_results(index: Path) -> None:
    """Give each section of a page in the index of the search the page's heading, too: many are called alike."""
    found = json.loads(index.read_text(encoding="utf-8"))
    headings: dict[str, str] = {}
    for entry in found["docs"]:
        page, _, section = entry["location"].partition("#")
        heading = headings.setdefault(page, entry["title"]) if section else ""
        if heading not in ("", entry["title"]):
            entry["title"] = f"{heading}: {entry['title']}"
    index.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
    stage(ROOT, ROOT / "results" / "paper", PAGES)
    render(PAGES, SITE)
    print("built: build/site/index.html; with search: .venv/bin/python -m http.server --directory build/site")
