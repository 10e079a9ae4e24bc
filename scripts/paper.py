"""Make published data sets again for papers: tables, figures in their widths, and the report of each."""

import argparse
import gc
from pathlib import Path

from publication import rebuild
from sharebench.core import console


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="data sets, as folders below --published")
    parser.add_argument("--published", type=Path, required=True, help="has them")
    parser.add_argument("--out", type=Path, required=True, help="receives NAME/tables, figures/*.svg and report.html")
    parser.add_argument("--print", type=Path, help="what was made before; --out receives its figures as pdf and png")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw")
    arguments = parser.parse_args()
    # Modules stay; looking for garbage among them again and again takes a tenth of the time.
    gc.freeze()
    refusals = rebuild.draw_all(arguments.names, arguments.published, arguments.out, arguments.print, arguments.workers)
    for line in refusals:
        print(line)
    return 1 if refusals else 0


if __name__ == "__main__":
    console.script(main)
