"""The report in a real browser without a network: it renders, its sections open, and it is accessible."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from unit.figures import fabricated, serving

from sharebench.model.study_config import from_json
from sharebench.read.figures import catalogue, draw
from sharebench.read.report import page as report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), "")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"),
    *("--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
)
# The page is in a frame of its width: it allows no scripts but its own.
FRAME = """<iframe src="%s" width="%d" height="900" frameborder="0"></iframe><script>
onload = () => {
  const view = frames[0], document = view.document;
  const found = %s;
  self.document.body.textContent = JSON.stringify(found);
};
</script>"""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium here (apt-get install chromium)"),
]
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
    while (behind && parse(view.getComputedStyle(behind).backgroundColor).alpha === 0) behind = behind.parentElement;
    const style = view.getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(parse(view.getComputedStyle(behind ?? document.body).backgroundColor))];
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
    for name in catalogue.names_for(from_json(fabricated.config()), "cpu"):
        draw.draw_figure(name, root, root)
    report.write_report(root, root)
    return root / "report.html"


def shown(
    page: Path, folder: Path, expression: str, width: int = 1280, anchor: str = "", is_dark: bool = False
) -> tuple[Any, list[str]]:
    """The value of a JavaScript expression on the page at this width in pixels, and what the console said."""
    frame = folder / "frame.html"
    frame.write_text(FRAME % (f"{page.resolve().as_uri()}#{anchor}", width, expression))
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom"]
    if is_dark:
        command.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = re.search("<body>(.*)</body>", done.stdout, flags=re.DOTALL)
    assert found is not None, done.stdout
    return json.loads(html.unescape(found[1])), re.findall(r"CONSOLE.*?\] (.*)", done.stderr)


@pytest.mark.parametrize(("width", "is_dark"), [(390, True), (1280, False)])
def test_the_report_renders_offline_fits_and_is_readable(page: Path, tmp_path: Path, width: int, is_dark: bool) -> None:
    looked_at = """(() => {
      const images = [...document.querySelectorAll(".card svg")].map((image) => image.clientWidth > 100);
      const widths = [document.documentElement.scrollWidth];
      document.querySelectorAll("details").forEach((each) => { each.open = true; });
      widths.push(document.documentElement.scrollWidth);
      const { filter } = view.getComputedStyle(document.querySelector(".card"));
      return { images, widths, pale: LOW_CONTRAST, filter };
    })()""".replace("LOW_CONTRAST", LOW_CONTRAST)
    found, said = shown(page, tmp_path, looked_at, width, is_dark=is_dark)
    assert (found["filter"] != "none") == is_dark, "figures are light on dark"
    assert len(found["images"]) >= 4 and all(found["images"])
    assert max(found["widths"]) <= width
    assert (found["pale"], said) == ([], [])


def test_tables_sort_and_filter_and_points_say_their_numbers(page: Path, tmp_path: Path) -> None:
    asked = """(() => {
      document.querySelectorAll("details").forEach((each) => { each.open = true; });
      const table = document.querySelector("#numbers table");
      const texts = (column) => [...table.tBodies[0].rows].filter((row) => !row.hidden)
        .map((row) => row.cells[column].firstChild.textContent || row.cells[column].textContent);
      const head = [...table.tHead.rows[0].cells].find((each) => each.textContent.startsWith("Total"));
      const before = texts(0).length;
      head.firstChild.click();
      const up = texts(head.cellIndex);
      head.firstChild.click();
      const down = texts(head.cellIndex);
      const [workload, strategy] = document.querySelectorAll(".filters select");
      const choose = (select, value) => { select.value = value; select.onchange(); };
      choose(strategy, "mps");
      const only = table.tBodies[0].querySelectorAll("tr:not([hidden])").length;
      choose(workload, [...workload.options].at(-1).value);
      const titles = [...document.querySelectorAll(".card use title")].map((each) => each.textContent);
      const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
      const twice = ids.filter((each, i) => ids.indexOf(each) !== i);
      return { before, up, down, only, hidden: table.closest(".scroll").hidden, titles, twice };
    })()"""
    found, said = shown(page, tmp_path, asked)
    up, down = ([float(each) for each in found[name] if each != "–"] for name in ("up", "down"))
    assert up == sorted(up) == down[::-1] and len(up) > 3
    assert found["up"][len(up) :] == found["down"][len(up) :] == ["–"] * (found["before"] - len(up)), "blanks last"
    assert found["only"] == 3 and found["hidden"]
    assert any(re.fullmatch(r"MPS × 4: p50 [\d.]+ ms \([\d.]+ to [\d.]+\)", each) for each in found["titles"])
    assert (found["twice"], said) == ([], [])


def test_nothing_stands_before_the_answers_of_a_sweep(tmp_path: Path) -> None:
    study = serving.study(tmp_path / "results")
    report.write_report(study.data, study.results)
    order = """[...document.querySelectorAll("#cards table, .filters")].map((each) => each.className)"""
    found, _ = shown(study.results / "report.html", tmp_path, order)
    assert found == ["", "filters"]


def test_the_first_screen_has_the_answers_and_links_lead_somewhere(page: Path, tmp_path: Path) -> None:
    looked_at = """{
      bottoms: [...document.querySelectorAll(".answer")].map((e) => e.getBoundingClientRect().bottom),
      tops: ["cards", "curves", "advice"].map((id) => document.getElementById(id).offsetTop),
      tags: [...document.querySelectorAll(".answer .tag")].every((e) => e.checkVisibility()),
      cut: [...document.querySelectorAll(".answer *")]
        .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map((e) => e.textContent),
      folded: document.querySelector("#numbers").offsetHeight,
      levels: [...document.querySelectorAll("h1, h2, h3, h4")].filter((e) => e.checkVisibility())
        .map((e) => Number(e.tagName[1])),
      broken: [...document.querySelectorAll("a:not([download])")]
        .filter((a) => !document.querySelector(a.getAttribute("href"))).length,
    }"""
    found, _ = shown(page, tmp_path, looked_at)
    assert len(found["bottoms"]) == 2 and max(found["bottoms"]) <= 900
    assert found["tops"] == sorted(found["tops"]) and found["tags"]
    assert (found["cut"], found["broken"]) == ([], 0) and found["folded"] < 200
    assert found["levels"][0] == 1 and found["levels"].count(1) == 1
    assert all(after - before <= 1 for before, after in zip(found["levels"], found["levels"][1:], strict=False))


@pytest.mark.parametrize(("anchor", "section"), [("trust", "trust"), ("note-1-1", "numbers")])
def test_a_link_opens_the_section_it_leads_to(page: Path, tmp_path: Path, anchor: str, section: str) -> None:
    looked_at = f"document.querySelector('#{section} details > :not(summary)').checkVisibility()"
    assert shown(page, tmp_path, looked_at)[0] is False
    assert shown(page, tmp_path, looked_at, anchor=anchor)[0] is True


def test_a_broken_page_fails_these_tests(tmp_path: Path) -> None:
    """A message on the console, an exception, pale text."""
    page = tmp_path / "page.html"
    page.write_text(
        "<body style='background: #fff'><p style='color: #999'>pale</p><script>console.log('said')</script>"
        "<script>nowhere()</script>"
    )
    found, console = shown(page, tmp_path, LOW_CONTRAST)
    said = " ".join(console)
    assert "said" in said and "nowhere is not defined" in said
    assert found == ["2.85: pale"]
