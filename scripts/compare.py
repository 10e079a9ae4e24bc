"""Compare two data sets: a table of ratios, what else differs, and a figure."""

import argparse
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the data set that ratios refer to")
    parser.add_argument("--after", type=Path, required=True, help="the data set that is compared with it")
    parser.add_argument("--out", type=Path, required=True, help="folder that receives compare.csv and the rest")
    arguments = parser.parse_args()
    try:
        paths = [arguments.before, arguments.after]
        before, after = map(compare.load, paths, dataset.labels(map(str, paths)))
        table = compare.compare(before, after)
    except (compare.NotComparable, dataset.DataSetError, RecordError) as refusal:
        return console.failed(refusal)
    differences = compare.changes(before, after)
    replace_atomically(arguments.out / "compare.csv", table.to_csv(index=False))
    text = comparison(table, before.name, after.name, differences)
    replace_atomically(arguments.out / "compare.md", text)
    with theme():
        devices = [before.facts["device"], after.facts["device"]]
        save(figure.draw(table, before.name, after.name, devices), arguments.out, "compare")
    print(text.split("\n\n")[0], flush=True)
    print(f"comparison: {arguments.out / 'compare.md'}", flush=True)
    return 0


if __name__ == "__main__":
    console.script(main)
