"""Each set-up of a node in docs/cluster/install.md has the word for its evidence, and the test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_set_up_that_ran_or_is_imitated_has_its_test() -> None:
    page = (ROOT / "docs" / "cluster" / "install.md").read_text()
    table = page.partition("| set-up of the node | known | by |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    assert len(rows) > 10
    for set_up, known, by in rows:
        word, files = known.partition(",")[0], re.findall(r"`(test_\w+\.py)`", by)
        assert word in ("ran", "imitated", "read"), set_up
        assert bool(files) == (word != "read"), set_up
        texts = [(ROOT / "tests" / "cluster" / file).read_text() for file in files]
        assert word != "imitated" or all("pytestmark = pytest.mark.slow" in text for text in texts), set_up
