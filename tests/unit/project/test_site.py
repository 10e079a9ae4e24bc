"""The site of the documents has no broken link, and its search finds what the pages say."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if importlib.util.find_spec("mkdocs") is None:
    pytest.skip("mkdocs is not installed; envs/dev.txt has it", allow_module_level=True)

SPEC = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
assert SPEC and SPEC.loader
build_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_site)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    report = tmp_path / "paper/h200/inference/report.html"
    report.parent.mkdir(parents=True)
    report.write_text("<p>a report")
    build_site.stage(ROOT, tmp_path / "paper", tmp_path / "pages")
    return tmp_path / "pages"


def test_no_link_is_broken_the_search_finds_wrong_answers_and_reports_are_there(pages: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    build_site.render(pages, site)
    entries = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {entry["location"].split("#")[0] for entry in entries if "wrong answers" in entry["text"].lower()}
    assert {"docs/which-strategy.html", "docs/strategies/mps-limited.html"} & found, found
    titles = {entry["location"]: entry["title"] for entry in entries}
    assert titles["docs/strategies/mps-limited.html#pitfalls"] == "MPS with limits: Pitfalls"
    assert titles["docs/which-strategy.html#which-strategy"] == "Which strategy?"
    assert 'href="h200-inference.html"' in (site / "reports/index.html").read_text(encoding="utf-8")
    assert (site / "reports/h200-inference.html").read_text() == "<p>a report"


def test_broken_links_end_the_build(pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (pages / "README.md").open("a") as page:
        page.write("[One](docs/no-page.md), [two](docs/method.md#no-heading), [three](no-file.yaml).")
    with pytest.raises(BaseException, match="strict mode"):
        build_site.render(pages, tmp_path / "site")
    assert all(link in caplog.text for link in ("docs/no-page.md", "#no-heading", "no-file.yaml"))


def test_a_block_in_a_list_item_stays_in_it() -> None:
    page = "1. One:\n\n   ```bash\n   make test\n   ```\n\n- a\n  - b\n\nAfter.\n\n    kept\n"
    wide = "1. One:\n\n    ```bash\n    make test\n    ```\n\n- a\n    - b\n\nAfter.\n\n    kept"
    assert build_site.on_page_markdown(page) == wide
