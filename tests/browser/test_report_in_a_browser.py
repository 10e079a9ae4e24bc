"""The report in a real browser, with the network cut: it renders, its sections open, and everybody can read it."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser.chromium import Chromium, executable
from unit.figures import fabricated

from sharebench.figures import catalogue, draw
from sharebench.report import page as report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium here (apt-get install chromium)"),
]
SIZES = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]
# Contrast as WCAG 2 defines it, of every text that is shown, against the nearest background that is not transparent.
LOW_CONTRAST = """(() => {
  const parse = (text) => {
    const [, space, inside] = text.match(/^(rgba?|color)\\((.*)\\)$/);
    const numbers = inside.replace("srgb", "").split(/[ ,\\/]+/).filter(Boolean).map(Number);
    return { rgb: numbers.slice(0, 3).map((n) => (space === "color" ? n : n / 255)), alpha: numbers[3] ?? 1 };
  };
  const light = ({ rgb }) => {
    const [r, g, b] = rgb.map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, noscript")) continue;
    let behind = element;
    while (behind && parse(getComputedStyle(behind).backgroundColor).alpha === 0) behind = behind.parentElement;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(parse(getComputedStyle(behind ?? document.body).backgroundColor))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${walker.currentNode.data.trim()}`);
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the made-up study with its figures; its texts try to be scripts."""
    root = fabricated.write(tmp_path_factory.mktemp("study") / "results")
    excluded = root / "cells/mps/matmul/n2/r2/raw.json"
    raw = json.loads(excluded.read_text())
    raw["evidence"][0]["holds"] = False
    excluded.write_text(json.dumps(raw))
    for name in catalogue.names_for(fabricated.config(), "cpu"):
        draw.figure(name, root, root)
    report.write(root, root)
    return root / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    path = executable()
    assert path is not None
    chromium = Chromium(path, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_it_renders_offline_fits_and_can_be_read(browser: Chromium, page: Path, width: int, scheme: str) -> None:
    browser.show(page, width, scheme)
    assert browser.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 100)")
    assert browser.evaluate("document.images.length") >= 4
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(LOW_CONTRAST) == []
    assert browser.complaints() == []
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_has_the_answers(browser: Chromium, page: Path, scheme: str) -> None:
    browser.show(page, 1280, scheme)
    bottoms = browser.evaluate("[...document.querySelectorAll('.answer')].map((e) => e.getBoundingClientRect().bottom)")
    assert len(bottoms) == 2 and max(bottoms) <= 800
    tops = browser.evaluate("['cards', 'curves', 'advice'].map((id) => document.getElementById(id).offsetTop)")
    assert tops == sorted(tops)
    assert browser.evaluate("[...document.querySelectorAll('.answer .tag')].every((e) => e.checkVisibility())")
    cut = (
        "[...document.querySelectorAll('.answer *')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    )
    assert browser.evaluate(f"{cut}.map((e) => e.textContent)") == []


def test_a_section_opens_by_key_and_by_link_and_on_paper(browser: Chromium, page: Path) -> None:
    browser.show(page, 1280)
    is_open = "document.querySelector('#numbers').offsetHeight > 200"
    assert browser.evaluate(is_open) is False
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(is_open) is True
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.evaluate("document.querySelector('#numbers summary').focus()")
    browser.press("Enter")
    assert browser.evaluate(is_open) is True
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for anchor, name in (("trust", "trust"), ("note-1-1", "numbers")):
        browser.show(page, 1280)
        shown = f"document.querySelector('#{name} details > :not(summary)').checkVisibility()"
        assert browser.evaluate(shown) is False
        browser.evaluate(f"location.hash = '{anchor}'; 0")
        assert browser.evaluate(f"new Promise((done) => setTimeout(() => done({shown})))") is True


def test_headings_are_in_order_and_links_lead_somewhere(browser: Chromium, page: Path) -> None:
    browser.show(page, 1280)
    levels = browser.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((each) => each.checkVisibility())"
        ".map((each) => Number(each.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    broken = "[...document.querySelectorAll('a')].filter((a) => !document.querySelector(a.getAttribute('href'))).length"
    assert browser.evaluate(broken) == 0


def test_on_paper_nothing_is_cut_off(browser: Chromium, page: Path) -> None:
    browser.show(page, 1280, "dark")
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call("Emulation.setDeviceMetricsOverride", width=680, height=900, deviceScaleFactor=1, mobile=False)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 680
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.call("Emulation.setEmulatedMedia", media="")


def test_these_tests_would_notice(browser: Chromium, tmp_path: Path) -> None:
    """A message on the console, an exception, a request, pale text."""
    page = tmp_path / "page.html"
    page.write_text(
        "<body style='background: #fff'><p style='color: #999'>pale</p><script>console.log('said')</script>"
        "<script>nowhere()</script><img src='http://127.0.0.1:9/picture.png'>"
    )
    browser.show(page, 1280)
    said = " ".join(browser.complaints())
    assert "said" in said and "nowhere is not defined" in said and "picture.png" in said
    assert browser.evaluate(LOW_CONTRAST) == ["2.85: pale"]
