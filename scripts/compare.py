"""Compare two data sets: a table of ratios, what else differs, and a figure."""

from pathlib import Path

from sharebench.analysis import compare
from sharebench.analysis.text import comparison
from sharebench.core import console
from sharebench.core.files import replace_atomically
from sharebench.datasets import dataset
from sharebench.figures import compare as figure
from sharebench.figures.page import save
from sharebench.figures.style import theme
from sharebench.records.record import RecordError


def main(before: Path, after: Path, out: Path) -> None:
    old, new = map(compare.load, (before, after), dataset.labels([str(before), str(after)]))
    table = compare.compare(old, new)
    replace_atomically(out / "compare.csv", table.to_csv(index=False))
    text = comparison(table, old.name, new.name, compare.changes(old, new))
    replace_atomically(out / "compare.md", text)
    with theme():
        devices = [old.facts["device"], new.facts["device"]]
        save(figure.draw(table, old.name, new.name, devices), out, "compare")
    print(text.split("\n\n")[0], flush=True)
    print(f"comparison: {out / 'compare.md'}", flush=True)


if __name__ == "__main__":
    console.script(main, compare.NotComparable, dataset.DataSetError, RecordError)
