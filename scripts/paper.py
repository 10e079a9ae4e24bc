"""Make a published data set again for papers: tables, figures in their widths, and the report."""

import argparse
import gc
import sys
from pathlib import Path

from sharebench import aggregate, dataset, paper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set")
    parser.add_argument("--out", type=Path, required=True, help="receives tables/, figures/*.svg and report.html")
    parser.add_argument("--print", type=Path, help="what was made before; --out receives its figures as pdf and png")
    arguments = parser.parse_args()
    # Modules stay; looking for garbage among them again and again takes a tenth of the time.
    gc.freeze()
    try:
        if arguments.print:
            paper.draw_for_print(arguments.data, arguments.print, arguments.out)
        else:
            paper.draw(arguments.data, arguments.out)
    except (dataset.DataSetError, aggregate.Refused) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
