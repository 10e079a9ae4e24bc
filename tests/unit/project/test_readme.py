"""README is short, and its two commands measure and test."""

import re
from pathlib import Path

import pandas

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    assert len(README.split()) <= 1000
    (commands,) = re.findall(r"^```bash\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^make (\w+)", commands, flags=re.MULTILINE) == ["run", "test"]


def test_the_readme_answers_before_it_lists() -> None:
    places = [
        "docs/which-strategy.md",
        "<!-- by rule: main -->",
        "sharebench survey",
        "config/gpu.yaml",
        "## Documentation",
    ]
    assert [README.index(place) for place in places] == sorted(README.index(place) for place in places)
    assert "```yaml" not in README


def test_the_glossary_has_fifteen_words_and_is_linked_where_a_reader_begins() -> None:
    assert len(re.findall(r"^\| (?!word|---)", GLOSSARY, flags=re.MULTILINE)) == 15
    for page in (
        "README.md",
        "docs/README.md",
        "docs/how-it-works.md",
        "docs/gpu-host.md",
        "docs/cluster/quickstart.md",
    ):
        assert "glossary.md" in (ROOT / page).read_text(encoding="utf-8"), page


def test_every_example_is_listed() -> None:
    text = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    names = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".json")}
    assert {
        name
        for name in names
        if name not in text.replace("triton_batch_*.json", "triton_batch_1.json triton_batch_5.json")
    } == set()


def test_the_recipe_of_a_table_for_latex_makes_one() -> None:
    recipes = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"`(pandas\.read_csv.*?)`", recipes)
    table = eval(recipe.replace("results/tables", f"{ROOT}/published/h200/inference/tables"), {"pandas": pandas})
    assert table.startswith("\\begin{tabular}{llrr}") and "mps-limited-200" in table
