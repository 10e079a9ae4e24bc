"""Write report.html, the one file that shows a whole study offline."""

from pathlib import Path

from sharebench.core import console
from sharebench.report import page


def main(data: Path, results: Path) -> None:
    page.write(data, results)


if __name__ == "__main__":
    console.script(main)
